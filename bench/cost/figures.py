"""From costs to tables: medians and spreads of one revision, quotients of two, and what is too much."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from bench.cost.measure import IDLE, Cost
from bench.cost.workloads import COUNTS_ONLY
from bench.results import number

ALL: Final = "all"
CPU: Final = "CPU"
CALLS: Final = "calls"
WORKING: Final = "working calls"
TRANSACTIONS: Final = "transactions"
RATE: Final = "rate"


class Subject(msgspec.Struct, frozen=True, order=True):
    """What a cost is of."""

    store: str
    workload: str


Costs = Mapping[Subject, Sequence[Cost]]
"""Several of each, in the order in which they were taken."""


class Bounds(msgspec.Struct, frozen=True):
    """How much more than before is too much: quotients of this revision and the base."""

    most: float = 1.03
    """Of CPU time, system calls and transactions."""
    least_rate: float = 0.9


class Quotient(msgspec.Struct, frozen=True):
    """This revision over the base. `value` is the median of the pairs."""

    subject: Subject
    role: str
    metric: str
    value: float
    pairs: Sequence[float]
    exceeded: bool


def _cpu(cost: Cost, role: str) -> float | None:
    return _of_role(cost.cpu_us, role)


def _calls(cost: Cost, role: str) -> float | None:
    return _of_role(cost.calls, role)


def _working(cost: Cost, role: str) -> float | None:
    return _of_role(cost.working, role)


def _of_role(counts: Mapping[str, float], role: str) -> float | None:
    if not counts:
        return None
    return sum(counts.values()) if role == ALL else counts.get(role)


def _transactions(cost: Cost, role: str) -> float | None:
    return cost.transactions if role == ALL else None


def _rate(cost: Cost, role: str) -> float | None:
    return cost.rate if role == ALL else None


METRICS: Final[dict[str, Callable[[Cost, str], float | None]]] = {
    CPU: _cpu,
    CALLS: _calls,
    WORKING: _working,
    TRANSACTIONS: _transactions,
    RATE: _rate,
}
_HEADS: Final = ("CPU µs/job", "calls/job", "working calls", "transactions/job", "jobs/s")


def _roles(costs: Sequence[Cost]) -> list[str]:
    return [*costs[0].cpu_us, ALL]


def quotients(this: Costs, base: Costs, bounds: Bounds) -> list[Quotient]:
    """Every quotient that can be made. Those of all processes together are held against the bounds; `idle` is not."""
    found = []
    for subject, costs in this.items():
        for role in _roles(costs):
            for metric, value in METRICS.items():
                pairs = _pairs(
                    [value(cost, role) for cost in costs], [value(cost, role) for cost in base[subject]]
                )
                if pairs and not (subject.workload == IDLE and metric == RATE):
                    median = statistics.median(pairs)
                    exceeded = _is_judged(subject, role, metric) and _exceeds(metric, median, bounds)
                    found.append(Quotient(subject, role, metric, median, pairs, exceeded))
    return found


def _is_judged(subject: Subject, role: str, metric: str) -> bool:
    by_clock = metric in (CPU, RATE)
    return role == ALL and subject.workload != IDLE and not (by_clock and subject.workload in COUNTS_ONLY)


def _pairs(above: Sequence[float | None], below: Sequence[float | None]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True) if a is not None and b]


def _exceeds(metric: str, quotient: float, bounds: Bounds) -> bool:
    return quotient < bounds.least_rate if metric == RATE else quotient > bounds.most


def cost_table(costs: Costs) -> str:
    """Medians; behind each, half of the range of the rounds as a share of it."""
    rows: list[Sequence[str]] = [("store", "workload", "process", *_HEADS)]
    for subject, several in costs.items():
        for role in _roles(several):
            cells = [
                _spread_cell([value(cost, role) for cost in several])
                if not (metric == RATE and subject.workload == IDLE)
                else ""
                for metric, value in METRICS.items()
            ]
            rows.append((subject.store, subject.workload, role, *cells))
    return _aligned(rows)


def _spread_cell(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    median = statistics.median(known)
    spread = (max(known) - min(known)) / 2 / median if median else 0.0
    return _figure(median) + (f" ±{spread:.0%}" if len(known) > 1 else "")


def _figure(value: float) -> str:
    return f"{value:.4f}" if 0 < value < 0.1 else number(round(value, 2))


def quotient_table(found: Sequence[Quotient]) -> str:
    """The median of the pairs and their range; a `!` where a bound is exceeded."""
    rows: list[Sequence[str]] = [("store", "workload", "process", *METRICS)]
    cells = {(each.subject, each.role, each.metric): _quotient_cell(each) for each in found}
    for subject, role in dict.fromkeys((each.subject, each.role) for each in found):
        rows.append(
            (
                subject.store,
                subject.workload,
                role,
                *(cells.get((subject, role, metric), "") for metric in METRICS),
            )
        )
    return _aligned(rows)


def _quotient_cell(quotient: Quotient) -> str:
    mark = " !" if quotient.exceeded else ""
    spread = f" ({min(quotient.pairs):.2f} to {max(quotient.pairs):.2f})" if len(quotient.pairs) > 1 else ""
    return f"{quotient.value:.3f}{spread}{mark}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in lines
    )
