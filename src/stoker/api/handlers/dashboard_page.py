"""The dashboard at `/dashboard`: public, since it holds no data; what it shows it fetches with the visitor's own token.

Its files are built from `web/` into `stoker/dashboard` and shipped with the package. All of them are read at once, at the
first request, so that a page never mixes files of two versions. A path that is not a file is a route of the application, and
is answered with its main page.
"""

import asyncio
import gzip
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Final

import msgspec

from stoker.api.server.exchange import Header, Request, Response
from stoker.domain.errors import MissingError

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"vary", b"accept-encoding"),
)
_LOOK_AGAIN: Final[Header] = (b"cache-control", b"no-cache")
# The name of an asset has a hash of its content in it.
_FOR_EVER: Final[Header] = (b"cache-control", b"public, max-age=31536000, immutable")
_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_NOT_BUILT: Final = b"""<!doctype html><title>Stoker</title><p>The dashboard is not in this build. Make it with
<code>make web</code>, or ask <code>stoker top</code>.</p>"""


class File(msgspec.Struct, frozen=True):
    """One file, as it is and as most browsers take it."""

    body: bytes
    zipped: bytes
    content_type: bytes
    cache: Header


@cache
def _files() -> dict[str, File]:
    return dict(_found(files("stoker").joinpath("dashboard"), ""))


def _found(folder: Traversable, prefix: str) -> list[tuple[str, File]]:
    found: list[tuple[str, File]] = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        path = prefix + entry.name
        if entry.is_dir():
            found += _found(entry, f"{path}/")
        elif (content_type := _TYPES.get(PurePosixPath(path).suffix)) is not None:
            body = entry.read_bytes()
            kept = _FOR_EVER if path.startswith("assets/") else _LOOK_AGAIN
            found.append((path, File(body, gzip.compress(body, 6, mtime=0), content_type, kept)))
    return found


async def page(request: Request) -> Response:
    return await _answer(request, "index.html")


async def file(request: Request) -> Response:
    path = request.params["path"]
    known = await asyncio.to_thread(_files)
    if path in known:
        return await _answer(request, path)
    # `/dashboard/jobs/…` is a page; a script that is not there must not be answered with one.
    if path.startswith("assets/"):
        raise MissingError("There is no such file in this version of the dashboard; reload the page.")
    return await _answer(request, "index.html")


async def _answer(request: Request, path: str) -> Response:
    file = (await asyncio.to_thread(_files)).get(path)
    if file is None:
        return Response(200, _NOT_BUILT, (*_HEADERS, _LOOK_AGAIN), _TYPES[".html"])
    if b"gzip" in request.headers.get(b"accept-encoding", b""):
        headers = (*_HEADERS, file.cache, (b"content-encoding", b"gzip"))
        return Response(200, file.zipped, headers, file.content_type)
    return Response(200, file.body, (*_HEADERS, file.cache), file.content_type)


_TO_PAGE: Final = Response(307, b"", ((b"location", b"/dashboard"),), b"text/plain; charset=utf-8")


async def root(request: Request) -> Response:
    return _TO_PAGE
