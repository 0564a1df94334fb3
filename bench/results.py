"""What was measured, what it is held against, and how that looks on paper."""

import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

PASS: Final = "PASS"  # noqa: S105 - a verdict
FAIL: Final = "FAIL"


class Target(msgspec.Struct, frozen=True):
    limit: float
    at_least: bool
    timing: bool = True
    """Whether it depends on how fast things are; a smoke run judges only what does not."""

    def met_by(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


class Line(msgspec.Struct, frozen=True):
    """One figure. `value` is None when it could not be taken; `note` says why, or how to read it."""

    name: str
    value: float | None
    unit: str = ""
    rounds: Sequence[float] = ()
    target: Target | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.target is None or self.value is None:
            return ""
        return PASS if self.target.met_by(self.value) else FAIL


def at_least(limit: float) -> Target:
    return Target(limit, True)


def at_most(limit: float) -> Target:
    return Target(limit, False)


def median_line(name: str, rounds: Sequence[float], unit: str) -> Line:
    return Line(name, statistics.median(rounds), unit, rounds)


def ratio_line(name: str, above: Sequence[float], below: Sequence[float], target: Target) -> Line:
    """Median over median; the rounds show the ratios of figures taken next to each other."""
    rounds = [a / b for a, b in zip(above, below, strict=True)]
    return Line(name, statistics.median(above) / statistics.median(below), "", rounds, target)


def wrong_line(name: str, wrong: int) -> Line:
    """Correctness beside a figure: a fast run that lost a job is no run."""
    return Line(name, wrong, "", (), Target(0, at_least=False, timing=False))


def percentile(values: Sequence[float], percent: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


def unjudged(line: Line) -> Line:
    """The line as a smoke run shows it."""
    if line.target is None or not line.target.timing:
        return line
    return msgspec.structs.replace(line, target=None)


def number(value: float) -> str:
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:,.2f}"


def table(lines: Sequence[Line]) -> str:
    rows = [("Measurement", "Value", "Rounds", "Target", "Verdict")]
    rows += [_row(line) for line in lines]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    rows.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2], "-" * widths[3], "-" * widths[4]))
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(line: Line) -> tuple[str, str, str, str, str]:
    value = line.note if line.value is None else f"{number(line.value)} {line.unit}".rstrip()
    rounds = " ".join(number(value) for value in line.rounds)
    return line.name, value, rounds, "" if line.target is None else str(line.target), line.verdict


class Report(msgspec.Struct, frozen=True):
    """Everything that a run found, as `--json` saves it."""

    environment: dict[str, str]
    quick: bool
    lines: Sequence[Line]
    verdicts: dict[str, str]
    notes: Sequence[str]
    failures: Sequence[str]
    seconds: float
