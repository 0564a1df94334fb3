"""From samples to figures: medians, spreads, ratios to the best peers, and whether the targets are met. Pure functions."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from bench.peers.drivers.kit import ASYNCIO, BULK, IDLE, SEQUENTIAL, THREADS
from bench.peers.running import FOUR, Sample
from bench.peers.systems import BY_KEY, PGQUEUER, STOKER, STOKER_ON_POSTGRES
from bench.results import FAIL, PASS, percentile

P50: Final = "idle p50"
P99: Final = "idle p99"
CPU: Final = "CPU, sequential"
BULK_CPU: Final = "CPU, bulk"
MEMORY: Final = "memory"


class Figure(msgspec.Struct, frozen=True):
    """One quantity of one system. `rounds` are in the order in which they were taken."""

    rounds: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half of the range, as a share of the median."""
        return (max(self.rounds) - min(self.rounds)) / 2 / self.median if self.median else 0.0


class Turn(msgspec.Struct, frozen=True):
    """All that one system gave in one round. `samples` has no entry for what it has no call for."""

    samples: Mapping[str, Sample]
    peak_mb: float | None = None


Turns = Mapping[str, Sequence[Turn]]
"""By the key of the system."""
Figures = Mapping[str, Mapping[str, Figure]]
"""By the key of the system, then by quantity."""


def figures(turns: Turns) -> dict[str, dict[str, Figure]]:
    return {key: _figures_of(of) for key, of in turns.items()}


def _figures_of(turns: Sequence[Turn]) -> dict[str, Figure]:
    rounds: dict[str, list[float]] = {}
    for turn in turns:
        for name, value in _quantities(turn):
            rounds.setdefault(name, []).append(value)
    return {name: Figure(values) for name, values in rounds.items()}


def _quantities(turn: Turn) -> Iterable[tuple[str, float]]:
    for measure, sample in turn.samples.items():
        if measure == IDLE:
            yield P50, percentile(sample.waits_ms, 50)
            yield P99, percentile(sample.waits_ms, 99)
        else:
            yield measure, sample.rate
    for measure, name in ((SEQUENTIAL, CPU), (BULK, BULK_CPU)):
        if measure in turn.samples:
            yield name, turn.samples[measure].cpu_us
    if turn.peak_mb is not None:
        yield MEMORY, turn.peak_mb


def wrong_jobs(turns: Turns) -> dict[str, int]:
    """Jobs that were lost or ran twice, of the systems that had any."""
    counts = {
        key: sum(sample.wrong for turn in of for sample in turn.samples.values()) for key, of in turns.items()
    }
    return {key: count for key, count in counts.items() if count}


Against = Literal["durable", "any", "pgqueuer"]


class Goal(msgspec.Struct, frozen=True):
    """A ratio that Stoker must reach. `best_of`: what peers are judged by, if not by the same quantity."""

    system: str
    quantity: str
    against: Against
    must: float
    aim: float
    at_most: bool = False
    best_of: tuple[str, ...] = ()


CONCURRENT: Final = (ASYNCIO, THREADS)
"""A peer has a client for one of these, or for both; the better one counts."""
GOALS: Final = (
    Goal(STOKER.key, SEQUENTIAL, "durable", 0.8, 1.2),
    Goal(STOKER.key, FOUR, "durable", 1.5, 2.0),
    Goal(STOKER.key, FOUR, "any", 0.7, 1.0),
    Goal(STOKER.key, ASYNCIO, "any", 3.0, 6.0, best_of=CONCURRENT),
    Goal(STOKER.key, THREADS, "any", 3.0, 6.0, best_of=CONCURRENT),
    Goal(STOKER.key, BULK, "any", 2.5, 4.0),
    Goal(STOKER.key, P50, "any", 1.5, 1.0, at_most=True),
    Goal(STOKER_ON_POSTGRES.key, SEQUENTIAL, "pgqueuer", 0.8, 1.0),
    Goal(STOKER_ON_POSTGRES.key, FOUR, "pgqueuer", 1.2, 1.5),
    Goal(STOKER_ON_POSTGRES.key, BULK, "pgqueuer", 1.1, 1.5),
    Goal(STOKER_ON_POSTGRES.key, P50, "pgqueuer", 1.2, 1.0, at_most=True),
)


class Verdict(msgspec.Struct, frozen=True):
    """A goal and what was measured. `rounds`: the ratio of each round; `peer`: the one that Stoker was held against."""

    goal: Goal
    peer: str
    ratio: float
    rounds: Sequence[float]

    @property
    def met(self) -> bool:
        return _meets(self.ratio, self.goal.must, at_most=self.goal.at_most)

    @property
    def aim_met(self) -> bool:
        return _meets(self.ratio, self.goal.aim, at_most=self.goal.at_most)

    @property
    def text(self) -> str:
        return PASS if self.met else FAIL


def _meets(ratio: float, limit: float, *, at_most: bool) -> bool:
    return ratio <= limit if at_most else ratio >= limit


def verdicts(found: Figures, goals: Sequence[Goal] = GOALS) -> list[Verdict]:
    """Judge every goal for which Stoker and at least one such peer were measured."""
    judged = []
    for goal in goals:
        own = found.get(goal.system, {}).get(goal.quantity)
        best = best_peer(found, goal)
        if own is not None and best is not None:
            key, other = best
            rounds = [a / b for a, b in zip(own.rounds, other.rounds, strict=False) if b]
            judged.append(Verdict(goal, key, own.median / other.median, rounds))
    return judged


def missing(judged: Sequence[Verdict], measured: Sequence[str], goals: Sequence[Goal] = GOALS) -> list[Goal]:
    """Return the goals that this run had to judge and could not, given the systems that it was to measure."""
    known = [verdict.goal for verdict in judged]
    return [
        goal
        for goal in goals
        if goal.system in measured
        and any(_is_peer(key, goal.against) for key in measured)
        and goal not in known
    ]


def best_peer(found: Figures, goal: Goal) -> tuple[str, Figure] | None:
    """Return the key and the figure of the best peer of that kind."""
    candidates = [
        (key, of[quantity])
        for key, of in found.items()
        if _is_peer(key, goal.against)
        for quantity in goal.best_of or (goal.quantity,)
        if quantity in of
    ]
    if not candidates:
        return None
    choose = min if goal.at_most else max
    return choose(candidates, key=lambda candidate: candidate[1].median)


def _is_peer(key: str, against: Against) -> bool:
    system = BY_KEY[key]
    if system.is_stoker:
        return False
    if against == "pgqueuer":
        return key == PGQUEUER.key
    return against == "any" or system.durable
