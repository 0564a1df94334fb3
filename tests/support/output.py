"""Pieces of output, and what was made of them."""

import asyncio
import time
from typing import Any

from stoker.store.logs import LogPage, Logs, Piece, Selection, Stream
from tests.support.clock import START_US

JOB = "job-1"
KIB = 1024


def piece(
    data: bytes = b"hello\n",
    offset: int = 0,
    *,
    job: str = JOB,
    claim: int = 1,
    stream: Stream = "stdout",
    at: int = START_US,
) -> Piece:
    return Piece(job, claim, claim, stream, offset, at, data)


def pieces_of(text: bytes, size: int, **fields: Any) -> list[Piece]:
    return [piece(text[start : start + size], start, **fields) for start in range(0, len(text), size)]


def text_of(page: LogPage) -> bytes:
    return b"".join(entry.data for entry in page.entries)


async def everything(
    logs: Logs, which: Selection | None = None, page_bytes: int = 256 * KIB, after: int = 0
) -> LogPage:
    """All that can be read now, page by page."""
    which = which or Selection(JOB)
    entries = []
    while True:
        page = await logs.read(which, after, page_bytes)
        entries += page.entries
        after = page.position
        if not page.more:
            return LogPage(entries, after, False, page.cut, page.written_bytes)


async def followed(logs: Logs, length: int, which: Selection | None = None, within: float = 30.0) -> LogPage:
    """What somebody reads who asks again and again from the last position, until that many bytes have come."""
    deadline = time.monotonic() + within
    page = await everything(logs, which)
    while len(text_of(page)) < length and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
        later = await everything(logs, which, after=page.position)
        page = LogPage(
            page.entries + later.entries, later.position, later.more, later.cut, later.written_bytes
        )
    return page
