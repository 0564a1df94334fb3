"""From a path to its row of the table.

Paths without parameters are found in a dictionary, which is the whole cost of routing for a submit; the others by the
regular expressions that Starlette makes of them. Methods are looked up after the path, so that a 405 can name all of them.
"""

import re
from collections.abc import Iterable
from re import Pattern
from typing import Any, Final

import msgspec
from starlette.routing import compile_path

from stoker.api.endpoints import Endpoint
from stoker.api.problems import RequestProblem
from stoker.api.server.decode import decode_body

Params = dict[str, str]


class Action:
    """One endpoint with everything that is prepared once: its decoder, and its query when none is given."""

    __slots__ = ("_first", "_other", "decoder", "default_query", "endpoint", "handler", "scope")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.handler = endpoint.handler
        self.scope = endpoint.scope
        self.default_query = endpoint.query()
        self.decoder: msgspec.json.Decoder[Any] | None = None
        if endpoint.body is not None:
            self.decoder = msgspec.json.Decoder(endpoint.body)
        self._other: msgspec.json.Decoder[Any] | None = None
        if endpoint.or_body is not None:
            self._other = msgspec.json.Decoder(endpoint.or_body[0])
        self._first: msgspec.json.Decoder[Any] | None = None
        if endpoint.read_first is not None:
            self._first = msgspec.json.Decoder(endpoint.read_first[0])

    def decode(self, decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
        """Return the body as one of the types that this endpoint takes. Raises `RequestProblem`."""
        other = self.endpoint.or_body
        if other is not None and self._other is not None and other[1](body):
            decoder = self._other
        if self._first is not None:
            found = self._read_first(self._first, body)
            if found is not None:
                return found
        try:
            return decode_body(decoder, body)
        except RequestProblem as problem:
            if self.endpoint.read_again is None:
                raise
            return self.endpoint.read_again(body, problem)

    def _read_first(self, decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
        assert self.endpoint.read_first is not None  # noqa: S101 - the decoder was made for it
        try:
            found = decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        return found if self.endpoint.read_first[1](found) else None


class Route:
    """One path and what can be done with it."""

    __slots__ = ("actions", "allow", "websocket")

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.actions: dict[str, Action] = {endpoint.method: Action(endpoint) for endpoint in endpoints}
        # Kept apart, so that a request cannot ask for it as if it were a method.
        self.websocket = self.actions.pop("WEBSOCKET", None)
        methods = set(self.actions)
        if "GET" in methods:
            methods.add("HEAD")
        self.allow: Final = ", ".join(sorted(methods)).encode()

    def action(self, method: str) -> Action | None:
        """HEAD is a GET whose body is not sent."""
        return self.actions.get("GET" if method == "HEAD" else method)


class Router:
    """All routes of a table."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        by_path: dict[str, list[Endpoint]] = {}
        for endpoint in endpoints:
            by_path.setdefault(endpoint.path, []).append(endpoint)
        self._static: dict[str, Route] = {}
        self._patterns: list[tuple[Pattern[str], Route]] = []
        for path, group in by_path.items():
            if "{" in path:
                # The name of a queue may have slashes in it, and so has the path of a file.
                pattern = path.replace("{queue}", "{queue:path}").replace("{path}", "{path:path}")
                self._patterns.append((_whole(compile_path(pattern)[0]), Route(group)))
            else:
                self._static[path] = Route(group)

    def find(self, path: str) -> tuple[Route | None, Params]:
        route = self._static.get(path)
        if route is not None:
            return route, {}
        for pattern, candidate in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                return candidate, match.groupdict()
        return None, {}


def _whole(pattern: Pattern[str]) -> Pattern[str]:
    """Return the pattern compiled so that it takes a line end for a character like any other."""
    return re.compile(pattern.pattern, re.DOTALL)
