"""The plain page at `/dashboard`: public, since it holds no data; what it shows it fetches with the visitor's own
token."""

from importlib.resources import files
from typing import Final

from stoker.api.exchange import Header, Request, Response

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


def _file(name: str, content_type: bytes) -> Response:
    """Read once, at import: a page that is half of one version and half of another helps nobody."""
    body = files("stoker.api").joinpath("static", name).read_bytes()
    return Response(200, body, _HEADERS, content_type)


_PAGE: Final = _file("index.html", b"text/html; charset=utf-8")
_SCRIPT: Final = _file("app.js", b"text/javascript; charset=utf-8")
_STYLE: Final = _file("style.css", b"text/css; charset=utf-8")
_TO_PAGE: Final = Response(307, b"", ((b"location", b"/dashboard"),), b"text/plain; charset=utf-8")


async def page(request: Request) -> Response:
    return _PAGE


async def script(request: Request) -> Response:
    return _SCRIPT


async def style(request: Request) -> Response:
    return _STYLE


async def root(request: Request) -> Response:
    return _TO_PAGE
