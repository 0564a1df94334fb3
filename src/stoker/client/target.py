"""The address of the API, and whether the SDK's own HTTP client can reach it.

It can reach ordinary `http://` and `https://` URLs. A proxy, a name and password in the URL or a host name that is not ASCII
are left to httpx, which is slower.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

_PORTS: Final = {"http": 80, "https": 443}


class ServerTarget(NamedTuple):
    """A server that the SDK's own HTTP client can reach."""

    host: str
    port: int
    prefix: str
    """The path before that of each request, without a slash at its end."""
    host_header: str
    is_tls: bool


def own_target(url: str, environ: Mapping[str, str]) -> ServerTarget | None:
    """Return the server of a URL, or None when httpx is needed to reach it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    plain = host.isascii() and "%" not in host and parts.username is None and parts.password is None
    if parts.scheme not in _PORTS or not host or not plain or not parts.path.isascii():
        return None
    if parts.query or parts.fragment or _is_proxied(parts.scheme, host, environ):
        return None
    usual = _PORTS[parts.scheme]
    name = f"[{host}]" if ":" in host else host
    header = name if port in (None, usual) else f"{name}:{port}"
    return ServerTarget(host, port or usual, parts.path.rstrip("/"), header, parts.scheme == "https")


def _is_proxied(scheme: str, host: str, environ: Mapping[str, str]) -> bool:
    """Return whether a proxy may be set for the host. It need not be exact: httpx decides."""
    proxies = [
        value for name, value in environ.items() if value and name.lower() in (f"{scheme}_proxy", "all_proxy")
    ]
    if not proxies and sys.platform in ("darwin", "win32"):  # these have proxies in their system settings
        from urllib.request import getproxies

        proxies = [value for name, value in getproxies().items() if name in (scheme, "all")]
    excepted = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return bool(proxies) and not any(_excepts(entry, host) for entry in excepted.split(","))


def _excepts(entry: str, host: str) -> bool:
    entry = entry.strip().lower()
    if entry == "*":
        return True
    name = entry.strip("[]").lstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def tls_context() -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates of SSL_CERT_FILE or SSL_CERT_DIR, else those of certifi."""
    import ssl

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and not folder:
        import certifi

        file = certifi.where()
    context = ssl.create_default_context(cafile=file or None, capath=None if file else folder)
    context.set_alpn_protocols(["http/1.1"])
    return context
