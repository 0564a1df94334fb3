"""Jobs that were claimed, on their way to a worker: in which frames, and what the session holds then."""

from typing import Any

import pytest
from msgspec.structs import replace

from stoker.coordinator.dispatch import FRAME_BYTES, Dispatch, assign, pieces
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import Sessions, Unsent, WorkerSession
from stoker.domain.lot import Lot, lots_of
from stoker.domain.placement import WINDOW_US
from stoker.store.base import Grant, Granted
from stoker.wire.frames import PROTOCOL, Assign, Frame, Hello
from tests.support.clock import START_US
from tests.support.jobs import a_job


class Line:
    """A session whose frames are kept."""

    def __init__(self, lots: bool) -> None:
        self.frames: list[Assign] = []
        self.session = WorkerSession(Hello(PROTOCOL, "w1", "n", 4, ["echo"]), self._send)
        self.session.lots = lots

    def _send(self, frame: Frame) -> None:
        assert isinstance(frame, Assign)
        self.frames.append(frame)

    def assign(self, *lots: Lot, run_us: int | None = None) -> None:
        run_times = RunTimes()
        if run_us is not None:
            run_times.observe([("echo", [run_us])])
        assign(self.session, lots, run_times, START_US)


def a_lot(count: int, payload: bytes = b"1", **fields: object) -> Lot:
    first = a_job(status="running", claim_id=2, attempt=2, worker_id="w1", threads_granted=1, **fields)
    start = first.seq * 1_000
    (lot,) = lots_of(
        replace(first, seq=start + n, id=f"{first.id}-{n}", payload=payload + b" " * n, claimed_at=START_US)
        for n in range(count)
    )
    return lot


def test_a_lot_travels_as_one_and_is_held_as_one() -> None:
    line, lot = Line(lots=True), a_lot(3, timeout_sec=2.5)
    line.assign(lot, run_us=100)
    (frame,) = line.frames
    (sent,) = frame.lots
    assert (frame.jobs, frame.number, sent.ids, sent.payloads) == ([], 1, lot.ids, lot.payloads)
    assert (sent.like.id, sent.like.payload) == ("", b"")
    assert (sent.like.claim_id, sent.like.type, sent.like.timeout_sec) == (2, "echo", 2.5)
    assert [claim.seq for claim in line.session.claims] == list(lot.seqs)
    assert [claim.id for claim in line.session.claims] == lot.ids
    assert line.session.view().window_us == 4 * WINDOW_US - 300


def test_lots_that_are_alike_for_the_worker_travel_as_one() -> None:
    """When they were created is nothing to it."""
    line = Line(lots=True)
    one, other, third = a_lot(2), a_lot(1, created_at=START_US - 5), a_lot(1, name="another")
    line.assign(one, other, third)
    (frame,) = line.frames
    assert [lot.ids for lot in frame.lots] == [one.ids + other.ids, third.ids]
    assert (one.ids, other.ids) == (one.ids[:2], other.ids[:1])


def test_a_worker_that_does_not_read_lots_is_sent_jobs() -> None:
    line, lot = Line(lots=False), a_lot(3)
    line.assign(lot)
    (frame,) = line.frames
    assert frame.lots == []
    assert [(job.id, job.payload, job.claim_id) for job in frame.jobs] == [
        (id, payload, 2) for id, payload in zip(lot.ids, lot.payloads, strict=True)
    ]


def test_frames_are_not_too_large_and_what_they_carry_is_held_under_their_number() -> None:
    line, lot = Line(lots=True), a_lot(5, b"x" * (FRAME_BYTES // 2))
    line.assign(a_lot(1), lot)
    assert [frame.number for frame in line.frames] == list(range(1, len(line.frames) + 1))
    carried = [[id for lot in frame.lots for id in lot.ids] for frame in line.frames]
    assert [id for ids in carried for id in ids][1:] == lot.ids
    assert all(sum(map(len, lot.payloads)) <= FRAME_BYTES for frame in line.frames for lot in frame.lots)
    for frame, ids in zip(line.frames, carried, strict=True):
        assert {line.session.held[id].frame for id in ids} == {frame.number}
    line.assign(a_lot(1))
    assert line.frames[-1].number == len(line.frames)


def test_a_payload_that_is_larger_than_a_frame_travels_alone() -> None:
    lot = a_lot(3, b"x" * (FRAME_BYTES + 1))
    assert [part.ids for part, _ in pieces(lot)] == [[id] for id in lot.ids]


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_waits_for_a_connection_is_counted_until_it_was_written() -> None:
    line, lot = Line(lots=True), a_lot(3, b"x" * FRAME_BYTES)
    line.session.unsent = Unsent()
    line.assign(lot)
    view = line.session.view()
    assert view.unsent_bytes >= 3 * FRAME_BYTES
    waited = [line.session.unsent.written() for _ in line.frames]
    assert waited[0] == view.unsent_bytes
    assert line.session.view().unsent_bytes == 0


def test_what_a_worker_holds_is_counted_until_it_is_released() -> None:
    line, lot = Line(lots=True), a_lot(4, b"x" * 1000)
    line.assign(lot)
    assert 4_000 <= line.session.view().held_bytes <= 5_000
    line.session.release(lot.ids[0])
    line.session.release_many(lot.ids[1:], [2, 2, 2])
    assert line.session.view().held_bytes == 0


class OneClaim:
    """A store that has one claim to give."""

    def __init__(self, *grants: Grant, more: bool = False) -> None:
        self._granted = [Granted(list(grants), 0, more)]
        self.claims = 0

    def now_us(self) -> int:
        return START_US

    async def claim(self, request: object) -> Granted:
        self.claims += 1
        return self._granted.pop(0) if self._granted else Granted([], 0)


def dispatching(store: Any, *sessions: WorkerSession) -> Dispatch:
    known = Sessions()
    for session in sessions:
        known.add(session)
    return Dispatch(store, known, RunTimes(), "round_robin", lambda grants: None)


class Broke(WorkerSession):
    """A session for which memory runs out when the frame of this number is sent."""

    fails_at: int | None = 1

    def send_assign(self, frame: Assign, size: int) -> None:
        if frame.number == self.fails_at:
            raise MemoryError
        super().send_assign(frame, size)


@pytest.mark.parametrize("fails_at", [1, 2, 3])
async def test_what_could_not_be_sent_for_want_of_memory_is_sent_by_the_next_look_and_nothing_twice(
    fails_at: int,
) -> None:
    sent: list[Assign] = []
    broke = Broke(Hello(PROTOCOL, "w1", "n", 4, ["echo"]), sent.append)  # type: ignore[arg-type]
    broke.lots, broke.fails_at = True, fails_at
    other = Line(lots=True)
    other.session.id = "w2"
    lot, small = a_lot(3, b"x" * FRAME_BYTES), a_lot(1)
    store = OneClaim(Grant(lot, "w1"), Grant(small, "w2"))
    dispatch = dispatching(store, broke, other.session)
    with pytest.raises(MemoryError):
        await dispatch.once()
    assert [frame.number for frame in other.frames] == [1], "the others get theirs"
    assert list(broke.held) == lot.ids[: fails_at - 1], "what was not sent is not held"
    broke.fails_at = None
    await dispatch.once()
    assert [frame.number for frame in sent] == [1, 2, 3]
    assert [id for frame in sent for part in frame.lots for id in part.ids] == lot.ids
    assert list(broke.held) == lot.ids


async def test_a_claim_that_was_cut_by_its_bytes_is_followed_by_another_at_once() -> None:
    line = Line(lots=True)
    store = OneClaim(Grant(a_lot(1), "w1"), more=True)
    dispatch = dispatching(store, line.session)
    await dispatch.once()
    assert dispatch._wake.is_set()
