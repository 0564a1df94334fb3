"""The worker's threads, with children made of nothing but an inbox and a real shared state."""

import os
from collections import Counter, deque
from itertools import groupby
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.context import JobContext
from stoker.domain.retry import Kind
from stoker.executors.pipe import ChildBatch, OutcomeBatch, Ready, WorkOutcome
from stoker.executors.shared_state import SharedState
from stoker.settings import load
from stoker.wire.frames import Assignment, AssignmentBatch
from stoker.worker.child_pool import ChildPool
from stoker.worker.child_states import (
    COOPERATION_SECONDS,
    DEPTH,
    PATIENCE_SECONDS,
    STUCK_SECONDS,
    TELL_START_SECONDS,
    TIMEOUT_GRACE_SECONDS,
    crash_error,
)
from stoker.worker.routes import Executor
from stoker.worker.slot import BATCH_BYTES, SILENT_TICKS
from tests.support.clock import FakeClock

GRACE = 2.0
TICK = 0.05


class FakeChild:
    """A child that does one thing at a time, when told to; it reads and writes the shared state as a real one does."""

    has_lifespan = False

    def __init__(self, floor: "Floor") -> None:
        self._floor = floor
        self.shared_state, fd = SharedState.create()
        self._mine = SharedState(fd)
        os.close(fd)
        self.inbox: deque[JobContext] = deque()
        self.current: JobContext | None = None
        self._started = 0.0
        self.signals: list[str] = []
        self.ready = False
        self.ended = False
        self.returncode: int | None = None
        self.warm = True
        self.jobs_taken = 0
        self.pid = 0

    # What the supervisor does to it.

    def send(self, batches: list[ChildBatch]) -> None:
        assert self.ready, "work was sent to a child that is not ready"
        self.inbox += [job for batch in batches for job in batch.jobs()]

    def poll(self) -> None:
        pass

    def cancel(self, index: int) -> None:
        self.signals.append("CANCEL")
        self.shared_state.cancel(index)

    def terminate(self) -> None:
        self.signals.append("TERM")

    def kill(self) -> None:
        self.signals.append("KILL")

    def end(self) -> None:
        self.die(-9)

    # What it does itself.

    def boot(self) -> None:
        self.ready = True
        self._floor.threads.on_ready(self, Ready(["echo"]))  # type: ignore[arg-type]

    def start(self) -> str | None:
        """Take the next job that was not taken back; its id."""
        assert self.current is None
        while self.inbox:
            job = self.inbox.popleft()
            self._started = self._floor.clock.monotonic()
            if self._mine.start(job.index, self._started):
                self.current = job
                return job.id
            self._tell(job, "handed_back")
        return None

    def finish(self, kind: Kind = "completed") -> None:
        assert self.current is not None
        job, self.current = self.current, None
        self._mine.stop()
        self._tell(job, kind)

    def _tell(self, job: JobContext, kind: Kind) -> None:
        now = self._floor.clock.monotonic()
        result = WorkOutcome(job.index, kind, b"1" if kind == "completed" else None, None, self._started, now)
        self._floor.threads.on_results(self, OutcomeBatch.of(result))  # type: ignore[arg-type]

    def die(self, returncode: int = -11) -> None:
        self.ended, self.returncode = True, returncode
        self._floor.threads.on_exit(self)  # type: ignore[arg-type]
        self.shared_state.close()
        self._mine.close()


def batch(template: Assignment, *ids: str) -> AssignmentBatch:
    return AssignmentBatch(template, list(ids), [b"null"] * len(ids))


class Floor:
    """A worker's threads and everything around them."""

    def __init__(self, threads: int = 2, *, boot: bool = True) -> None:
        self.clock = FakeClock()
        self.children: list[FakeChild] = []
        self.ended: list[WorkOutcome] = []
        self._claims: Counter[str] = Counter()
        limits = load({}, {"worker_threads": threads, "cancel_grace_sec": GRACE})
        self.threads = ChildPool(
            limits,
            self._spawn,  # type: ignore[arg-type]  # children that only pretend
            executor_of=lambda _: "python",
            ended=self.ended.extend,
            now=self.clock.monotonic,
        )
        self.threads.open()
        if boot:
            for child in self.children:
                child.boot()

    def _spawn(self, executor: Executor, type: str) -> FakeChild:
        child = FakeChild(self)
        self.children.append(child)
        return child

    @property
    def alive(self) -> list[FakeChild]:
        return [child for child in self.children if not child.ended]

    def take(self, *ids: str, **fields: Any) -> None:
        self._claims.update(ids)
        batches = []
        for claim_id, alike in groupby(ids, self._claims.__getitem__):
            batches.append(batch(Assignment("", claim_id, "echo", b"", **fields), *alike))
        self.threads.take(batches)

    def cancel(self, id: str) -> None:
        self.threads.cancel(id, self._claims[id])

    def drop(self, id: str) -> None:
        self.threads.drop(id, self._claims[id])

    def tick(self, seconds: float = TICK) -> list[str]:
        """Time passes and the supervisor looks; the jobs whose start is worth telling."""
        self.clock.advance(seconds)
        return [work.id for work, _ in self.threads.tick()]

    def ends(self) -> list[tuple[str, Kind]]:
        return [(ended.id, ended.kind) for ended in self.ended]

    def run_all(self) -> None:
        """Every child works off what it has, and the supervisor looks, until nothing is left to do."""
        for _ in range(50):
            for child in self.alive:
                if child.signals:
                    child.die()
                    continue
                if not child.ready:
                    child.boot()
                if child.current is not None:
                    child.finish()
                while child.start() is not None:
                    child.finish()
            self.tick(0.001)


# ── taking work ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_there_is_a_warm_child_for_each_thread() -> None:
    assert len(Floor(3).children) == 3


def test_work_waits_for_a_child_that_is_ready() -> None:
    floor = Floor(1, boot=False)
    floor.take("a")
    assert not floor.children[0].inbox
    floor.children[0].boot()
    assert floor.children[0].start() == "a"


def test_work_goes_to_idle_children_first() -> None:
    floor = Floor(3)
    floor.take("a", "b", "c")
    assert sorted(child.start() or "" for child in floor.children) == ["a", "b", "c"]


def test_a_result_is_passed_on_with_its_times() -> None:
    floor = Floor(1)
    floor.take("a")
    child = floor.children[0]
    child.start()
    started = floor.clock.monotonic()
    floor.clock.advance(1)
    child.finish()
    (ended,) = floor.ended
    assert (ended.kind, ended.result, ended.started, ended.finished) == (
        "completed",
        b"1",
        started,
        started + 1,
    )
    assert floor.threads.works == {}
    assert floor.threads.used == 0


def test_short_jobs_are_queued_behind_short_ones() -> None:
    floor = Floor(1)
    floor.take("a", "b", "c")
    child = floor.children[0]
    assert [job.id for job in child.inbox] == ["a", "b", "c"]
    assert floor.threads.used == 1


def test_a_child_is_given_no_more_than_its_depth_and_more_when_it_runs_low() -> None:
    floor = Floor(1)
    floor.take(*[f"j{n}" for n in range(DEPTH + 10)])
    child = floor.children[0]
    assert len(child.inbox) == DEPTH
    for _ in range(DEPTH):
        child.start()
        child.finish()
    floor.run_all()
    assert len(floor.ended) == DEPTH + 10
    assert [ended.id for ended in floor.ended] == [f"j{n}" for n in range(DEPTH + 10)]


def test_nothing_is_queued_behind_a_job_that_turned_out_long() -> None:
    floor = Floor(1)
    floor.take("long")
    floor.children[0].start()
    floor.clock.advance(STUCK_SECONDS * 2)
    floor.take("next")
    assert not floor.children[0].inbox


def test_a_job_for_several_threads_takes_them_all() -> None:
    floor = Floor(3)
    floor.take("large", threads=2)
    floor.take("one", "two")
    started = [child.start() for child in floor.children]
    assert floor.threads.used == 3
    assert sorted(filter(None, started)) == ["large", "one"]


def test_a_job_for_several_threads_waits_until_they_are_free() -> None:
    floor = Floor(2)
    floor.take("small")
    floor.take("large", threads=2)
    child = next(child for child in floor.children if child.inbox)
    child.start()
    assert floor.threads.used == 1
    child.finish()
    assert floor.threads.used == 2


def test_nothing_is_queued_behind_a_job_for_several_threads() -> None:
    floor = Floor(2)
    floor.take("large", threads=2)
    floor.take("small")
    assert sum(len(child.inbox) for child in floor.children) == 1


def test_an_assignment_under_a_later_claim_voids_the_earlier_one() -> None:
    floor = Floor(2)
    floor.take("a")
    child = next(child for child in floor.children if child.inbox)
    child.start()
    floor.take("a")
    assert child.signals == ["TERM"]
    child.die()
    floor.run_all()
    assert [(e.claim_id, e.kind) for e in floor.ended] == [(2, "completed")]


def test_each_job_goes_to_the_child_that_has_the_least() -> None:
    floor = Floor(3)
    floor.take(*"abcdefg")
    assert [[job.id for job in child.inbox] for child in floor.children] == [
        ["a", "d", "g"],
        ["b", "e"],
        ["c", "f"],
    ]
    floor.children[2].start()
    floor.children[2].finish()
    floor.take(*"hijk")
    assert [[job.id for job in child.inbox] for child in floor.children] == [
        ["a", "d", "g", "k"],
        ["b", "e", "i"],
        ["f", "h", "j"],
    ]


def test_when_the_child_that_has_the_least_is_at_a_long_job_nobody_gets_more() -> None:
    """What comes first must not be overtaken, and that one is about to give back what it has."""
    floor = Floor(2)
    floor.take("long", "b", "c", "d")
    first, second = floor.children
    first.start()
    floor.clock.advance(STUCK_SECONDS * 2)
    floor.take("e")
    assert [len(child.inbox) for child in (first, second)] == [1, 2]


def test_a_batch_is_sent_as_one_with_its_own_ids_and_payloads() -> None:
    floor = Floor(1)
    sent: list[ChildBatch] = []
    floor.children[0].send = sent.extend  # type: ignore[method-assign,assignment]
    template = Assignment("", 1, "echo", b"", timeout_sec=3.0)
    floor.threads.take(
        [
            AssignmentBatch(template, ["a", "b"], [b"1", b"2"]),
            batch(template, "c"),
            batch(Assignment("", 2, "echo", b""), "d"),
        ]
    )
    assert [(batch.first, batch.ids, batch.payloads, batch.template.claim_id) for batch in sent] == [
        (0, ["a", "b", "c"], [b"1", b"2", b"null"], 1),
        (3, ["d"], [b"null"], 2),
    ]


def test_large_payloads_are_not_sent_in_one_piece() -> None:
    """A message to a child has a largest size, and a child that is told more ends, with all that it had."""
    floor = Floor(1)
    sent: list[ChildBatch] = []
    floor.children[0].send = sent.extend  # type: ignore[method-assign,assignment]
    sizes = [BATCH_BYTES // 2, BATCH_BYTES // 2, 1, 3 * BATCH_BYTES, 1, 1]
    template = Assignment("", 1, "echo", b"")
    floor.threads.take([AssignmentBatch(template, list("abcdef"), [b"x" * size for size in sizes])])
    assert [(batch.first, "".join(batch.ids)) for batch in sent] == [(0, "ab"), (2, "c"), (3, "d"), (4, "ef")]
    assert [len(payload) for batch in sent for payload in batch.payloads] == sizes


def test_a_job_for_several_threads_in_the_middle_is_not_overtaken() -> None:
    floor = Floor(2)
    template = Assignment("", 1, "echo", b"")
    floor.threads.take(
        [
            batch(template, "a"),
            batch(msgspec.structs.replace(template, threads=2), "large"),
            batch(template, "b", "c"),
        ]
    )
    assert [[job.id for job in child.inbox] for child in floor.children] == [["a"], []]
    floor.run_all()
    assert floor.ends() == [
        ("a", "completed"),
        ("large", "completed"),
        ("b", "completed"),
        ("c", "completed"),
    ]


def test_a_job_that_is_named_twice_in_a_batch_runs_once() -> None:
    floor = Floor(1)
    floor.take("a", "b")
    floor.threads.kill_all()
    floor.threads.take([batch(Assignment("", 5, "echo", b""), "x", "y", "x")])
    for child in floor.alive:
        child.die(-9)
    floor.run_all()
    assert sorted(floor.ends()) == [("x", "completed"), ("y", "completed")]


def test_results_in_columns_count_only_for_what_is_still_held() -> None:
    floor = Floor(1)
    floor.take(*"abcd")
    child = floor.children[0]
    child.start()
    floor.drop("c")
    jobs = [job for job in (child.current, *child.inbox) if job is not None]
    results = [
        WorkOutcome(job.index, "completed", job.id.encode(), None, 1.0, 2.0, n) for n, job in enumerate(jobs)
    ]
    floor.threads.on_results(child, OutcomeBatch.of(*results))  # type: ignore[arg-type]
    assert [(e.id, e.result, e.cpu_us) for e in floor.ended] == [
        ("a", b"a", 0),
        ("b", b"b", 1),
        ("d", b"d", 3),
    ]
    assert floor.threads.works == {}


def test_what_a_child_declines_keeps_its_order() -> None:
    floor = Floor(1)
    floor.take(*"abcd")
    child = floor.children[0]
    child.start()
    floor.tick(STUCK_SECONDS * 2)
    results = [WorkOutcome(job.index, "handed_back", None, None, 1.0, 1.0) for job in child.inbox]
    child.inbox.clear()
    child.finish()
    floor.threads.on_results(child, OutcomeBatch.of(*results))  # type: ignore[arg-type]
    floor.tick(0.001)
    assert [job.id for job in child.inbox] == ["b", "c", "d"]


# ── starts and timeouts ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_start_of_a_job_is_told_once_and_only_if_it_is_not_over_at_once() -> None:
    floor = Floor(1)
    floor.take("a")
    floor.children[0].start()
    assert floor.tick(TELL_START_SECONDS / 2) == []
    assert floor.tick(TELL_START_SECONDS) == ["a"]
    assert floor.tick() == []


def test_a_job_that_overruns_its_timeout_is_asked_to_end_and_then_killed() -> None:
    floor = Floor(1)
    floor.take("a", timeout_sec=1.0)
    child = floor.children[0]
    child.start()
    floor.tick(0.99)
    assert child.signals == []
    floor.tick(0.01)
    assert child.signals == ["TERM"]
    floor.tick(TIMEOUT_GRACE_SECONDS)
    assert child.signals == ["TERM", "KILL"]
    child.die(-9)
    (ended,) = floor.ended
    assert (ended.kind, ended.started is not None) == ("timeout", True)
    assert msgspec.json.decode(ended.error or b"")["timeout_sec"] == 1.0


def test_the_timeout_counts_from_the_real_start() -> None:
    floor = Floor(1)
    floor.take("first", "second", timeout_sec=0.2)
    child = floor.children[0]
    child.start()
    floor.clock.advance(0.02)
    child.finish()
    floor.clock.advance(0.15)
    child.start()
    floor.tick(0.1)
    assert child.signals == []


def test_a_job_that_ends_by_itself_at_its_timeout_is_reported_once() -> None:
    floor = Floor(1)
    floor.take("a", timeout_sec=1.0)
    child = floor.children[0]
    child.start()
    floor.tick(1.0)
    child.finish()
    child.die(143)
    assert floor.ends() == [("a", "completed")]


def test_a_job_without_a_timeout_runs_as_long_as_it_likes() -> None:
    floor = Floor(1)
    floor.take("a")
    floor.children[0].start()
    floor.tick(86_400)
    assert floor.children[0].signals == []


# ── taking back and handing back ───────────────────────────────────────────────────────────────────────────────────


def test_what_stands_behind_a_long_job_goes_to_another_child() -> None:
    floor = Floor(2)
    floor.take("a", "b", "c", "d")
    first, second = floor.children
    assert first.start() == "a"
    assert second.start() == "b"
    second.finish()
    assert second.start() == "d"
    second.finish()
    floor.tick()
    floor.tick()
    assert second.start() == "c"
    second.finish()
    first.finish()
    assert first.start() is None
    assert sorted(floor.ends()) == [(id, "completed") for id in "abcd"]


def test_a_long_job_that_ends_before_it_is_looked_at_again_loses_nobody() -> None:
    """The child passes over what is being taken back; each of those must still run, and once."""
    floor = Floor(1)
    floor.take("a", "b", "c")
    child = floor.children[0]
    child.start()
    floor.tick()
    child.finish()
    assert child.start() is None
    floor.tick()
    floor.run_all()
    assert sorted(floor.ends()) == [(id, "completed") for id in "abc"]


def test_work_that_no_child_can_start_in_time_is_handed_back() -> None:
    floor = Floor(1)
    floor.take("long", "waits")
    child = floor.children[0]
    child.start()
    floor.tick(PATIENCE_SECONDS)
    floor.tick()
    floor.tick()
    assert floor.ends() == [("waits", "handed_back")]
    child.finish()
    assert child.start() is None
    assert floor.ends() == [("waits", "handed_back"), ("long", "completed")]


def test_work_that_waits_for_children_to_boot_is_not_handed_back_at_once() -> None:
    floor = Floor(1, boot=False)
    floor.take("a")
    floor.tick(1.0)
    assert floor.ended == []


def test_work_is_handed_back_when_no_child_comes_up_for_a_long_time() -> None:
    """Else it is held for ever by a worker that can never run it, and nobody else may."""
    floor = Floor(1, boot=False)
    floor.take("a")
    for _ in range(20):
        for child in floor.alive:
            child.die(1)
        floor.tick(6.0)
    assert floor.ends() == [("a", "handed_back")]


def test_a_worker_that_leaves_hands_back_what_has_not_started() -> None:
    floor = Floor(1)
    floor.take("runs", "piped")
    child = floor.children[0]
    child.start()
    floor.take("more", threads=2)
    floor.threads.hand_back_waiting("leaving")
    assert ("more", "handed_back") in floor.ends()
    floor.tick()
    floor.threads.hand_back_waiting("leaving")
    child.finish()
    assert set(floor.ends()) == {
        ("more", "handed_back"),
        ("piped", "handed_back"),
        ("runs", "completed"),
    }


def test_a_thread_is_free_again_after_its_work_was_taken_back() -> None:
    floor = Floor(1)
    floor.take("a")
    floor.cancel("a")
    floor.tick()
    assert floor.ends() == [("a", "cancelled")]
    floor.take("b")
    floor.run_all()
    assert floor.ends() == [("a", "cancelled"), ("b", "completed")]
    assert floor.threads.used == 0


# ── cancelling and dropping ────────────────────────────────────────────────────────────────────────────────────────


def test_work_that_waits_is_cancelled_at_once() -> None:
    floor = Floor(1, boot=False)
    floor.take("a", "b")
    floor.cancel("a")
    assert floor.ends() == [("a", "cancelled")]
    floor.run_all()
    assert floor.ends() == [("a", "cancelled"), ("b", "completed")]


def test_cancelling_piped_work_ends_it_and_nothing_else() -> None:
    floor = Floor(1)
    floor.take("a", "b", "c")
    child = floor.children[0]
    child.start()
    floor.cancel("b")
    floor.tick(0.01)
    child.finish()
    floor.run_all()
    assert sorted(floor.ends()) == [("a", "completed"), ("b", "cancelled"), ("c", "completed")]
    assert child.signals == []


def test_cancelling_piped_work_that_the_child_reaches_first_loses_nobody() -> None:
    floor = Floor(1)
    floor.take("a", "b", "c")
    child = floor.children[0]
    child.start()
    floor.cancel("b")
    child.finish()
    child.start()
    floor.run_all()
    assert sorted(floor.ends()) == [("a", "completed"), ("b", "cancelled"), ("c", "completed")]


def test_cancelling_running_work_says_a_word_then_asks_then_kills() -> None:
    floor = Floor(1)
    floor.take("a")
    child = floor.children[0]
    child.start()
    floor.cancel("a")
    assert child.signals == ["CANCEL"]
    floor.tick(COOPERATION_SECONDS)
    assert child.signals == ["CANCEL", "TERM"]
    floor.tick(GRACE - 0.1)
    assert child.signals == ["CANCEL", "TERM"]
    floor.tick(0.1)
    assert child.signals == ["CANCEL", "TERM", "KILL"]
    child.die(-9)
    assert floor.ends() == [("a", "cancelled")]


def test_a_job_that_notices_its_cancel_ends_as_cancelled_and_its_child_lives_on() -> None:
    floor = Floor(1)
    floor.take("a")
    child = floor.children[0]
    child.start()
    floor.cancel("a")
    child.finish("cancelled")
    floor.tick(COOPERATION_SECONDS + GRACE + 1)
    assert child.signals == ["CANCEL"]
    floor.take("b")
    floor.run_all()
    assert floor.ends() == [("a", "cancelled"), ("b", "completed")]


def test_a_job_that_was_done_before_it_noticed_its_cancel_is_completed() -> None:
    floor = Floor(1)
    floor.take("a")
    child = floor.children[0]
    child.start()
    floor.cancel("a")
    child.finish()
    assert floor.ends() == [("a", "completed")]


def test_cancelling_twice_or_under_another_claim_does_nothing_more() -> None:
    floor = Floor(1)
    floor.take("a")
    child = floor.children[0]
    child.start()
    floor.threads.cancel("a", 99)
    floor.threads.cancel("unknown", 1)
    assert child.signals == []
    floor.cancel("a")
    floor.cancel("a")
    assert child.signals == ["CANCEL"]


def test_the_neighbours_of_cancelled_work_run_elsewhere_uncharged() -> None:
    floor = Floor(1)
    floor.take("a", "b")
    child = floor.children[0]
    child.start()
    floor.cancel("a")
    child.die(143)
    assert floor.ends() == [("a", "cancelled")]
    floor.run_all()
    assert floor.ends() == [("a", "cancelled"), ("b", "completed")]


@pytest.mark.parametrize("where", ["waiting", "piped", "running"])
def test_dropped_work_ends_without_a_word(where: str) -> None:
    floor = Floor(1, boot=where != "waiting")
    ids = ("a", "b") if where != "piped" else ("b", "a")
    floor.take(*ids)
    child = floor.children[0]
    if where != "waiting":
        child.start()
    floor.drop("a")
    assert "a" not in floor.threads.works
    if where == "running":
        assert child.signals == ["TERM"]
        child.die(143)
    floor.run_all()
    assert floor.ends() == [("b", "completed")]


def test_dropping_under_another_claim_does_nothing() -> None:
    floor = Floor(1)
    floor.take("a")
    floor.threads.drop("a", 99)
    floor.run_all()
    assert floor.ends() == [("a", "completed")]


# ── children that die ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crash_is_charged_to_the_job_that_ran_and_to_nobody_else() -> None:
    floor = Floor(1)
    floor.take("a", "b", "c")
    child = floor.children[0]
    child.start()
    child.die(-11)
    (ended,) = floor.ended
    assert (ended.id, ended.kind) == ("a", "crash")
    assert msgspec.json.decode(ended.error or b"")["signal"] == 11
    floor.run_all()
    assert floor.ends() == [("a", "crash"), ("b", "completed"), ("c", "completed")]


def test_a_child_that_dies_between_jobs_charges_nobody() -> None:
    floor = Floor(1)
    floor.take("a", "b")
    child = floor.children[0]
    child.start()
    child.finish()
    child.die(1)
    floor.run_all()
    assert floor.ends() == [("a", "completed"), ("b", "completed")]


def test_a_dead_child_is_replaced() -> None:
    floor = Floor(2)
    floor.children[0].die()
    assert len(floor.alive) == 2


def test_a_child_that_cannot_start_is_started_again_ever_more_slowly() -> None:
    floor = Floor(1, boot=False)
    gaps: list[float] = []
    for _ in range(8):
        floor.alive[0].die(1)
        before = floor.clock.monotonic()
        while not floor.alive:
            floor.tick()
        gaps.append(floor.clock.monotonic() - before)
    assert gaps == sorted(gaps)
    assert gaps[0] > 0
    assert 4.9 <= gaps[-1] <= 5.1


def test_crashes_are_described() -> None:
    assert msgspec.json.decode(crash_error(-9))["signal"] == 9
    assert msgspec.json.decode(crash_error(3))["exit_code"] == 3


# ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_when_the_lease_is_over_everything_is_killed_and_nothing_reported() -> None:
    floor = Floor(2)
    floor.take("a", "b", "c")
    floor.take("large", threads=2)
    for child in floor.children:
        child.start()
    floor.threads.kill_all()
    assert [child.signals for child in floor.children] == [["KILL"], ["KILL"]]
    assert floor.threads.works == {}
    for child in floor.alive:
        child.die(-9)
    floor.run_all()
    assert floor.ended == []
    floor.take("new")
    floor.run_all()
    assert floor.ends() == [("new", "completed")]


def test_when_the_grace_period_is_over_what_runs_is_handed_back() -> None:
    floor = Floor(1)
    floor.take("a")
    child = floor.children[0]
    child.start()
    floor.threads.end_running("leaving")
    assert child.signals == ["TERM"]
    child.die(143)
    assert floor.ends() == [("a", "handed_back")]


def test_closing_ends_all_children_and_starts_none() -> None:
    floor = Floor(2)
    floor.threads.close()
    assert floor.alive == []
    floor.tick()
    assert floor.alive == []


# ── anything ───────────────────────────────────────────────────────────────────────────────────────────────────────

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("start"), st.integers(0, 2)),
        st.tuples(st.just("finish"), st.integers(0, 2)),
        st.tuples(st.just("die"), st.integers(0, 2)),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("drop"), st.integers(0, 20)),
        st.tuples(st.just("tick"), st.sampled_from([0, 1, 6])),
    ),
    max_size=40,
)


def _step(floor: Floor, name: str, value: int, taken: list[str]) -> set[str]:
    """Do one thing if it is possible; the jobs that were dropped by it."""
    child = floor.alive[value % len(floor.alive)] if floor.alive else None
    if name == "take":
        taken.append(f"j{len(taken)}")
        floor.take(taken[-1], threads=min(value, 2))
    elif name == "tick":
        floor.tick(value * TICK)
    elif name in ("cancel", "drop") and taken:
        id = taken[value % len(taken)]
        known = id in floor.threads.works
        getattr(floor, name)(id)
        return {id} if known and name == "drop" else set()
    elif child is not None and name == "start" and child.ready and child.current is None:
        child.start()
    elif child is not None and name == "finish" and child.current is not None:
        child.finish()
    elif child is not None and name == "die":
        child.die()
    for fresh in floor.alive:
        if not fresh.ready:
            fresh.boot()
    return set()


@settings(max_examples=300)
@given(STEPS)
def test_whatever_happens_no_work_is_lost_and_no_thread_is_used_twice(steps: list[tuple[str, int]]) -> None:
    floor = Floor(2)
    taken: list[str] = []
    dropped: set[str] = set()
    for name, value in steps:
        dropped |= _step(floor, name, value, taken)
        running = [child.current for child in floor.alive if child.current is not None]
        assert sum(job.threads for job in running) <= 2
        assert floor.threads.used <= 2
    floor.run_all()
    reported = Counter(id for id, _ in floor.ends())
    assert set(reported.values()) <= {1}
    assert set(reported) == set(taken) - dropped
    assert floor.threads.works == {}
    assert floor.threads.used == 0


def test_a_child_that_the_system_refuses_to_start_costs_nobody_anything() -> None:
    floor = Floor(1)
    spawn, floor.threads._spawn = floor.threads._spawn, _refused
    floor.children[0].die(1)
    floor.take("a")
    floor.tick()
    assert floor.ends() == []
    floor.threads._spawn = spawn
    floor.tick(6.0)
    floor.alive[0].boot()
    floor.run_all()
    assert floor.ends() == [("a", "completed")]


def _refused(executor: Executor, type: str) -> Any:
    raise OSError("no more processes")


# ── children that lost their jobs ──────────────────────────────────────────────────────────────────────────────────


def test_a_child_that_has_jobs_and_runs_none_is_replaced_and_they_run_elsewhere() -> None:
    floor = Floor(1)
    floor.take("a", "b")
    silent = floor.children[0]
    silent.inbox.clear()  # a task read them from the pipe
    for _ in range(SILENT_TICKS - 1):
        floor.tick(0.001)
    assert silent.signals == []
    floor.tick()
    assert silent.signals == ["KILL"]
    silent.die(-9)
    floor.run_all()
    assert floor.ends() == [("a", "completed"), ("b", "completed")]


def test_a_child_that_runs_a_job_or_has_none_may_be_silent() -> None:
    floor = Floor(2)
    floor.take("a")
    floor.children[0].start()
    for _ in range(SILENT_TICKS * 2):
        floor.tick(0.001)
    assert [child.signals for child in floor.children] == [[], []]
