"""What every store of output does: what is kept, what is marked as missing, and that nothing grows without bound."""

import asyncio
import os
import tracemalloc
from pathlib import Path
from typing import cast

import pytest

from stoker.domain.errors import StoreUnavailable
from stoker.store.logs import CUT, Logs, Selection, Stream
from stoker.store.packing import ROW_BYTES
from stoker.wire.frames import MAX_OUTPUT_BYTES
from tests.conformance.logs import LOGS, LogsKind
from tests.support.clock import START_US
from tests.support.in_loop import in_loop
from tests.support.output import JOB, KIB, everything, followed, piece, pieces_of, text_of


@pytest.fixture(params=LOGS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> LogsKind:
    return cast(LogsKind, request.param)


@pytest.fixture
def logs(kind: LogsKind, place: Path) -> Logs:
    return in_loop(lambda: kind.opened(place))


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


async def test_what_finds_no_room_is_dropped_and_marked(kind: LogsKind, place: Path) -> None:
    async with kind.opened(place, max_waiting_bytes=50 * KIB) as logs:
        line = b"x" * 999 + b"\n"
        logs.append(pieces_of(line * 100, 1000))
        page = await logs.read(Selection(JOB))
        kept = sum(len(entry.data) for entry in page.entries if entry.stream == "stdout")
        assert 30_000 < kept < 50_000
        assert logs.dropped_bytes == 100_000 - kept
        assert text_of(page).endswith(b"[stoker: %d bytes of output were lost]\n" % logs.dropped_bytes)
        logs.append([piece(b"there is room again\n", 100_000)])
        assert text_of(await logs.read(Selection(JOB), page.position)) == b"there is room again\n"


async def test_a_write_that_fails_is_a_marked_gap_and_nothing_worse(kind: LogsKind, place: Path) -> None:
    async with kind.opened(place) as logs:
        logs.append([piece(b"one\n")])
        await logs.read(Selection(JOB))
        async with kind.broken(place):
            logs.append([piece(b"two\n", 4)])
            with pytest.raises(StoreUnavailable):
                await logs.read(Selection(JOB))
        logs.append([piece(b"three\n", 8)])
        assert (
            text_of(await logs.read(Selection(JOB))) == b"one\n[stoker: 4 bytes of output were lost]\nthree\n"
        )


async def test_what_a_failed_write_lost_is_marked_also_where_nothing_follows(
    kind: LogsKind, place: Path
) -> None:
    async with kind.opened(place) as logs:
        logs.append([piece(b"one\n"), piece(b"only\n", job="job-2")])
        await logs.read(Selection(JOB))
        async with kind.broken(place):
            logs.append([piece(b"two\n", 4), piece(b"lost\n", job="job-3")])
            await logs.settled([JOB])
        assert text_of(await logs.read(Selection(JOB))) == b"one\n[stoker: 4 bytes of output were lost]\n"
        assert text_of(await logs.read(Selection("job-2"))) == b"only\n"
        assert text_of(await logs.read(Selection("job-3"))) == b"[stoker: 5 bytes of output were lost]\n"


# ── bounds ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("streams", [("stdout",), ("stdout", "stderr")], ids=["one stream", "two in turn"])
async def test_many_lines_are_bounded_in_the_store_and_in_memory(
    kind: LogsKind, place: Path, streams: tuple[Stream, ...]
) -> None:
    offset = early = 0
    async with kind.opened(place) as logs:
        tracemalloc.start()
        for start in range(0, 50_000, 500):
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
    assert offset > 2 * MAX_OUTPUT_BYTES
    assert peak - early < 2 * MAX_OUTPUT_BYTES
    assert text_of(page).count(CUT) == 1
    assert len(text_of(page)) <= MAX_OUTPUT_BYTES + len(CUT) + 1
    assert (page.cut, page.written_bytes) == (True, offset)
    assert await kind.stored_bytes(place) < 1.2 * MAX_OUTPUT_BYTES


async def test_output_is_compressed(kind: LogsKind, place: Path) -> None:
    text = b"the same line again and again\n" * 30_000
    async with kind.opened(place) as logs:
        empty = await kind.stored_bytes(place)
        logs.append(pieces_of(text, 1000))
        assert text_of(await everything(logs)) == text
    assert await kind.stored_bytes(place) - empty < 100 * KIB


# ── life ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_closing_stores_what_waits_and_a_restart_continues(kind: LogsKind, place: Path) -> None:
    async with kind.opened(place) as logs:
        logs.append([piece(b"before, ")])
        await logs.close()
        logs.append([piece(b"too late", 8)])
        with pytest.raises(StoreUnavailable, match="closed"):
            await logs.read(Selection(JOB))
    async with kind.opened(place) as again:
        again.append([piece(b"before, "), piece(b"after\n", 8)])
        assert text_of(await again.read(Selection(JOB))) == b"before, after\n"


async def test_settled_waits_for_the_output_of_the_named_jobs_alone(kind: LogsKind, place: Path) -> None:
    async with kind.opened(place) as logs, kind.opened(place) as other:
        logs.append([piece(b"one\n"), piece(b"two\n", job="job-2")])
        await logs.settled(["job-3"])
        assert text_of(await other.read(Selection(JOB))) == b""
        await logs.settled([JOB])
        assert text_of(await other.read(Selection(JOB))) == b"one\n"
        await logs.settled([JOB])


async def test_what_nobody_asks_for_is_stored_soon(kind: LogsKind, place: Path) -> None:
    async with kind.opened(place) as logs, kind.opened(place) as other:
        logs.append([piece(b"one\n")])
        assert text_of(await followed(other, 4)) == b"one\n"


async def test_those_who_read_while_others_append_get_all_that_came_before(logs: Logs) -> None:
    """Many at once, so that reads find writes under way, writes that have to wait, and none."""

    async def write_and_read(job: str) -> None:
        for number in range(10):
            logs.append([piece(b"%d\n" % number, 2 * number, job=job)])
            assert len(text_of(await logs.read(Selection(job)))) == 2 * (number + 1)

    await asyncio.gather(*(write_and_read(f"job-{number}") for number in range(20)))


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
