"""Jobs that were claimed, on their way to a worker: in which frames, and what the session holds then."""

from typing import Any

import pytest
from msgspec.structs import replace

from stoker.coordinator.dispatch import FRAME_BYTES, Dispatch, assign, pieces
from stoker.coordinator.observers import Observers
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import Sessions, Unsent, WorkerSession
from stoker.domain.job_batch import JobBatch, batches_of
from stoker.domain.placement import PREFETCH_US, Placed
from stoker.store.claims import Granted
from stoker.wire.frames import PROTOCOL, Assign, Frame, Hello
from tests.support.clock import START_US
from tests.support.dispatching import dispatch_once
from tests.support.jobs import a_job


class Line:
    """A session whose frames are kept."""

    def __init__(self, batches: bool) -> None:
        self.frames: list[Assign] = []
        self.session = WorkerSession(Hello(PROTOCOL, "w1", "n", 4, ["echo"]), self._send)
        self.session.batches = batches

    def _send(self, frame: Frame) -> None:
        assert isinstance(frame, Assign)
        self.frames.append(frame)

    def assign(self, *batches: JobBatch, run_us: int | None = None) -> None:
        run_times = RunTimes()
        if run_us is not None:
            run_times.observe([("echo", [run_us])])
        assign(self.session, batches, run_times, START_US)


def a_batch(count: int, payload: bytes = b"1", **fields: object) -> JobBatch:
    first = a_job(status="running", claim_id=2, attempt=2, worker_id="w1", threads_granted=1, **fields)
    start = first.seq * 1_000
    (batch,) = batches_of(
        replace(first, seq=start + n, id=f"{first.id}-{n}", payload=payload + b" " * n, claimed_at=START_US)
        for n in range(count)
    )
    return batch


def test_a_batch_travels_as_one_and_is_held_as_one() -> None:
    line, batch = Line(batches=True), a_batch(3, timeout_sec=2.5)
    line.assign(batch, run_us=100)
    (frame,) = line.frames
    (sent,) = frame.batches
    assert (frame.jobs, frame.number, sent.ids, sent.payloads) == ([], 1, batch.ids, batch.payloads)
    assert (sent.template.id, sent.template.payload) == ("", b"")
    assert (sent.template.claim_id, sent.template.type, sent.template.timeout_sec) == (2, "echo", 2.5)
    assert [claim.seq for claim in line.session.claims] == list(batch.seqs)
    assert [claim.id for claim in line.session.claims] == batch.ids
    assert line.session.view().prefetch_us == 4 * PREFETCH_US - 300


def test_batches_that_are_alike_for_the_worker_travel_as_one() -> None:
    """When they were created is nothing to it."""
    line = Line(batches=True)
    one, other, third = a_batch(2), a_batch(1, created_at=START_US - 5), a_batch(1, name="another")
    line.assign(one, other, third)
    (frame,) = line.frames
    assert [batch.ids for batch in frame.batches] == [one.ids + other.ids, third.ids]
    assert (one.ids, other.ids) == (one.ids[:2], other.ids[:1])


def test_a_worker_that_does_not_read_batches_is_sent_jobs() -> None:
    line, batch = Line(batches=False), a_batch(3)
    line.assign(batch)
    (frame,) = line.frames
    assert frame.batches == []
    assert [(job.id, job.payload, job.claim_id) for job in frame.jobs] == [
        (id, payload, 2) for id, payload in zip(batch.ids, batch.payloads, strict=True)
    ]


def test_frames_are_not_too_large_and_what_they_carry_is_held_under_their_number() -> None:
    line, batch = Line(batches=True), a_batch(5, b"x" * (FRAME_BYTES // 2))
    line.assign(a_batch(1), batch)
    assert [frame.number for frame in line.frames] == list(range(1, len(line.frames) + 1))
    carried = [[id for batch in frame.batches for id in batch.ids] for frame in line.frames]
    assert [id for ids in carried for id in ids][1:] == batch.ids
    assert all(
        sum(map(len, batch.payloads)) <= FRAME_BYTES for frame in line.frames for batch in frame.batches
    )
    for frame, ids in zip(line.frames, carried, strict=True):
        assert {line.session.held[id].frame for id in ids} == {frame.number}
    line.assign(a_batch(1))
    assert line.frames[-1].number == len(line.frames)


def test_a_payload_that_is_larger_than_a_frame_travels_alone() -> None:
    batch = a_batch(3, b"x" * (FRAME_BYTES + 1))
    assert [part.ids for part, _ in pieces(batch)] == [[id] for id in batch.ids]


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_waits_for_a_connection_is_counted_until_it_was_written() -> None:
    line, batch = Line(batches=True), a_batch(3, b"x" * FRAME_BYTES)
    line.session.unsent = Unsent()
    line.assign(batch)
    view = line.session.view()
    assert view.unsent_bytes >= 3 * FRAME_BYTES
    waited = [line.session.unsent.written() for _ in line.frames]
    assert waited[0] == view.unsent_bytes
    assert line.session.view().unsent_bytes == 0


def test_what_a_worker_holds_is_counted_until_it_is_released() -> None:
    line, batch = Line(batches=True), a_batch(4, b"x" * 1000)
    line.assign(batch)
    assert 4_000 <= line.session.view().held_bytes <= 5_000
    line.session.release(batch.ids[0])
    line.session.release_many(batch.ids[1:], [2, 2, 2])
    assert line.session.view().held_bytes == 0


class OneClaim:
    """A store that has one claim to give."""

    def __init__(self, *grants: Placed, more: bool = False) -> None:
        self._granted = [Granted(list(grants), 0, more)]
        self.claims = 0
        self.wakes = 0

    def now_us(self) -> int:
        return START_US

    def claim_soon(self) -> None:
        self.wakes += 1

    async def claim(self, request: object) -> Granted:
        self.claims += 1
        return self._granted.pop(0) if self._granted else Granted([], 0)


def dispatching(store: Any, *sessions: WorkerSession) -> Dispatch:
    known = Sessions()
    for session in sessions:
        known.add(session)
    return Dispatch(store, known, RunTimes(), "round_robin", Observers())


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
    broke.batches, broke.fails_at = True, fails_at
    other = Line(batches=True)
    other.session.id = "w2"
    batch, small = a_batch(3, b"x" * FRAME_BYTES), a_batch(1)
    store: Any = OneClaim(Placed(batch, "w1", 1), Placed(small, "w2", 1))
    dispatch = dispatching(store, broke, other.session)
    await dispatch_once(dispatch, store)
    dispatch.wake()
    assert dispatch.request() is None, "after a failure it rests until the timer's turn"
    assert [frame.number for frame in other.frames] == [1], "the others get theirs"
    assert list(broke.held) == batch.ids[: fails_at - 1], "what was not sent is not held"
    broke.fails_at = None
    await dispatch_once(dispatch, store)
    assert [frame.number for frame in sent] == [1, 2, 3]
    assert [id for frame in sent for part in frame.batches for id in part.ids] == batch.ids
    assert list(broke.held) == batch.ids


async def test_a_claim_that_was_cut_by_its_bytes_is_followed_by_another_at_once() -> None:
    line = Line(batches=True)
    store: Any = OneClaim(Placed(a_batch(1), "w1", 1), more=True)
    dispatch = dispatching(store, line.session)
    await dispatch_once(dispatch, store)
    assert store.wakes == 2, "the timer's, and one more"
