"""Run workloads on one system and take what they cost: CPU time and system calls of each role, transactions, seconds."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from bench.cost.calls import Counter, Read
from bench.cost.roles import COORDINATOR, Role, worker_roles
from bench.cost.sdk import SDK, SdkProducer
from bench.cost.stores import Place, Store
from bench.cost.workloads import BATCH, Stage, Workload
from bench.system import System

IDLE: Final = "idle"
_WARM_SINGLES: Final = 20
_WARM_BATCHES: Final = 2_000
_TRACED_SHARE: Final = 5
"""Jobs are so many times fewer where counting slows everything down."""


class Cost(msgspec.Struct, frozen=True):
    """What one run of a workload took, for each job. For `idle` it is for each second."""

    cpu_us: Mapping[str, float]
    """By role."""
    calls: Mapping[str, float]
    """By role; empty where system calls cannot be counted."""
    working: Mapping[str, float]
    """Those of the calls that do not just wait."""
    transactions: float
    rate: float
    """Jobs in a second."""
    counted_rate: float
    """The same while system calls were counted, which is less if that was a slower pass of its own."""


def without_idle(cost: Cost, idle: Cost) -> Cost:
    """The cost less what the same system does in that time anyway: heartbeats, polls, upkeep. A slow run has more of it."""
    seconds = 1 / cost.rate
    return Cost(
        _less(cost.cpu_us, idle.cpu_us, seconds),
        _less(cost.calls, idle.calls, 1 / cost.counted_rate),
        _less(cost.working, idle.working, 1 / cost.counted_rate),
        max(cost.transactions - idle.transactions * seconds, 0.0),
        cost.rate,
        cost.counted_rate,
    )


def _less(used: Mapping[str, float], idle: Mapping[str, float], seconds: float) -> dict[str, float]:
    return {role: max(value - idle.get(role, 0.0) * seconds, 0.0) for role, value in used.items()}


class Revision(msgspec.Struct, frozen=True):
    """A state of the source that can be run."""

    name: str
    program: tuple[str, ...] = ()
    """What runs its `stoker`; nothing for this tree's."""

    @property
    def python(self) -> str:
        """The interpreter that imports its `stoker`."""
        return self.program[0] if self.program else sys.executable


class Bench:
    """One system with a warm worker, on which workloads are run one after the other."""

    def __init__(
        self, system: System, place: Place, roles: Sequence[Role], counter: Counter | None, python: str
    ) -> None:
        """`python`: the interpreter for programs that use the SDK."""
        self._system = system
        self._place = place
        self._roles = roles
        self._counter = counter
        self._python = python
        self._completed = 0

    def warm_up(self) -> None:
        """The first jobs pay for imports, children, connections and prepared statements."""
        for number in range(_WARM_SINGLES):
            self._system.run_one(b'{"payload":{"n":%d}}' % number)
        self._completed = _WARM_SINGLES
        stage = self._stage(_WARM_BATCHES)
        stage.load(connections=2, batch=BATCH)
        stage.wait()
        self._completed += _WARM_BATCHES

    def _stage(self, jobs: int) -> Stage:
        return Stage(self._system, jobs, self._completed)

    def cost(self, workload: Workload, jobs: int) -> Cost:
        """Run so many jobs. Calls are counted too, unless counting disturbs."""
        counter = self._counter
        return self._run(workload, jobs, None if counter is None or counter.disturbs else counter)

    def counted(self, workload: Workload, jobs: int, cost: Cost) -> Cost:
        """The cost with its calls, which are counted in a run of their own where counting disturbs. That comes when all else
        is measured: the coordinator learns from it that jobs take long, and gives a worker fewer at a time for a while."""
        if self._counter is None or not self._counter.disturbs:
            return cost
        counted = self._run(workload, max(jobs // _TRACED_SHARE, BATCH), self._counter)
        return msgspec.structs.replace(
            cost, calls=counted.calls, working=counted.working, counted_rate=counted.rate
        )

    def _run(self, workload: Workload, jobs: int, counter: Counter | None) -> Cost:
        if not workload.uses_sdk:
            return self._measured(workload, self._stage(jobs), self._roles, counter)
        sdk = SdkProducer(self._python, self._system.port, self._place.folder)
        try:
            sdk.submit(self._completed, _WARM_SINGLES)
            self._completed += _WARM_SINGLES
            self._system.wait_for_completed(self._completed)
            stage = msgspec.structs.replace(self._stage(jobs), sdk=sdk)
            return self._measured(workload, stage, [*self._roles, Role(SDK, sdk.pid)], counter)
        finally:
            sdk.stop()

    def _measured(
        self, workload: Workload, stage: Stage, roles: Sequence[Role], counter: Counter | None
    ) -> Cost:
        workload.prepare(stage)
        self._place.tidy()
        with _window(self._place, roles, counter) as window:
            seconds = workload.work(stage)
            cost = window.cost(stage.jobs, seconds)
        workload.finish(stage)
        self._completed += stage.jobs
        return cost

    def idle(self, seconds: float) -> Cost:
        """What it takes to have nothing to do, for each second."""
        with _window(self._place, self._roles, self._counter) as window:
            time.sleep(seconds)
            return window.cost(seconds, seconds)


class _Window:
    """What was used between its making and the call of `cost`."""

    def __init__(self, place: Place, roles: Sequence[Role], counted: Read | None) -> None:
        self._place = place
        self._roles = roles
        self._counted = counted
        self._transactions = place.transactions()
        self._cpu_ns = {role.name: role.cpu_ns() for role in roles}

    def cost(self, units: float, seconds: float) -> Cost:
        cpu_ns = {role.name: role.cpu_ns() - self._cpu_ns[role.name] for role in self._roles}
        calls = self._counted() if self._counted is not None else {}
        transactions = self._place.transactions() - self._transactions
        return Cost(
            {name: used / 1e3 / units for name, used in cpu_ns.items()},
            {name: number.total / units for name, number in calls.items()},
            {name: number.working / units for name, number in calls.items()},
            transactions / units,
            units / seconds,
            units / seconds,
        )


@contextmanager
def _window(place: Place, roles: Sequence[Role], counter: Counter | None) -> Iterator[_Window]:
    if counter is None:
        yield _Window(place, roles, None)
        return
    with counter.counting(roles) as counted:
        yield _Window(place, roles, counted)


@contextmanager
def bench_of(revision: Revision, store: Store, counter: Counter | None) -> Iterator[Bench]:
    """A new system of that revision on a new database of that store, warm."""
    with (
        store.place("cost") as place,
        System(place.folder, url=place.url, program=revision.program) as system,
    ):
        worker = system.add_worker()
        roles = [Role(COORDINATOR, system.coordinator.pid), *worker_roles(worker.pid), *place.roles]
        bench = Bench(system, place, roles, counter, revision.python)
        bench.warm_up()
        yield bench
