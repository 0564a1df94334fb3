"""Figures as Markdown. Pure functions."""

from collections.abc import Mapping, Sequence
from typing import Final

from bench.peers.drivers.kit import ASYNCIO, BULK, SEQUENTIAL, THREADS
from bench.peers.figures import BULK_CPU, CPU, MEMORY, P50, P99, Figure, Figures, Verdict
from bench.peers.running import FOUR
from bench.peers.systems import BY_KEY, SYSTEMS, PeerSystem

NONE: Final = "\N{EN DASH}"
NAMES: Final = {
    SEQUENTIAL: "one sequential producer",
    FOUR: "4 producer processes",
    ASYNCIO: "64 asyncio tasks",
    THREADS: "64 threads",
    BULK: "bulk, 1,000 a call",
    P50: "idle submit → start, p50",
}
_COLUMNS: Final = (
    (SEQUENTIAL, "one sequential producer"),
    (FOUR, "4 producer processes"),
    (BULK, "bulk, 1,000 a call"),
    (ASYNCIO, "64 asyncio tasks"),
    (THREADS, "64 threads"),
)
AGAINST: Final = {"durable": "best durable peer", "any": "best peer", "pgqueuer": "pgqueuer"}


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; nothing when there are no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure_table(found: Figures, *, spreads: bool = True) -> str:
    """A row for each system, in the order of the table of systems; Stoker's in bold."""
    head = ["", "durable", *(title for _, title in _COLUMNS)]
    head += ["idle submit → start, p50 / p99 ms", "CPU µs a job: sequential / bulk", "peak memory MB"]
    return markdown(
        head, [_row(system, found[system.key], spreads) for system in SYSTEMS if system.key in found]
    )


def _row(system: PeerSystem, of: Mapping[str, Figure], spreads: bool) -> list[str]:
    cells = ["yes" if system.durable else "no"]
    cells += [_rate(of.get(name), spreads) for name, _ in _COLUMNS]
    cells.append(_pair(of.get(P50), of.get(P99), 2))
    cells.append(_pair(of.get(CPU), of.get(BULK_CPU), 0))
    cells.append(NONE if MEMORY not in of else f"{of[MEMORY].median:,.0f}")
    if system.is_stoker:
        return [f"**{cell}**" for cell in (system.title, *cells)]
    return [system.title, *cells]


def _rate(figure: Figure | None, spreads: bool) -> str:
    if figure is None:
        return NONE
    spread = f" ±{figure.spread:.0%}" if spreads and len(figure.rounds) > 1 else ""
    return f"{figure.median:,.0f}{spread}"


def _pair(first: Figure | None, second: Figure | None, digits: int) -> str:
    if first is None and second is None:
        return NONE
    return " / ".join(NONE if each is None else f"{each.median:,.{digits}f}" for each in (first, second))


def verdict_table(judged: Sequence[Verdict]) -> str:
    head = ["", "held against", "ratio (rounds)", "must", "aim", "verdict"]
    return markdown(head, [_verdict_row(verdict) for verdict in judged])


def _verdict_row(verdict: Verdict) -> list[str]:
    goal = verdict.goal
    sign = "≤" if goal.at_most else "≥"
    rounds = f" ({min(verdict.rounds):.2f} to {max(verdict.rounds):.2f})" if len(verdict.rounds) > 1 else ""
    return [
        f"{BY_KEY[goal.system].title}: {NAMES[goal.quantity]}",
        f"{AGAINST[goal.against]}: {BY_KEY[verdict.peer].title}",
        f"{verdict.ratio:.2f}{rounds}",
        f"{sign} {goal.must:g}",
        f"{sign} {goal.aim:g}{' (reached)' if verdict.aim_met else ''}",
        verdict.text,
    ]


def settings_table(systems: Sequence[PeerSystem]) -> str:
    rows = [
        [system.title, ", ".join(map(_package, system.requirements)), system.settings, system.reason]
        for system in systems
    ]
    return markdown(["System", "Packages", "Settings", "Why"], rows)


def _package(requirement: str) -> str:
    """`celery[redis]==5.7.0` as `celery 5.7.0`."""
    name, _, version = requirement.partition("==")
    return f"{name.partition('[')[0].partition('>')[0]} {version}".strip()
