"""A state machine drives each store beside a plain-Python model of it; at every step the two must agree.

The model knows nothing of SQL, lanes or rounds: a job is a few fields in a dict. Hypothesis picks the steps, with
right and stale claims mixed, and when the two disagree it shrinks the story to the shortest one that still shows it.
"""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stoker.clock import SECOND
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import CRASH_LIMIT, Kind, claim_of
from stoker.store.base import Renewal, Store
from tests.conformance.steps import SILENT, STEADY, a_job, a_request, a_session, a_worker, end, submit
from tests.conformance.stores import STORES, StoreKind, books_balance, fast_folder
from tests.support.clock import FakeClock

T = TypeVar("T")
WORKERS = ("w1", "w2")
KINDS: tuple[Kind, ...] = ("completed", "error", "timeout", "crash", "invalid", "handed_back", "cancelled")


@dataclass
class Model:
    """What a job should be, and its history."""

    max_attempts: int
    rank: int
    order: int
    status: Status
    run_at: int
    claim_id: int = 0
    attempt: int = 0
    crashes: int = 0
    worker: str | None = None
    cancel: bool = False
    starts: int = 0
    hand_backs: int = 0
    claims: list[Job] = field(default_factory=list)

    def claimed(self, job: Job) -> None:
        assert self.status == "queued"
        assert job.claim_id > self.claim_id, "claim numbers only grow"
        self.status, self.worker = "running", job.worker_id
        self.claim_id, self.attempt = job.claim_id, self.attempt + 1
        self.starts += 1
        self.claims.append(job)

    def ended(self, kind: Kind, now: int) -> Status:
        """The rules of charging, told once more in the plainest way."""
        self.worker = None
        if kind == "handed_back":
            self.attempt -= 1
            self.hand_backs += 1
        if kind == "crash":
            self.crashes += 1
        if kind == "completed":
            self.status = "completed"
        elif self.cancel or kind == "cancelled":
            self.status = "cancelled"
        elif kind == "handed_back":
            self.status = "queued"
        elif (
            kind == "invalid"
            or self.attempt >= self.max_attempts
            or (kind == "crash" and self.crashes >= CRASH_LIMIT)
        ):
            self.status = "failed"
        elif kind == "lost":
            self.status, self.run_at = "queued", now
        else:
            self.status, self.run_at = "scheduled", now + 2**self.attempt * SECOND
        return self.status

    def replayed(self, now: int) -> None:
        if self.status == "scheduled":
            self.status, self.run_at = "queued", now
        elif self.status in ("failed", "cancelled"):
            self.status, self.run_at = "queued", now
            self.attempt = self.crashes = self.starts = self.hand_backs = 0
            self.cancel = False


class StoreMachine(RuleBasedStateMachine):
    kind: StoreKind
    met: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._place = Path(tempfile.mkdtemp(prefix="stoker-model-", dir=fast_folder()))
        self.clock = FakeClock()
        self.store: Store = self._run(self._open())
        self.other: Store = self.store if self.kind.exclusive else self._run(self._open())
        self.jobs: dict[str, Model] = {}
        self.seen: dict[str, int] = {}
        self.answers: dict[tuple[str, int], Status | None] = {}

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    async def _open(self) -> Store:
        return await self.kind.open(self._place, self.clock)

    def teardown(self) -> None:
        for store in {id(store): store for store in (self.store, self.other)}.values():
            self._run(store.close())
        self._runner.close()
        shutil.rmtree(self._place)

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @initialize()
    def workers_arrive(self) -> None:
        for id in WORKERS:
            assert self._run(self.store.open_session(a_session(self.store, id)))
            self.seen[id] = self.clock.now_us()
        # Most stories begin in the middle: with something to run, something running and something to wait for.
        self.submits([(0, 3, 0), (1, 2, 0), (1, 1, 0), (2, 3, 5)])
        self.claims("w1", 2)

    @rule(
        specs=st.lists(
            st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from([0, 0, 0, 5])),
            min_size=1,
            max_size=4,
        )
    )
    def submits(self, specs: list[tuple[int, int, int]]) -> None:
        jobs = [
            a_job(self.store, priority=priority, max_attempts=attempts, delay_us=delay * SECOND)
            for priority, attempts, delay in specs
        ]
        for job in self._run(submit(self.store, *jobs)):
            self.jobs[job.id] = Model(job.max_attempts, job.rank, job.seq, job.status, job.run_at)

    @rule(worker=st.sampled_from(WORKERS), threads=st.integers(1, 3))
    def claims(self, worker: str, threads: int) -> None:
        self.store.look_again()  # as coordinators do when another one says that it queued something
        granted = self._run(self.store.claim(a_request(a_worker(worker, threads=threads))))
        queued = sorted(
            (model.rank, model.order, id) for id, model in self.jobs.items() if model.status == "queued"
        )
        assert [grant.job.id for grant in granted.grants] == [id for *_, id in queued[:threads]]
        for grant in granted.grants:
            self.jobs[grant.job.id].claimed(grant.job)

    @precondition(lambda self: self._running())
    @rule(data=st.data(), kind=st.sampled_from(KINDS))
    def reports(self, data: st.DataObject, kind: Kind) -> None:
        self._report(data.draw(st.sampled_from(self._running())), kind)

    @precondition(lambda self: self._running())
    @rule(data=st.data(), kind=st.sampled_from(KINDS))
    def is_claimed_by_another_and_the_old_attempt_reports(self, data: st.DataObject, kind: Kind) -> None:
        """The race that the fence is for, often enough to be met in every run."""
        old = data.draw(st.sampled_from(self._running()))
        self._report(old, "handed_back")
        self.claims("w2", 100)
        self._report(old, kind)

    @precondition(lambda self: self._stale())
    @rule(data=st.data(), kind=st.sampled_from(KINDS))
    def reports_too_late(self, data: st.DataObject, kind: Kind) -> None:
        """An attempt whose time is over reports all the same."""
        self._report(data.draw(st.sampled_from(self._stale())), kind)

    def _running(self) -> list[Job]:
        return [model.claims[-1] for model in self.jobs.values() if model.status == "running"]

    def _stale(self) -> list[Job]:
        running = {(job.id, job.claim_id) for job in self._running()}
        every = [job for model in self.jobs.values() for job in model.claims]
        return [job for job in every if (job.id, job.claim_id) not in running]

    def _report(self, job: Job, kind: Kind) -> None:
        model = self.jobs[job.id]
        current = model.status == "running" and model.claim_id == job.claim_id
        if model.status == "running" and not current:
            self.met["completed too late" if kind == "completed" else "failed too late"] += 1
        before = self._run(self.store.get([job.id]))
        answer = self._run(end(self.store, job, kind))
        if current:
            assert answer == model.ended(kind, self.clock.now_us())
            # Sent again, it gets the same answer and changes nothing; `agree` sees to the second half.
            assert self._run(end(self.store, job, kind)) == answer
            self.answers[job.id, job.claim_id] = answer
        else:
            assert answer in (None, model.status, self.answers.get((job.id, job.claim_id)))
            assert self._run(self.store.get([job.id])) == before

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancels(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.jobs)))
        self._run(self.store.cancel([id]))
        model = self.jobs[id]
        if model.status == "running":
            model.cancel = True
            self.met["cancelled while running"] += 1
        elif model.status not in FINAL:
            model.status = "cancelled"

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def replays(self, data: st.DataObject) -> None:
        over = [id for id, model in self.jobs.items() if model.status in ("failed", "cancelled", "scheduled")]
        id = data.draw(st.sampled_from(sorted(over or self.jobs)))
        self._run(self.store.replay([id]))
        self.met["replayed"] += self.jobs[id].status in ("failed", "cancelled")
        self.jobs[id].replayed(self.clock.now_us())

    @rule(seconds=st.sampled_from([1, 4, 11]), heard=st.sets(st.sampled_from(WORKERS)))
    def time_passes(self, seconds: int, heard: set[str]) -> None:
        self.clock.advance(seconds)
        for worker in sorted(heard):
            (status,) = self._run(self.store.renew([Renewal(worker, 1)]))
            assert (status is not None) == (worker in self.seen)
            if status is not None:
                self.seen[worker] = self.clock.now_us()

    @rule(worker=st.sampled_from(WORKERS))
    def falls_silent(self, worker: str) -> None:
        """One worker is not heard of for longer than the timeout, while the other is."""
        self.time_passes(11, set(WORKERS) - {worker})
        self.expires()

    @rule(limit=st.integers(1, 3))
    def promotes(self, limit: int) -> None:
        now = self.clock.now_us()
        due = sorted(
            (model.run_at, model.order, id)
            for id, model in self.jobs.items()
            if model.status == "scheduled" and model.run_at <= now
        )
        assert self._run(self.store.promote(limit)) == len(due[:limit])
        for *_, id in due[:limit]:
            self.jobs[id].status = "queued"

    @rule()
    def expires(self) -> None:
        now = self.clock.now_us()
        expired = self._run(self.store.expire(self.store.now_us() - SILENT, STEADY))
        silent = {id for id, heard in self.seen.items() if now - heard > SILENT}
        assert set(expired.sessions) == silent
        for id in silent:
            del self.seen[id]
        lost = {
            id: model
            for id, model in self.jobs.items()
            if model.status == "running" and model.worker not in self.seen
        }
        assert {loss.claim.id for loss in expired.losses} == set(lost)
        self.met["lost"] += len(lost)
        for loss in expired.losses:
            assert loss.status == lost[loss.claim.id].ended("lost", now)

    @rule()
    def goes_on_at_another_coordinator(self) -> None:
        """Where a store has many owners, each believes what it remembers, and must notice what the others did."""
        self.store, self.other = self.other, self.store

    @rule()
    def restarts(self) -> None:
        alone = self.other is self.store
        self._run(self.store.close())
        self.store = self._run(self._open())
        self.other = self.store if alone else self.other

    # ── what must hold after every step ────────────────────────────────────────────────────────────────────────────

    @invariant()
    def agree(self) -> None:
        ids = sorted(self.jobs)
        for id, job in zip(ids, self._run(self.store.get(ids)), strict=True):
            model = self.jobs[id]
            assert job is not None, "acknowledged, but not stored"
            assert (job.status, job.claim_id, job.attempt, job.crashes) == (
                model.status,
                model.claim_id,
                model.attempt,
                model.crashes,
            )
            if model.status not in FINAL:
                assert (job.cancel_requested_at is not None) == model.cancel
            assert model.starts - model.hand_backs <= model.max_attempts
            if model.status in ("queued", "scheduled"):
                assert job.run_at == model.run_at
            if model.status == "running":
                assert claim_of(job) in self._run(self.store.held(model.worker or ""))

    @invariant()
    def count(self) -> None:
        counted: Counter[str] = Counter()
        for count in self._run(self.store.counts()):
            counted[count.status] += count.count
        assert counted == Counter(model.status for model in self.jobs.values())
        self._run(books_balance(self.store))


@pytest.mark.parametrize("store_kind", STORES, ids=lambda kind: kind.name)
def test_a_store_and_a_plain_model_of_it_never_disagree(store_kind: StoreKind) -> None:
    class Machine(StoreMachine):
        kind = store_kind
        met: ClassVar[Counter[str]] = Counter()

    run_state_machine_as_test(Machine, settings=settings(max_examples=50, stateful_step_count=30))
    # A run that never met the hard cases proves nothing.
    for case in ("completed too late", "failed too late", "lost", "cancelled while running", "replayed"):
        assert Machine.met[case] >= 3, f"{case} was met {Machine.met[case]} times"
