"""A state machine drives each store beside a plain-Python model of it; at every step the two must agree.

The model knows nothing of SQL, lanes or transactions: a job is a few fields in a dict. Hypothesis picks the steps, with
right and stale claims mixed, and when the two disagree it shrinks the story to the shortest one that still shows it.

A step is a call and what the model makes of its answer. So two steps can also be made at the same time, at one owner of the
store or at two: then their answers, and what is stored, must be those of one order or of the other. Who was first is not
the same in every run, so nothing that Hypothesis draws may depend on the state: picks are numbers, modulo what is there.
"""

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs

from stoker.clock import SECOND
from stoker.domain.errors import IdempotencyMismatch, IdMismatch
from stoker.domain.job import Job
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import CRASH_LIMIT, Kind, claim_of
from stoker.store.base import Store
from stoker.store.claims import Granted
from stoker.store.sessions import Expired, Renewal
from stoker.store.submissions import Accepted
from tests.conformance.steps import SILENT, STEADY, a_job, a_key, a_request, a_session, a_worker, end
from tests.conformance.stores import STORES, StoreKind, books_balance, fast_folder
from tests.support.clock import FakeClock
from tests.support.jobs import a_submission, jobs_of

T = TypeVar("T")
WORKERS = ("w1", "w2")
SHARED_STORIES = int(os.environ.get("MODEL_STORIES", "40"))
"""How many stories a store with two owners tells: each makes two connections anew, which takes most of a second."""
KEYS = ("k1", "k2", "k3")
BODIES = (b"body", b"body", b"other body")
IDS = tuple(f"01900000-0000-7000-8000-{number:012x}" for number in range(1, 4))
"""Ids that clients make."""
DIGESTS = (b"1" * 16, b"1" * 16, b"2" * 16)
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
    result: bytes | None = None
    claims: tuple[Job, ...] = ()

    def claimed(self, job: Job) -> None:
        assert self.status == "queued"
        assert job.claim_id > self.claim_id, "claim numbers only grow"
        self.status, self.worker = "running", job.worker_id
        self.claim_id, self.attempt = job.claim_id, self.attempt + 1
        self.starts += 1
        self.claims += (job,)

    def ended(self, kind: Kind, now: int) -> Status:
        """The rules of charging, told once more in the plainest way."""
        self.worker = None
        if kind == "handed_back":
            self.attempt -= 1
            self.hand_backs += 1
        if kind == "crash":
            self.crashes += 1
        if kind == "completed":
            self.status, self.result = "completed", result_of(self.claims[-1])
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
            if self.claim_id == 0 and self.run_at > now:  # it never came to its time, and still waits for it
                self.status = "scheduled"
            else:
                self.status, self.run_at = "queued", now
            self.attempt = self.crashes = self.starts = self.hand_backs = 0
            self.cancel = False


def result_of(attempt: Job) -> bytes:
    """What only this attempt would say."""
    return f'"{attempt.id} {attempt.claim_id}"'.encode()


@dataclass
class World:
    """Everything that the model knows."""

    jobs: dict[str, Model] = field(default_factory=dict)
    keys: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    answers: dict[tuple[str, int], Status | None] = field(default_factory=dict)

    def copy(self) -> "World":
        jobs = {id: replace(model) for id, model in self.jobs.items()}
        return World(jobs, dict(self.keys), dict(self.ids), dict(self.seen), dict(self.answers))

    def running(self) -> list[Job]:
        return [model.claims[-1] for model in self.jobs.values() if model.status == "running"]

    def stale(self) -> list[Job]:
        running = {(job.id, job.claim_id) for job in self.running()}
        every = [job for model in self.jobs.values() for job in model.claims]
        return [job for job in every if (job.id, job.claim_id) not in running]

    def queued(self) -> list[str]:
        """Those that may start, in the order in which they should."""
        waiting = [(job.rank, job.order, id) for id, job in self.jobs.items() if job.status == "queued"]
        return [id for *_, id in sorted(waiting)]

    def add(self, job: Job) -> None:
        self.jobs[job.id] = Model(job.max_attempts, job.rank, job.seq, job.status, job.run_at)


# ── steps: a call, and what the model makes of its answer ──────────────────────────────────────────────────────────


class Step(NamedTuple):
    call: Callable[[Store], Awaitable[Any]]
    told: Callable[[World, Any], None]
    """Fails for an answer that this world would not give, and else changes it."""


def submitting(jobs: Sequence[Job]) -> Step:
    def told(world: World, accepted: list[Accepted]) -> None:
        assert [one.job.id for one in accepted] == [job.id for job in jobs]
        for one in accepted:
            world.add(one.job)

    return Step(lambda store: store.insert([a_submission(job) for job in jobs]), told)


def submitting_under(key: str, body: bytes, job: Job) -> Step:
    async def call(store: Store) -> Accepted | None:
        try:
            (accepted,) = await store.insert([a_submission(job, a_key(store, key, body))])
        except IdempotencyMismatch:
            return None
        return accepted

    def told(world: World, accepted: Accepted | None) -> None:
        known, id = world.keys.get(key, (body, job.id))
        assert (accepted is None) == (known != body)
        if accepted is not None:
            assert (accepted.job.id, accepted.repeated) == (id, key in world.keys)
            if not accepted.repeated:
                world.keys[key] = (body, id)
                world.add(accepted.job)

    return Step(call, told)


def submitting_with(id: str, digest: bytes, job: Job) -> Step:
    """Submit a job whose id a client made."""
    named = structs.replace(job, id=id, digest=digest)

    async def call(store: Store) -> Accepted | None:
        try:
            (accepted,) = await store.insert([a_submission(named)])
        except IdMismatch:
            return None
        return accepted

    def told(world: World, accepted: Accepted | None) -> None:
        assert (accepted is None) == (world.ids.get(id, digest) != digest)
        if accepted is not None:
            assert (accepted.job.id, accepted.repeated) == (id, id in world.ids)
            if not accepted.repeated:
                world.ids[id] = digest
                world.add(accepted.job)

    return Step(call, told)


def claiming(worker: str, threads: int, *, alone: bool = True) -> Step:
    """`alone`: no other transaction goes on meanwhile. Rows that another one holds just then are passed over."""

    async def call(store: Store) -> Granted:
        store.look_again()  # as coordinators do when another one says that it queued something
        # One of them names the type of all jobs, the other takes any.
        named = worker == WORKERS[0]
        view = a_worker(
            worker,
            threads=threads,
            types=("echo",) if named else (),
            any_but=None if named else frozenset({"another"}),
        )
        return await store.claim(a_request(view))

    def told(world: World, granted: Granted) -> None:
        jobs = jobs_of(granted.grants)
        ids = [job.id for job in jobs]
        queued = world.queued()
        assert ids == (queued[:threads] if alone else [id for id in queued if id in ids][:threads])
        for job in jobs:
            world.jobs[job.id].claimed(job)

    return Step(call, told)


def reporting(attempt: Job, kind: Kind, now: int) -> Step:
    outcome = {"result": result_of(attempt)} if kind == "completed" else {}

    def told(world: World, answer: Status | None) -> None:
        model, key = world.jobs[attempt.id], (attempt.id, attempt.claim_id)
        if model.status == "running" and model.claim_id == attempt.claim_id:
            assert answer == model.ended(kind, now)
            world.answers[key] = answer
        else:
            assert answer in (None, model.status, world.answers.get(key))

    return Step(lambda store: end(store, attempt, kind, **outcome), told)


def cancelling(id: str) -> Step:
    def told(world: World, _: object) -> None:
        model = world.jobs[id]
        if model.status == "running":
            model.cancel = True
        elif model.status not in FINAL:
            model.status = "cancelled"

    return Step(lambda store: store.cancel([id]), told)


def replaying(id: str, now: int) -> Step:
    return Step(lambda store: store.replay([id]), lambda world, _: world.jobs[id].replayed(now))


def promoting(limit: int, now: int) -> Step:
    def told(world: World, promoted: int) -> None:
        due = sorted(
            (model.run_at, model.order, id)
            for id, model in world.jobs.items()
            if model.status == "scheduled" and model.run_at <= now
        )
        assert promoted == len(due[:limit])
        for *_, id in due[:limit]:
            world.jobs[id].status = "queued"

    return Step(lambda store: store.promote(limit), told)


def expiring(now: int) -> Step:
    def told(world: World, expired: Expired) -> None:
        silent = {id for id, heard in world.seen.items() if now - heard > SILENT}
        assert set(expired.sessions) == silent
        for id in silent:
            del world.seen[id]
        lost = {job.id for job in world.running() if job.worker_id not in world.seen}
        assert {loss.claim.id for loss in expired.losses} == lost
        for loss in expired.losses:
            assert loss.status == world.jobs[loss.claim.id].ended("lost", now)

    return Step(lambda store: store.expire(store.now_us() - SILENT, STEADY), told)


# ── the machine ────────────────────────────────────────────────────────────────────────────────────────────────────

Pick = st.integers(0, 999)


class Wish(NamedTuple):
    """A step that is still to be made: which kind, and numbers to choose by."""

    verb: str
    pick: int
    kind: Kind


WISHES = st.builds(
    Wish,
    st.sampled_from(
        ["submit", "keyed", "named", "claim", "report", "report late", "cancel", "replay", "promote"]
    ),
    Pick,
    st.sampled_from(KINDS),
)


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
        self.world = World()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    async def _open(self) -> Store:
        return await self.kind.open(self._place, self.clock)

    def teardown(self) -> None:
        for store in {id(store): store for store in (self.store, self.other)}.values():
            self._run(store.close())
        self._runner.close()
        shutil.rmtree(self._place)

    @property
    def _now(self) -> int:
        return self.clock.now_us()

    def _do(self, step: Step) -> Any:
        async def call() -> Any:
            return await step.call(self.store)

        answer = self._run(call())
        step.told(self.world, answer)
        return answer

    # ── one step after the other ───────────────────────────────────────────────────────────────────────────────────

    @initialize()
    def workers_arrive(self) -> None:
        for id in WORKERS:
            assert self._run(self.store.open_session(a_session(self.store, id)))
            self.world.seen[id] = self._now
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
        self._do(submitting(jobs))

    @rule(key=st.sampled_from(KEYS), body=st.sampled_from(BODIES))
    def submits_under_a_key(self, key: str, body: bytes) -> None:
        known = key in self.world.keys
        accepted = self._do(submitting_under(key, body, a_job(self.store)))
        self.met["refused for another body"] += accepted is None
        self.met["repeated"] += known and accepted is not None

    @rule(id=st.sampled_from(IDS), digest=st.sampled_from(DIGESTS))
    def submits_with_an_id(self, id: str, digest: bytes) -> None:
        before = self.world.jobs.get(id)
        accepted = self._do(submitting_with(id, digest, a_job(self.store)))
        self.met["refused for another request with this id"] += accepted is None
        self.met["repeated by its id"] += before is not None and accepted is not None
        self.met["repeated by its id when it was over"] += (
            before is not None and before.status in FINAL and accepted is not None
        )

    @rule(id=st.sampled_from(IDS), digest=st.sampled_from(DIGESTS), kind=st.sampled_from(KINDS))
    def sends_an_id_again_when_its_job_is_over(self, id: str, digest: bytes, kind: Kind) -> None:
        self.submits_with_an_id(id, digest)
        model = self.world.jobs[id]
        if model.status == "running":
            self._report(model.claims[-1], kind)
        self._do(cancelling(id))
        self.submits_with_an_id(id, digest)

    @rule(worker=st.sampled_from(WORKERS), threads=st.integers(1, 3))
    def claims(self, worker: str, threads: int) -> None:
        self._do(claiming(worker, threads))

    @rule(pick=Pick, kind=st.sampled_from(KINDS))
    def reports(self, pick: int, kind: Kind) -> None:
        if running := self._running():
            self._report(chosen(running, pick), kind)

    @rule(pick=Pick, kind=st.sampled_from(KINDS))
    def is_claimed_by_another_and_the_old_attempt_reports(self, pick: int, kind: Kind) -> None:
        """The race that the fence is for, often enough to be met in every run."""
        if running := self._running():
            old = chosen(running, pick)
            self._report(old, "handed_back")
            self.claims("w2", 100)
            self._report(old, kind)

    @rule(pick=Pick, kind=st.sampled_from(KINDS))
    def reports_too_late(self, pick: int, kind: Kind) -> None:
        """An attempt whose time is over reports all the same."""
        if stale := self.world.stale():
            self._report(chosen(stale, pick), kind)

    def _running(self) -> list[Job]:
        """What runs; what waits is started first if nothing does."""
        if not self.world.running():
            self.claims("w1", 3)
        return self.world.running()

    def _report(self, job: Job, kind: Kind) -> None:
        model = self.world.jobs[job.id]
        current = model.status == "running" and model.claim_id == job.claim_id
        if model.status == "running" and not current:
            self.met["completed too late" if kind == "completed" else "failed too late"] += 1
        before = self._run(self.store.get([job.id]))
        answer = self._do(reporting(job, kind, self._now))
        if current:
            # Sent again, it gets the same answer and changes nothing; `agree` sees to the second half.
            assert self._run(end(self.store, job, kind)) == answer
        else:
            assert self._run(self.store.get([job.id])) == before

    @rule(pick=Pick)
    def cancels(self, pick: int) -> None:
        id = chosen(sorted(self.world.jobs), pick)
        self.met["cancelled while running"] += self.world.jobs[id].status == "running"
        self._do(cancelling(id))

    @rule(pick=Pick)
    def replays(self, pick: int) -> None:
        jobs = self.world.jobs
        over = [id for id, model in jobs.items() if model.status in ("failed", "cancelled", "scheduled")]
        id = chosen(sorted(over or jobs), pick)
        self.met["replayed"] += jobs[id].status in ("failed", "cancelled")
        self._do(replaying(id, self._now))

    @rule(seconds=st.sampled_from([1, 4, 11]), heard=st.sets(st.sampled_from(WORKERS)))
    def time_passes(self, seconds: int, heard: set[str]) -> None:
        self.clock.advance(seconds)
        for worker in sorted(heard):
            (status,) = self._run(self.store.renew([Renewal(worker, 1)]))
            assert (status is not None) == (worker in self.world.seen)
            if status is not None:
                self.world.seen[worker] = self._now

    @rule(worker=st.sampled_from(WORKERS))
    def falls_silent(self, worker: str) -> None:
        """One worker is not heard of for longer than the timeout, while the other is."""
        self.time_passes(11, set(WORKERS) - {worker})
        self.expires()

    @rule(limit=st.integers(1, 3))
    def promotes(self, limit: int) -> None:
        self._do(promoting(limit, self._now))

    @rule()
    def expires(self) -> None:
        self.met["lost"] += len(self._do(expiring(self._now)).losses)

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

    # ── two steps at the same time ─────────────────────────────────────────────────────────────────────────────────

    @rule(one=WISHES, two=WISHES, at_one_job=st.booleans(), at_one_owner=st.booleans())
    def two_things_happen_at_once(self, one: Wish, two: Wish, at_one_job: bool, at_one_owner: bool) -> None:
        if at_one_job:
            two = two._replace(pick=one.pick)
        self._at_once(one, two, self.store if at_one_owner else self.other)

    @rule(worker=st.sampled_from(WORKERS), wish=WISHES, at_one_owner=st.booleans())
    def something_happens_while_a_worker_is_given_up(
        self, worker: str, wish: Wish, at_one_owner: bool
    ) -> None:
        self.time_passes(11, set(WORKERS) - {worker})
        self._at_once(wish, Wish("expire", 0, "completed"), self.store if at_one_owner else self.other)

    def _at_once(self, one: Wish, two: Wish, second: Store) -> None:
        self._running()
        a, b = self._step(one), self._step(two)

        async def call() -> tuple[Any, Any]:
            return await asyncio.gather(a.call(self.store), b.call(second))

        to_a, to_b = self._run(call())
        self.met["at once"] += 1
        try:
            self.world = self._after((a, to_a), (b, to_b))
        except AssertionError:
            self.met["the second was first"] += 1
            self.world = self._after((b, to_b), (a, to_a))

    def _after(self, *steps: tuple[Step, Any]) -> World:
        """The world after these steps in this order; fails when the answers or what is stored are not of it."""
        world = self.world.copy()
        for step, answer in steps:
            step.told(world, answer)
        self._run(agrees(self.store, world))
        return world

    def _step(self, wish: Wish) -> Step:
        verb, pick, kind = wish
        jobs = sorted(self.world.jobs)
        attempts = {"report": self.world.running(), "report late": self.world.stale()}
        if found := attempts.get(verb):
            return reporting(chosen(found, pick), kind, self._now)
        match verb:
            case "keyed":
                return submitting_under(chosen(KEYS, pick), chosen(BODIES, pick // 7), a_job(self.store))
            case "named":
                return submitting_with(chosen(IDS, pick), chosen(DIGESTS, pick // 7), a_job(self.store))
            case "claim":
                return claiming(chosen(WORKERS, pick), 1 + pick % 3, alone=self.kind.exclusive)
            case "cancel":
                return cancelling(chosen(jobs, pick))
            case "replay":
                return replaying(chosen(jobs, pick), self._now)
            case "promote":
                return promoting(1 + pick % 3, self._now)
            case "expire":
                return expiring(self._now)
        return submitting([a_job(self.store, priority=pick % 3)])

    # ── what must hold after every step ────────────────────────────────────────────────────────────────────────────

    @invariant()
    def agree(self) -> None:
        self._run(agrees(self.store, self.world))

    @invariant()
    def count(self) -> None:
        counted: Counter[str] = Counter()
        for count in self._run(self.store.counts()):
            counted[count.status] += count.count
        assert counted == Counter(model.status for model in self.world.jobs.values())
        self._run(books_balance(self.store))


def chosen(among: Sequence[T], pick: int) -> T:
    return among[pick % len(among)]


async def agrees(store: Store, world: World) -> None:
    """Fails when something is stored that is not so in this world."""
    ids = sorted(world.jobs)
    for id, job in zip(ids, await store.get(ids), strict=True):
        model = world.jobs[id]
        assert job is not None, "acknowledged, but not stored"
        assert (job.status, job.claim_id, job.attempt, job.crashes) == (
            model.status,
            model.claim_id,
            model.attempt,
            model.crashes,
        )
        assert job.result == (model.result if model.status == "completed" else None)
        if model.status not in FINAL:
            assert (job.cancel_requested_at is not None) == model.cancel
        assert model.starts - model.hand_backs <= model.max_attempts
        if model.status in ("queued", "scheduled"):
            assert job.run_at == model.run_at
        if model.status == "running":
            assert claim_of(job) in await store.held(model.worker or "")


@pytest.mark.parametrize("store_kind", STORES, ids=lambda kind: kind.name)
def test_a_store_and_a_plain_model_of_it_never_disagree(store_kind: StoreKind) -> None:
    class Machine(StoreMachine):
        kind = store_kind
        met: ClassVar[Counter[str]] = Counter()

    # Where the order of two steps is another each time, a story that is made shorter is another story.
    phases = [Phase.generate, Phase.shrink] if store_kind.exclusive else [Phase.generate]
    many = settings(
        max_examples=120 if store_kind.exclusive else SHARED_STORIES, stateful_step_count=30, phases=phases
    )
    run_state_machine_as_test(Machine, settings=many)
    # A run that never met the hard cases proves nothing.
    for case in (
        "completed too late",
        "failed too late",
        "lost",
        "cancelled while running",
        "replayed",
        "repeated",
        "refused for another body",
        "repeated by its id",
        "repeated by its id when it was over",
        "refused for another request with this id",
        "at once",
        "the second was first",
    ):
        least = 3 if store_kind.exclusive else 1
        assert Machine.met[case] >= least, f"{case} was met {Machine.met[case]} times"
