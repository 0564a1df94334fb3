"""Lists of any length, fetched in pages while a program iterates over them: `for job in app.jobs()`, or `async for`.

A walk is a generator that yields requests, whose decoded answers it receives, and lists of items. `Walk` drives the same
generator with blocking and with async requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from stoker.client.errors import ArgumentError
from stoker.client.requests import ApiRequest, JobInfo, get

if TYPE_CHECKING:
    from stoker.client.job import JobHandle
    from stoker.client.transport import Transport

T = TypeVar("T")

PAGE_JOBS = 500

Steps = Generator[ApiRequest | list[T], Any, None]
Moment = datetime | timedelta | str
StatusFilter = Literal["blocked", "scheduled", "queued", "running", "completed", "failed", "cancelled"]


class Walk(Generic[T]):
    """An iterable for `for` and `async for` that fetches pages as it goes. Each iteration starts from the beginning."""

    def __init__(self, transport: Callable[[], Transport], steps: Callable[[], Steps[T]]) -> None:
        self._transport = transport
        self._steps = steps

    def __iter__(self) -> Iterator[T]:
        steps, answer = self._steps(), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(step, ApiRequest):
                answer = self._transport().send(step)
            else:
                yield from step

    async def __aiter__(self) -> AsyncIterator[T]:
        steps, answer = self._steps(), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(step, ApiRequest):
                answer = await self._transport().send_async(step)
            else:
                for found in step:
                    yield found


class JobsPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of `GET /jobs` and `GET /dlq`."""

    jobs: list[JobInfo]
    total: int = 0
    total_capped: bool = False
    next_cursor: str | None = None


class Jobs(Walk["JobHandle[Any]"]):
    """The jobs that match a filter, newest first; from `Stoker.jobs`. Iterate with `for` or `async for`."""

    def __init__(
        self,
        transport: Callable[[], Transport],
        path: str,
        filters: dict[str, str],
        handle: Callable[[JobInfo], JobHandle[Any]],
    ) -> None:
        super().__init__(transport, self._pages)
        self._path = path
        self._filters = filters
        self._handle = handle

    def _pages(self) -> Steps[JobHandle[Any]]:
        cursor: str | None = None
        while True:
            page: JobsPage = yield self._page(PAGE_JOBS, cursor)
            yield [self._handle(info) for info in page.jobs]
            cursor = page.next_cursor
            if cursor is None:
                return

    def first(self) -> JobHandle[Any] | None:
        """Return the newest job that matches, or None."""
        return next(iter(self), None)

    async def first_async(self) -> JobHandle[Any] | None:
        """Return the newest job that matches, like `first`, without blocking the event loop."""
        async for job in self:
            return job
        return None

    def count(self) -> int:
        """Return the number of jobs that match; the server stops counting at a very large number."""
        page: JobsPage = self._transport().send(self._page(1, None))
        return page.total

    async def count_async(self) -> int:
        """Return the number of jobs that match, like `count`, without blocking the event loop."""
        page: JobsPage = await self._transport().send_async(self._page(1, None))
        return page.total

    def _page(self, limit: int, cursor: str | None) -> ApiRequest:
        return get(self._path, JobsPage, **self._filters, limit=limit, cursor=cursor)


def job_filters(**given: Any) -> dict[str, str]:
    """Return the filters of a list as query parameters. Those that are None are left out. Raises `ArgumentError`."""
    filters: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in ("created_after", "created_before"):
            filters[name] = _moment(name, value)
        elif name == "metadata":
            filters |= _entries(value)
        elif name == "status" and not isinstance(value, str) and isinstance(value, Iterable):
            filters[name] = ",".join(map(str, value))
        else:
            filters[name] = str(value)
    return filters


def _entries(metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise ArgumentError(f"metadata has text values, and {key}={value!r} is none", "metadata")
    return {f"metadata.{key}": value for key, value in metadata.items()}


def _moment(name: str, value: Moment) -> str:
    if isinstance(value, timedelta):
        value = datetime.now(UTC) - value
    if isinstance(value, str):
        return value
    if getattr(value, "tzinfo", None) is None:
        raise ArgumentError(
            f"{name}={value!r}: give a datetime with a time zone, a timedelta for how long ago, or text such as 2h",
            name,
        )
    return value.astimezone(UTC).isoformat()
