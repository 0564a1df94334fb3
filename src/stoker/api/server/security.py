"""Who may call.

Three checks, on every method and on the WebSocket, before a byte of a body is read:

- `Host`: on loopback only names of this machine, so that a page which rebinds its own name to 127.0.0.1 gets nothing.
- `Origin`: a browser says whose page is asking; a foreign one is refused even where it could not read the answer, because a
  job that was submitted blindly still runs.
- the token, when one is set: everything that the endpoint table does not call public needs it, unknown paths included.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from typing import Final, Literal

from stoker.api.problems import Kind, RequestProblem
from stoker.api.server.exchange import Header
from stoker.settings import Settings, is_loopback

Scope = Literal["public", "submit", "read", "worker", "admin"]

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_REMEMBERED_HOSTS: Final = 64
_HOST: Final = re.compile(
    r"(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE
)
_LAST_PORT: Final = 65_535
_BEARER: Final = b"bearer "
_LOCAL: Final = "local"

_EXPOSED: Final = b"location, retry-after, x-request-id, idempotency-replayed, preference-applied"
_ALLOWED_METHODS: Final = b"DELETE, GET, HEAD, PATCH, POST, PUT"
"""All that the API has, at every path: a browser need not know which path has which."""
_ALLOWED_HEADERS: Final = (
    b"authorization, content-type, idempotency-key, x-idempotency-key, prefer, x-request-id, last-event-id"
)


class Guard:
    """The rules that follow from the settings."""

    def __init__(self, settings: Settings) -> None:
        extra = frozenset(host.lower() for host in settings.allowed_hosts)
        if is_loopback(settings.host):
            self._hosts: frozenset[str] = extra | _LOOPBACK_NAMES
        else:
            self._hosts = extra
        self._origins = frozenset(origin.lower() for origin in settings.allowed_origins)
        self._token = None if settings.token is None else hashlib.sha256(settings.token.encode()).digest()
        self._good_hosts: set[bytes] = set()
        self.client_of_keys: Final = _LOCAL if self._token is None else f"token:{self._token.hex()[:16]}"
        """The name under which idempotency keys are kept."""

    def check_host(self, host: bytes | None) -> None:
        if host in self._good_hosts or (not host and not self._hosts):
            return
        name = (host or b"").decode("latin-1").lower()
        bare = without_port(name)
        if name and bare is None and name not in self._hosts:
            raise RequestProblem(
                Kind.UNREADABLE,
                f"the Host header {name[:100]!r} is not a name or an address with an optional port",
            )
        if self._hosts and name not in self._hosts and bare not in self._hosts:
            raise RequestProblem(
                Kind.FORBIDDEN,
                f"the Host header {name[:100]!r} is not a name of this server; address it as localhost, or list the name "
                "in STOKER_ALLOWED_HOSTS",
            )
        if host is not None and len(self._good_hosts) < _REMEMBERED_HOSTS:
            self._good_hosts.add(host)

    def check_origin(self, headers: Mapping[bytes, bytes], scheme: str) -> None:
        origin = headers.get(b"origin")
        if origin is None:
            return
        name = origin.decode("latin-1").lower()
        own = f"{scheme}://{headers.get(b'host', b'').decode('latin-1').lower()}"
        if name != own and name not in self._origins:
            raise RequestProblem(
                Kind.FORBIDDEN,
                f"pages from {name[:100]!r} may not call this server; list the origin in STOKER_ALLOWED_ORIGINS",
            )

    def authorise(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Let the caller through, or raise 401. One token has all scopes for now; the table already names them."""
        if self._token is None or scope == "public":
            return
        given = headers.get(b"authorization", b"")
        # Digests are compared, so that neither the content nor the length of the token shows in the time taken.
        digest = hashlib.sha256(given[len(_BEARER) :].strip()).digest()
        if given[: len(_BEARER)].lower() != _BEARER or not hmac.compare_digest(digest, self._token):
            detail = (
                "send the server's token: set STOKER_TOKEN, or with curl -H 'Authorization: Bearer TOKEN'"
            )
            if given:
                detail = f"the token is not the server's; {detail}"
            raise RequestProblem(
                Kind.UNAUTHORIZED, detail, headers=[(b"www-authenticate", b'Bearer realm="stoker"')]
            )

    def client(self, address: str) -> str:
        """Whom a rate limit counts: the token, else the address."""
        return f"address:{address}" if self._token is None else self.client_of_keys

    def cors(self, origin: bytes | None) -> list[Header]:
        """Return the headers that let a listed origin read the answer; none for any other origin."""
        if origin is None or not self._origins or origin.decode("latin-1").lower() not in self._origins:
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        ]

    def preflight(self, headers: Mapping[bytes, bytes]) -> list[Header]:
        """Return the answer to a browser that asks first; empty when this is not such a question from a listed origin."""
        if b"access-control-request-method" not in headers or not self.cors(headers.get(b"origin")):
            return []
        return [
            (b"access-control-allow-methods", _ALLOWED_METHODS),
            (b"access-control-allow-headers", _ALLOWED_HEADERS),
            (b"access-control-max-age", b"600"),
        ]


def without_port(host: str) -> str | None:
    """`localhost:8080` → `localhost`; `[::1]:8080` → `[::1]`. None for what is no name or address with an optional port."""
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 0) > _LAST_PORT:
        return None
    name = match["name"]
    return name if not name.startswith("[") or _is_ipv6(name[1:-1]) else None


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
