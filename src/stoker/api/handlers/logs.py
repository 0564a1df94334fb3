"""What a job wrote: as the bytes that it wrote, as entries in JSON, or as a stream that grows with it."""

import codecs
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Annotated, Final, Literal

import msgspec

from stoker.api.context import Context
from stoker.api.handlers.jobs import job_id
from stoker.api.problems import invalid_field
from stoker.api.schemas.query import MAX_WAIT_SEC
from stoker.api.schemas.times import rfc3339
from stoker.api.schemas.views import Time, encode
from stoker.api.server.exchange import Header, Interrupted, Request, Response, stream_of
from stoker.store.logs import Entry, LogPage, Selection
from stoker.store.logs import Stream as StreamName

JSON_BYTES: Final = 4 * 1024 * 1024
"""An answer in JSON is one piece, so it ends about here; `more` says so and `position` is where to go on."""
JSON_LINES: Final = b"application/x-ndjson"
FOLLOW_SECONDS: Final = 30.0
MAX_TAIL_LINES: Final = 100_000

# A job's output is not to be trusted as a page: without this a browser may take text for HTML and run it.
_HEADERS: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)

Number = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class LogsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /jobs/{id}/logs`."""

    format: Annotated[
        Literal["text", "json"],
        msgspec.Meta(
            description="`text` is what the job wrote, byte for byte; `json` says when and where to."
        ),
    ] = "text"
    attempt: Annotated[Number, msgspec.Meta(description="Only what this attempt wrote.")] | None = None
    claim: Annotated[Number, msgspec.Meta(description="Only what was written under this claim.")] | None = (
        None
    )
    tail: (
        Annotated[int, msgspec.Meta(ge=1, le=MAX_TAIL_LINES, description="Only the last so many lines.")]
        | None
    ) = None
    follow: Annotated[
        bool,
        msgspec.Meta(
            description="Go on with what the job writes, until it ends; in JSON, a document a line as it comes."
        ),
    ] = False
    after: Annotated[
        int,
        msgspec.Meta(
            ge=0, le=2**63 - 1, description="Only what comes after this `position` of a JSON answer."
        ),
    ] = 0
    wait: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            le=MAX_WAIT_SEC,
            description="Seconds to wait for something to read; JSON, not with `follow`.",
        ),
    ] = 0.0


class LogEntryView(msgspec.Struct, frozen=True):
    """Something that an attempt wrote at once. The stream `stoker` marks what is missing."""

    attempt: int
    claim_id: int
    stream: StreamName
    time: Time
    text: str


class LogsView(msgspec.Struct, frozen=True):
    """What a job wrote, oldest first. `cut`: an attempt wrote more than is kept. `more`: some is there `after`
    this `position`. `ended`: nothing will follow."""

    entries: list[LogEntryView]
    cut: bool
    written_bytes: int
    position: int
    more: bool
    ended: bool


async def get_logs(request: Request) -> Response:
    query: LogsQuery = request.query
    context = request.context
    which = Selection(await job_id(request), query.claim, query.attempt)
    if query.wait and (query.follow or query.format == "text"):
        raise invalid_field("wait", "belongs to format=json without follow=1, which waits by itself")
    if query.format == "json" and not query.follow:
        return Response(200, encode(await _document(context, which, query)), _HEADERS)
    # Read before the answer begins, so that what goes wrong can still be told as a problem.
    pages = _pages(context, which, await context.output.page(which, query.after), query)
    if query.format == "json":
        return stream_of(_lines(pages), _HEADERS, JSON_LINES)
    return stream_of(_text(pages), _HEADERS)


async def _text(pages: AsyncGenerator[LogPage, None]) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(pages):
        async for page in pages:
            if page.entries:
                yield b"".join([entry.data for entry in page.entries])


async def _lines(pages: AsyncGenerator[LogPage, None]) -> AsyncGenerator[bytes, None]:
    """A document a line. Lines without entries keep the connection alive, and the last one says that it is."""
    async with contextlib.aclosing(pages):
        async for page in pages:
            yield encode(_view(page, page.entries)) + b"\n"


async def _pages(
    context: Context, which: Selection, page: LogPage, query: LogsQuery
) -> AsyncGenerator[LogPage, None]:
    if query.tail is not None:
        page = await _rest(context, which, page, query.tail)
    with context.stats.stream("logs"):
        while True:
            yield page
            if page.ended or not (page.more or query.follow):
                return
            if page.closing and not page.more:
                raise Interrupted("the coordinator is shutting down")
            page = await context.output.page(which, page.position, 0.0 if page.more else FOLLOW_SECONDS)


async def _rest(context: Context, which: Selection, page: LogPage, tail: int) -> LogPage:
    """The last lines of all that there is; never more of it at a time than them and a page."""
    entries = last_lines(page.entries, tail)
    while page.more:
        page = await context.output.page(which, page.position)
        entries = last_lines([*entries, *page.entries], tail)
    return msgspec.structs.replace(page, entries=entries)


async def _document(context: Context, which: Selection, query: LogsQuery) -> LogsView:
    page = await context.output.page(which, query.after, query.wait)
    if query.tail is not None:
        page = await _rest(context, which, page, query.tail)
    entries = page.entries
    size = sum(len(entry.data) for entry in entries)
    while page.more and size < JSON_BYTES:
        page = await context.output.page(which, page.position)
        entries = entries + page.entries
        size += sum(len(entry.data) for entry in page.entries)
    return _view(page, entries)


def _view(page: LogPage, entries: Sequence[Entry]) -> LogsView:
    return LogsView(entry_views(entries), page.cut, page.written_bytes, page.position, page.more, page.ended)


def last_lines(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Return what makes up the last `count` lines of what the entries say together."""
    kept: list[Entry] = []
    # The newline before the first line that is wanted; one more if the last line has ended.
    newlines = count + bool(entries and entries[-1].data.endswith(b"\n"))
    for entry in reversed(entries):
        found = entry.data.count(b"\n")
        if found >= newlines:
            start = len(entry.data.rsplit(b"\n", newlines)[0]) + 1
            kept.append(msgspec.structs.replace(entry, data=entry.data[start:]))
            break
        newlines -= found
        kept.append(entry)
    return [entry for entry in reversed(kept) if entry.data]


def entry_views(entries: Iterable[Entry]) -> list[LogEntryView]:
    """Entries as text. A character may begin in one entry and end in the next of its stream; what is not UTF-8 is
    replaced."""
    decoders: dict[tuple[int, str], codecs.IncrementalDecoder] = {}
    views = []
    for entry in entries:
        key = (entry.claim_id, entry.stream)
        decoder = decoders.setdefault(key, codecs.getincrementaldecoder("utf-8")("replace"))
        text = decoder.decode(entry.data)
        views.append(LogEntryView(entry.attempt, entry.claim_id, entry.stream, rfc3339(entry.at), text))
    return _ended(views, decoders)


def _ended(
    views: list[LogEntryView], decoders: dict[tuple[int, str], codecs.IncrementalDecoder]
) -> list[LogEntryView]:
    """With the beginning of a character that never ended, as the replacement for it, in the last entry of its stream."""
    for index in range(len(views) - 1, -1, -1):
        view = views[index]
        decoder = decoders.pop((view.claim_id, view.stream), None)
        if decoder is not None and (left := decoder.decode(b"", final=True)):
            views[index] = msgspec.structs.replace(view, text=view.text + left)
    return views
