"""The store of output: what is kept, what is marked as missing, and that neither file nor memory grows without bound."""

import os
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.domain.errors import StoreUnavailable
from stoker.store.logs import CUT, Extent, LogPage, Logs, Piece, Selection, Stream, fit, whole_characters
from stoker.store.sqlite.logs import ROW_BYTES, SqliteLogs, logs_path
from stoker.wire.frames import MAX_OUTPUT_BYTES
from tests.support.clock import START_US
from tests.support.in_loop import in_loop

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


@pytest.fixture(params=[True, False], ids=["thread", "inline"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Logs:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Logs]:
        logs = SqliteLogs.open(tmp_path / "stoker-logs.db", threads=request.param)
        yield logs
        await logs.close()

    return in_loop(opened)


async def everything(logs: Logs, which: Selection | None = None, page_bytes: int = 256 * KIB) -> LogPage:
    which = which or Selection(JOB)
    entries, after = [], 0
    while True:
        page = await logs.read(which, after, page_bytes)
        entries += page.entries
        after = page.position
        if not page.more:
            return LogPage(entries, after, False, page.cut, page.written_bytes)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def text_of(page: LogPage) -> bytes:
    return b"".join(entry.data for entry in page.entries)


# ── what is read ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_was_appended_is_read_at_once_and_in_order(logs: Logs) -> None:
    logs.append([piece(b"one\n"), piece(b"two\n", 4, stream="stderr"), piece(b"three\n", 8, stream="log")])
    page = await logs.read(Selection(JOB))
    assert [(entry.stream, entry.data) for entry in page.entries] == [
        ("stdout", b"one\n"),
        ("stderr", b"two\n"),
        ("log", b"three\n"),
    ]
    assert {(entry.claim_id, entry.attempt, entry.at) for entry in page.entries} == {(1, 1, START_US)}
    assert (page.more, page.cut, page.written_bytes) == (False, False, 14)


async def test_a_position_continues_where_the_page_ended(logs: Logs) -> None:
    logs.append([piece(b"one\n")])
    first = await logs.read(Selection(JOB))
    assert (await logs.read(Selection(JOB), first.position)).entries == []
    logs.append([piece(b"two\n", 4)])
    assert text_of(await logs.read(Selection(JOB), first.position)) == b"two\n"


async def test_claims_and_attempts_can_be_selected(logs: Logs) -> None:
    logs.append([piece(b"one\n", claim=1), piece(b"two\n", claim=2), piece(b"other\n", job="job-2")])
    assert text_of(await logs.read(Selection(JOB))) == b"one\ntwo\n"
    assert text_of(await logs.read(Selection(JOB, claim_id=2))) == b"two\n"
    assert text_of(await logs.read(Selection(JOB, attempt=1))) == b"one\n"
    assert text_of(await logs.read(Selection("job-3"))) == b""


async def test_pages_are_bounded_and_together_complete(logs: Logs) -> None:
    text = os.urandom(300 * KIB)
    logs.append(pieces_of(text, 10_000))
    page = await logs.read(Selection(JOB), 0, 64 * KIB)
    assert page.more
    assert 0 < len(text_of(page)) <= 64 * KIB + ROW_BYTES
    assert text_of(await everything(logs, page_bytes=64 * KIB)) == text


async def test_any_bytes_survive(logs: Logs) -> None:
    text = bytes(range(256)) * 3 + "grüße 👍".encode()
    logs.append(pieces_of(text, 7))
    assert text_of(await logs.read(Selection(JOB))) == text


async def test_what_comes_twice_is_stored_once(logs: Logs) -> None:
    logs.append([piece(b"one\n"), piece(b"two\n", 4)])
    await logs.read(Selection(JOB))
    logs.append([piece(b"two\n", 4), piece(b"wo\nthree\n", 5)])
    assert text_of(await logs.read(Selection(JOB))) == b"one\ntwo\nthree\n"


# ── what is missing ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_gap_is_marked_on_a_line_of_its_own(logs: Logs) -> None:
    logs.append([piece(b"half a li"), piece(b"later\n", 109)])
    page = await logs.read(Selection(JOB))
    assert text_of(page) == b"half a li\n[stoker: 100 bytes of output were lost]\nlater\n"
    assert [entry.stream for entry in page.entries] == ["stdout", "stoker", "stdout"]


async def test_an_empty_piece_tells_of_a_gap_at_the_end(logs: Logs) -> None:
    logs.append([piece(b"one\n"), piece(b"", 30)])
    assert text_of(await logs.read(Selection(JOB))) == b"one\n[stoker: 26 bytes of output were lost]\n"


async def test_output_is_cut_at_the_limit_once_and_the_rest_is_counted(logs: Logs) -> None:
    text = b"x" * (MAX_OUTPUT_BYTES - 10)
    logs.append([piece(text), piece(b"y" * 100, len(text)), piece(b"z" * 100, len(text) + 100)])
    logs.append([piece(b"z" * 100, len(text) + 200)])
    page = await everything(logs)
    assert text_of(page) == text + b"y" * 10 + b"\n" + CUT
    assert (page.cut, page.written_bytes) == (True, len(text) + 300)
    logs.append([piece(b"another attempt\n", claim=2)])
    assert text_of(await everything(logs, Selection(JOB, claim_id=2))) == b"another attempt\n"


async def test_a_worker_may_stop_sending_at_the_limit_and_say_how_much_more_there_was(logs: Logs) -> None:
    logs.append([piece(b"x\n" * (MAX_OUTPUT_BYTES // 2)), piece(b"", 5 * MAX_OUTPUT_BYTES)])
    page = await everything(logs)
    assert text_of(page).endswith(b"x\n" + CUT)
    assert b"lost" not in text_of(page)
    assert page.written_bytes == 5 * MAX_OUTPUT_BYTES


async def test_exactly_the_limit_is_not_cut(logs: Logs) -> None:
    logs.append([piece(b"x" * MAX_OUTPUT_BYTES)])
    page = await everything(logs)
    assert (len(text_of(page)), page.cut) == (MAX_OUTPUT_BYTES, False)


async def test_what_finds_no_room_is_dropped_and_marked(tmp_path: Path) -> None:
    logs = SqliteLogs.open(tmp_path / "l.db", max_waiting_bytes=50 * KIB)
    line = b"x" * 999 + b"\n"
    logs.append(pieces_of(line * 100, 1000))
    page = await logs.read(Selection(JOB))
    kept = sum(len(entry.data) for entry in page.entries if entry.stream == "stdout")
    assert 30_000 < kept < 50_000
    assert logs.dropped_bytes == 100_000 - kept
    assert text_of(page).endswith(b"[stoker: %d bytes of output were lost]\n" % logs.dropped_bytes)
    logs.append([piece(b"there is room again\n", 100_000)])
    assert text_of(await logs.read(Selection(JOB), page.position)) == b"there is room again\n"
    await logs.close()


@given(
    st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=30)), max_size=12),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_however_pieces_come_the_extent_only_grows(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """In whatever batches they are written, the same is stored."""
    given_pieces = [piece(data, offset) for offset, data in pieces]
    whole, segments = fit(Extent(), given_pieces)
    extent, stored = Extent(), b""
    bounds = sorted({0, len(given_pieces), *(cut for cut in cuts if cut < len(given_pieces))})
    for start, end in pairwise(bounds):
        before = extent
        extent, part = fit(extent, given_pieces[start:end])
        assert extent.stored >= before.stored
        stored += b"".join(bytes(segment.data) for segment in part)
    assert extent == whole
    assert stored == b"".join(bytes(segment.data) for segment in segments)
    assert whole.written == max((p.end for p in given_pieces), default=0) == whole.stored


def test_a_cut_does_not_split_a_character() -> None:
    text = "aé👍".encode()
    assert [text[: whole_characters(text, size)].decode() for size in range(8)] == [
        "", "a", "a", "aé", "aé", "aé", "aé", "aé👍",
    ]  # fmt: skip
    assert whole_characters(b"\x80" * 10, 7) == 7


# ── bounds ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("streams", [("stdout",), ("stdout", "stderr")], ids=["one stream", "two in turn"])
async def test_a_hundred_thousand_lines_are_bounded_on_disk_and_in_memory(
    tmp_path: Path, streams: tuple[Stream, ...]
) -> None:
    path = tmp_path / "stoker-logs.db"
    logs = SqliteLogs.open(path)
    offset = early = 0
    tracemalloc.start()
    for start in range(0, 100_000, 500):
        batch = []
        for number in range(start, start + 500):
            line = b"line %d: %s\n" % (number, os.urandom(20).hex().encode())
            batch.append(piece(line, offset, stream=streams[number % len(streams)]))
            offset += len(line)
        logs.append(batch)
        await logs.read(Selection(JOB), 2**62)  # as a follower would: in step with the writer
        if start == 20_000:
            early, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    page = await everything(logs)
    await logs.close()
    assert offset > 5 * MAX_OUTPUT_BYTES
    assert peak - early < 2 * MAX_OUTPUT_BYTES
    assert text_of(page).count(CUT) == 1
    assert len(text_of(page)) <= MAX_OUTPUT_BYTES + len(CUT) + 1
    assert (page.cut, page.written_bytes) == (True, offset)
    assert size_of(tmp_path) < 1.2 * MAX_OUTPUT_BYTES


async def test_output_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "stoker-logs.db"
    logs = SqliteLogs.open(path)
    logs.append(pieces_of(b"the same line again and again\n" * 30_000, 1000))
    await logs.close()
    assert path.stat().st_size < 100 * KIB


# ── life ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_closing_stores_what_waits_and_a_restart_continues(tmp_path: Path) -> None:
    path = logs_path(tmp_path / "stoker.db")
    assert path.name == "stoker-logs.db"
    logs = SqliteLogs.open(path)
    logs.append([piece(b"before, ")])
    await logs.close()
    logs.append([piece(b"too late", 8)])
    with pytest.raises(StoreUnavailable, match="closed"):
        await logs.read(Selection(JOB))
    again = SqliteLogs.open(path)
    again.append([piece(b"before, "), piece(b"after\n", 8)])
    assert text_of(await again.read(Selection(JOB))) == b"before, after\n"
    await again.close()


async def test_the_output_of_a_job_is_deleted_and_its_positions_never_come_back(logs: Logs) -> None:
    logs.append([piece(), piece(claim=2), piece(job="job-2")])
    position = (await logs.read(Selection("job-2"))).position
    await logs.delete([JOB, "unknown"])
    assert text_of(await logs.read(Selection(JOB))) == b""
    assert text_of(await logs.read(Selection("job-2"))) == b"hello\n"
    await logs.delete(["job-2"])
    logs.append([piece(job="job-3")])
    assert text_of(await logs.read(Selection("job-3"), position)) == b"hello\n"


async def test_a_deleted_job_that_writes_again_is_readable(logs: Logs) -> None:
    logs.append([piece()])
    await logs.delete([JOB])
    logs.append([piece(b"more\n", 6)])
    assert text_of(await logs.read(Selection(JOB))).endswith(b"lost]\nmore\n")


async def test_who_wrote_is_listed_by_age(logs: Logs) -> None:
    logs.append([piece(job=f"job-{number}", at=START_US + number) for number in range(5)])
    await logs.read(Selection(JOB))
    first = await logs.written(0, START_US + 4, 3)
    assert [written.job_id for written in first] == ["job-0", "job-1", "job-2"]
    assert [written.job_id for written in await logs.written(first[-1].key, START_US + 4, 3)] == ["job-3"]


async def test_a_write_that_fails_is_a_marked_gap_and_nothing_worse(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    logs = SqliteLogs.open(path, threads=False)
    logs.append([piece(b"one\n")])
    await logs.read(Selection(JOB))
    other = sqlite3.connect(path)
    other.execute("ALTER TABLE chunks RENAME TO elsewhere")
    logs.append([piece(b"two\n", 4)])
    with pytest.raises(StoreUnavailable):
        await logs.read(Selection(JOB))
    other.execute("ALTER TABLE elsewhere RENAME TO chunks")
    other.close()
    logs.append([piece(b"three\n", 8)])
    assert text_of(await logs.read(Selection(JOB))) == b"one\n[stoker: 4 bytes of output were lost]\nthree\n"
    await logs.close()


async def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreUnavailable, match="cannot open"):
        SqliteLogs.open(path)
    newer = tmp_path / "newer.db"
    db = sqlite3.connect(newer)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreUnavailable, match="upgrade"):
        SqliteLogs.open(newer)
