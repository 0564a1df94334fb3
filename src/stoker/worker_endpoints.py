"""Addresses of workers that are web services: how they are read, and whether the operator has listed one.

The coordinator dials nothing that is not on the list (`STOKER_ENDPOINTS`), so both sides of the comparison go through one
strict reader, and what is dialled is written anew from what was compared, never the text that a client sent. Whatever
two readers of URLs might understand differently (credentials, `..`, percent signs, backslashes, other alphabets) is
refused instead of interpreted.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

ALLOWED: Final = "an address such as http://10.0.0.5:9000/jobs (no credentials, query, fragment, `..` or `%`)"

_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?")
_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~!$&'()*+;=:@-]+)*/?")


class EndpointUrl(NamedTuple):
    """The parts of an address that are compared."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def parse(text: str) -> EndpointUrl:
    """Read an address; raises ValueError for anything but plain http or https."""
    if not text.isascii() or not text.isprintable() or any(char in text for char in " \\%?#@"):
        raise ValueError(f"must be {ALLOWED}")
    parts = urlsplit(text)
    host, port = parts.hostname or "", parts.port
    if parts.netloc.endswith(":"):  # port 80 to a reader of URLs, any port to the person who wrote it
        raise ValueError(f"must be {ALLOWED}; there is no port after the colon")
    if parts.scheme not in _PORTS or port == 0 or not _is_host(host) or not _PATH.fullmatch(parts.path):
        raise ValueError(f"must be {ALLOWED}")
    return EndpointUrl(parts.scheme, host, port or _PORTS[parts.scheme], parts.path)


def find_listed(text: str, listed: Iterable[str]) -> EndpointUrl | None:
    """Return the address if the list has it, or has a beginning of it that ends where a path segment does."""
    try:
        wanted = parse(text)
    except ValueError:
        return None
    return wanted if any(_covers(parse(entry), wanted) for entry in listed) else None


def _covers(entry: EndpointUrl, wanted: EndpointUrl) -> bool:
    prefix = entry.path.rstrip("/")
    return wanted[:3] == entry[:3] and (wanted.path == prefix or wanted.path.startswith(f"{prefix}/"))


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _NAME.fullmatch(host) is not None
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
