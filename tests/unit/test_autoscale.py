"""The autoscaler's loop: who counts as a worker, what is done about a decision, and what is left alone."""

import asyncio
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from stoker.autoscale.coordinator_api import CoordinatorSnapshot, Stats, WorkerRow
from stoker.autoscale.fleet import all_workers, assess
from stoker.autoscale.loop import UNKNOWN_SECONDS, Autoscaler, rules_of
from stoker.autoscale.providers.base import Own, ProviderError
from stoker.autoscale.providers.process import SOON_SECONDS, ProcessProvider, worker_argv
from stoker.cli import up
from stoker.client.errors import ConnectionFailed, NotFound, Problem
from stoker.domain.scaling import Rules, ScalingState
from stoker.settings import Settings, load
from tests.support.clock import FakeClock

RULES = Rules(stable_seconds=30, cooldown_seconds=5, min_workers=1, max_workers=4)


def row(name: str, status: str = "live", used: int = 0, **more: Any) -> WorkerRow:
    return WorkerRow(f"id-of-{name}", name, status, 2, used, **more)


def seen(depth: int, *rows: WorkerRow) -> CoordinatorSnapshot:
    return CoordinatorSnapshot(Stats(depth), list(rows))


class SmallCoordinator:
    """A coordinator of one queue; workers that are told to drain do so."""

    def __init__(self) -> None:
        self.depth = 0
        self.rows: dict[str, WorkerRow] = {}
        self.drained: list[str] = []
        self.told: list[ScalingState] = []
        self.down = False
        self.refuses_drain = False

    def put(self, *rows: WorkerRow) -> None:
        self.rows |= {row.name: row for row in rows}

    async def look(self) -> CoordinatorSnapshot:
        if self.down:
            raise ConnectionFailed("http://nowhere", "refused")
        return CoordinatorSnapshot(Stats(self.depth), list(self.rows.values()))

    async def drain(self, worker_id: str) -> None:
        if self.refuses_drain:
            raise NotFound(404, Problem(title="no such worker"))
        name = worker_id.removeprefix("id-of-")
        self.drained.append(name)
        self.put(row(name, "draining"))

    async def tell(self, state: ScalingState) -> bool:
        self.told.append(state)
        return True


class SmallProvider:
    """Workers named own-1, own-2, …, which exist as long as a test says so."""

    mode = "process"

    def __init__(self) -> None:
        self.alive: list[str] = []
        self.ended: list[str] = []
        self.broken = False
        self._number = 0

    def owns(self, row: WorkerRow) -> bool:
        return row.name.startswith("own-")

    async def running(self) -> Collection[Own]:
        return [Own(name) for name in self.alive]

    async def start(self, count: int) -> Sequence[str]:
        if self.broken:
            raise ProviderError("no room")
        names = [f"own-{self._number + n + 1}" for n in range(count)]
        self._number += count
        self.alive += names
        return names

    async def end(self, name: str) -> None:
        self.ended.append(name)

    async def close(self) -> None:
        self.alive.clear()


class Scene:
    """An autoscaler between a small coordinator and a small provider, and the log lines it writes."""

    def __init__(self, clock: FakeClock, rules: Rules = RULES, *, acts: bool = True) -> None:
        self.clock = clock
        self.coordinator = SmallCoordinator()
        self.provider = SmallProvider()
        provider = self.provider if acts else None
        self.scaler = Autoscaler(rules, self.coordinator, provider, clock, worker_threads=2)

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.scaler.tick()

    def register(self) -> None:
        """Every worker that runs has a session now, and is idle."""
        self.coordinator.put(*(row(name) for name in self.provider.alive))


# ── who counts ───────────────────────────────────────────────────────────────────────────────────────────────────────


def mine(row: WorkerRow) -> bool:
    return row.name.startswith("own-")


def test_a_worker_that_was_just_started_counts_before_it_has_registered() -> None:
    fleet = assess(seen(50), [Own("own-1"), Own("own-2")], mine, 4)
    assert fleet.load.workers == 2
    assert fleet.unknown == {"own-1", "own-2"}


def test_a_worker_whose_process_died_does_not_count_although_its_session_still_looks_alive() -> None:
    fleet = assess(seen(0, row("own-1"), row("own-2")), [Own("own-2")], mine, 4)
    assert (fleet.load.workers, [idle.name for idle in fleet.removable]) == (1, ["own-2"])


def test_a_new_life_under_an_old_name_is_not_mistaken_for_the_old_one() -> None:
    old, new = row("own-1", pid=10), row("own-1", used=2, pid=11)
    fleet = assess(seen(0, old, new), [Own("own-1", 11)], mine, 4)
    assert (fleet.load.workers, fleet.removable) == (1, [])
    starting = assess(seen(0, old), [Own("own-1", 12)], mine, 4)
    assert (starting.load.workers, starting.removable, starting.unknown) == (1, [], frozenset({"own-1"}))


def test_workers_of_others_count_but_are_never_removed() -> None:
    fleet = assess(seen(0, row("theirs"), row("own-1")), [Own("own-1")], mine, 4)
    assert (fleet.load.workers, [idle.name for idle in fleet.removable]) == (2, ["own-1"])


def test_one_that_drains_does_not_count_and_one_that_is_lost_neither() -> None:
    rows = (row("own-1", "draining"), row("own-2"), row("theirs", "draining"), row("other", "lost"))
    fleet = assess(seen(0, *rows), [Own("own-1"), Own("own-2")], mine, 4)
    assert (fleet.load.workers, fleet.unknown) == (1, frozenset())


def test_jobs_of_paused_queues_are_no_reason_for_a_worker() -> None:
    waiting = CoordinatorSnapshot(Stats(queue_depth=50, paused_depth=48), [row("w1")])
    assert all_workers(waiting, 2).load.queue_depth == 2
    assert assess(waiting, [], lambda _: False, 2).load.queue_depth == 2


def test_busy_workers_are_not_removable_and_the_youngest_goes_first() -> None:
    rows = (row("own-1"), row("own-2", used=1), row("own-3"))
    fleet = assess(seen(0, *rows), [Own("own-1"), Own("own-2"), Own("own-3")], mine, 4)
    assert [idle.name for idle in fleet.removable] == ["own-3", "own-1"]


def test_who_only_recommends_counts_everybody_alive() -> None:
    fleet = all_workers(seen(3, row("a"), row("b", used=2), row("c", "draining"), row("d", "lost")), 4)
    assert (fleet.load.workers, fleet.load.idle, fleet.load.threads_used) == (2, 1, 2)
    assert all_workers(seen(0), 4).load.threads_per_worker == 4


# ── what is done ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_full_queue_brings_workers_one_per_cool_down_up_to_the_maximum(clock: FakeClock) -> None:
    scene = Scene(clock)
    scene.coordinator.depth = 50
    counts = []
    for _ in range(30):
        await scene.after(1)
        scene.register()
        counts.append(len(scene.provider.alive))
    assert sorted(set(counts)) == [1, 2, 3, 4]
    assert counts == sorted(counts)
    assert [counts.index(number) for number in (1, 2, 3, 4)] == [0, 5, 10, 15]


async def test_an_empty_queue_drains_idle_workers_down_to_the_minimum_and_ends_none(clock: FakeClock) -> None:
    scene = Scene(clock)
    await scene.provider.start(3)
    scene.register()
    for _ in range(29):
        await scene.after(1)
    assert scene.coordinator.drained == []
    for _ in range(20):
        await scene.after(1)
    assert scene.coordinator.drained == ["own-3", "own-2"]
    assert scene.provider.ended == []


async def test_busy_workers_stay_however_empty_the_queue(clock: FakeClock) -> None:
    scene = Scene(clock)
    await scene.provider.start(2)
    scene.coordinator.put(row("own-1", used=1), row("own-2", used=2))
    for _ in range(100):
        await scene.after(1)
    assert scene.coordinator.drained == []
    assert scene.scaler.latest is not None
    assert "busy" in scene.scaler.latest.reason


async def test_a_worker_killed_by_hand_is_replaced_though_its_session_lingers(clock: FakeClock) -> None:
    scene = Scene(clock)
    await scene.after(0)
    scene.register()
    assert scene.provider.alive == ["own-1"]
    scene.provider.alive.clear()
    await scene.after(6)
    assert scene.provider.alive == ["own-2"]


async def test_without_sight_nothing_changes_and_the_quiet_before_does_not_count(clock: FakeClock) -> None:
    scene = Scene(clock)
    await scene.provider.start(2)
    scene.register()
    await scene.after(0)
    await scene.after(29)
    scene.coordinator.down = True
    with structlog.testing.capture_logs() as lines:
        await scene.after(1)
        await scene.after(1)
    assert [line["event"] for line in lines] == ["autoscaler_blind"], "said once"
    scene.coordinator.down = False
    await scene.after(1)
    assert scene.coordinator.drained == []
    await scene.after(30)
    assert scene.coordinator.drained == ["own-2"]


async def test_a_start_that_fails_is_told_and_not_tried_again_at_once(clock: FakeClock) -> None:
    scene = Scene(clock)
    scene.provider.broken = True
    with structlog.testing.capture_logs() as lines:
        for _ in range(4):
            await scene.after(1)
    assert [(line["event"], line["detail"]) for line in lines] == [("scale_failed", "no room")]
    scene.provider.broken = False
    await scene.after(2)
    assert scene.provider.alive == ["own-1"]


async def test_a_worker_that_left_before_it_could_be_drained_is_no_error(clock: FakeClock) -> None:
    scene = Scene(clock)
    await scene.provider.start(2)
    scene.register()
    scene.coordinator.refuses_drain = True
    await scene.after(0)
    await scene.after(30)
    assert scene.scaler.latest is not None
    assert scene.scaler.latest.action == "down"


async def test_a_worker_that_no_coordinator_knows_for_long_is_ended(clock: FakeClock) -> None:
    scene = Scene(clock)
    await scene.provider.start(2)
    scene.coordinator.put(row("own-1"))
    await scene.after(0)
    await scene.after(UNKNOWN_SECONDS - 1)
    assert scene.provider.ended == []
    await scene.after(1)
    assert scene.provider.ended == ["own-2"]


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_recommending_says_it_once_and_starts_nothing(clock: FakeClock) -> None:
    scene = Scene(clock, acts=False)
    scene.coordinator.depth = 50
    scene.coordinator.put(row("theirs"))
    with structlog.testing.capture_logs() as lines:
        for _ in range(10):
            await scene.after(1)
    (line,) = lines
    assert line["event"] == "scale_up"
    assert (line["mode"], line["workers"], line["wanted"], line["queue_depth"]) == ("recommend", 1, 2, 50)
    assert line["reason"] == "50 jobs wait, above the threshold of 10: 1 more"
    assert scene.provider.alive == []


async def test_recommending_beside_a_crew_counts_those_that_have_not_registered_yet(clock: FakeClock) -> None:
    scene = Scene(clock, acts=False)
    await scene.provider.start(2)
    beside = Autoscaler(RULES, scene.coordinator, scene.provider, clock, worker_threads=2, acts=False)
    decision = await beside.tick()
    assert decision is not None
    assert (beside.mode, decision.workers, decision.action) == ("recommend", 2, "stay")
    assert len(scene.provider.alive) == 2


async def test_every_turn_is_told_to_the_coordinator(clock: FakeClock) -> None:
    scene = Scene(clock)
    await scene.after(0)
    (state,) = scene.coordinator.told
    assert (state.mode, state.min_workers, state.max_workers) == ("process", 1, 4)
    assert state.decision == scene.scaler.latest
    assert state.decision.action == "up"


async def test_acting_names_who_comes_and_who_goes(clock: FakeClock) -> None:
    scene = Scene(clock)
    with structlog.testing.capture_logs() as lines:
        await scene.after(0)
        await scene.provider.start(1)
        scene.register()
        await scene.after(1)
        await scene.after(30)
    assert [(line["event"], line.get("started"), line.get("draining")) for line in lines] == [
        ("scale_up", ["own-1"], None),
        ("scale_down", None, "own-2"),
    ]


def test_the_rules_are_the_settings() -> None:
    settings = load(
        {
            "QUEUE_THRESHOLD_HIGH": "7",
            "QUEUE_THRESHOLD_LOW": "3",
            "SCALE_DOWN_STABLE_SEC": "11",
            "STOKER_SCALE_COOLDOWN_SEC": "2",
            "MIN_WORKERS": "2",
            "MAX_WORKERS": "9",
            "STOKER_SCALE_BY": "demand",
            "STOKER_SCALE_TARGET_SEC": "20",
        }
    )
    assert rules_of(settings) == Rules(
        threshold_high=7,
        threshold_low=3,
        stable_seconds=11,
        cooldown_seconds=2,
        min_workers=2,
        max_workers=9,
        basis="demand",
        target_seconds=20,
    )
    assert rules_of(Settings()) == Rules()


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────

SLEEPER = "import time; time.sleep(600)"
STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def sleepers(
    code: str = SLEEPER, *args: object, leave_seconds: float = 20.0, clock: FakeClock | None = None
) -> ProcessProvider:
    argv = [sys.executable, "-c", code, *map(str, args)]
    now = (clock or FakeClock()).monotonic
    return ProcessProvider(lambda name: argv, {}, prefix="p", leave_seconds=leave_seconds, now=now)


async def all_died(provider: ProcessProvider) -> list[float]:
    """Once all have ended: after how many seconds the provider means to start others, as it said of each."""
    for process in list(provider._processes.values()):
        process.wait(20)
    with structlog.testing.capture_logs() as lines:
        assert await provider.running() == []
    return [line["next_start_seconds"] for line in lines if line["event"] == "worker_died"]


async def test_processes_are_counted_as_they_are_and_numbers_are_used_again() -> None:
    clock = FakeClock()
    provider = sleepers(clock=clock)
    try:
        assert await provider.start(3) == ["p-1", "p-2", "p-3"]
        first = {own.name: own.pid for own in await provider.running()}
        clock.advance(SOON_SECONDS)
        provider._processes["p-2"].kill()
        provider._processes["p-2"].wait()
        with structlog.testing.capture_logs() as lines:
            assert [own.name for own in await provider.running()] == ["p-1", "p-3"]
        assert [(line["event"], line["worker"], line["exit_code"]) for line in lines] == [
            ("worker_died", "p-2", -9)
        ]
        assert await provider.start(1) == ["p-2"]
        second = {own.name: own.pid for own in await provider.running()}
        assert second["p-2"] != first["p-2"]
    finally:
        provider.kill()
        await provider.close()


async def test_workers_that_die_at_once_are_started_again_after_a_growing_pause() -> None:
    clock = FakeClock()
    provider = sleepers("raise SystemExit(1)", clock=clock)
    pauses = []
    for _ in range(8):
        await provider.start(2)
        first, second = await all_died(provider)
        assert first == second, "those that die together count once"
        with pytest.raises(ProviderError, match="died at once; the next are started in"):
            await provider.start(1)
        assert await provider.start(0) == []
        pauses.append(first)
        clock.advance(first)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_the_pause_is_forgotten_when_a_new_worker_lives_and_not_because_an_old_one_does() -> None:
    clock = FakeClock()
    code = "import sys, time; time.sleep(600) if sys.argv[1] == 'lives' else sys.exit(1)"
    fate = ["lives"]
    provider = ProcessProvider(
        lambda name: [sys.executable, "-c", code, fate[0]],
        {},
        prefix="p",
        leave_seconds=1,
        now=clock.monotonic,
    )

    async def one_dies() -> float:
        fate[0] = "dies"
        (name,) = await provider.start(1)
        provider._processes[name].wait(20)
        await provider.running()
        return provider.rest_seconds

    try:
        await provider.start(1)
        clock.advance(60)
        assert await one_dies() == 1
        clock.advance(60)
        await provider.running()
        assert await one_dies() == 2
        clock.advance(60)
        fate[0] = "lives"
        await provider.start(1)
        clock.advance(SOON_SECONDS)
        await provider.running()
        assert await one_dies() == 1
    finally:
        provider.kill()
        await provider.close()


async def test_up_leaves_workers_that_die_at_once_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "RESTART_SECONDS", 0.001)
    clock = FakeClock()
    started: list[str] = []

    def argv(name: str) -> list[str]:
        started.append(name)
        return [sys.executable, "-c", "raise SystemExit(1)"]

    provider = ProcessProvider(argv, {}, prefix="p", leave_seconds=1, now=clock.monotonic)
    keeping = asyncio.create_task(up.keep(provider, 1))
    try:
        while provider.rest_seconds == 0:
            assert not keeping.done()
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert started == ["p-1"]
        clock.advance(1)
        while provider.rest_seconds == 0:
            assert not keeping.done()
            await asyncio.sleep(0.01)
        assert started == ["p-1", "p-1"]
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_closing_waits_for_all_and_kills_those_that_will_not_go(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    provider = sleepers(STUBBORN, deaf, leave_seconds=0.2)
    await provider.start(1)
    process = provider._processes["p-1"]
    while not deaf.exists():
        assert process.poll() is None
        await asyncio.sleep(0.01)
    await provider.close()
    assert process.wait(10) == -9


async def test_only_sessions_of_this_machine_with_such_a_name_are_ours() -> None:
    provider = sleepers()
    host = provider._host
    assert provider.owns(row("p-12", host=host))
    assert not provider.owns(row("p-12", host="elsewhere"))
    assert not provider.owns(row("p-x", host=host))
    assert not provider.owns(row("pp-1", host=host))


async def test_a_program_that_cannot_be_started_is_an_error_of_the_provider() -> None:
    provider = ProcessProvider(lambda name: ["/no/such/program"], {}, prefix="p", leave_seconds=1)
    with pytest.raises(ProviderError, match="cannot start a worker process"):
        await provider.start(1)
    assert await provider.running() == []


def test_a_worker_is_started_with_the_settings_of_its_parent() -> None:
    settings = load({"STOKER_APP": "tasks:app", "STOKER_WORKER_THREADS": "3", "STOKER_LOG_LEVEL": "debug"})
    words = " ".join(worker_argv(settings, ["http://a:1", "http://b:2"])("w-1"))
    for expected in (
        "worker --name w-1",
        "--url http://a:1 --url http://b:2",
        "--threads 3",
        "--app tasks:app",
    ):
        assert expected in words
