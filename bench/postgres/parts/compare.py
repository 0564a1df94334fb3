"""How many jobs a second, end to end, one by one and in batches, for Stoker and its peers.

All contenders take turns in each round, so that a machine that is busy for a while is busy for all of them.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Final

from bench.postgres.contenders import Contender, Work
from bench.postgres.context import PGQUEUER, PROCRASTINATE, STOKER, Context
from bench.results import Line, at_least, median_line, ratio_line, wrong_line

SINGLES_OF_BEST: Final = at_least(2.0)
BATCHES_OF_PGQUEUER: Final = at_least(1.0)
BATCHES_OF_PROCRASTINATE: Final = at_least(20.0)
AIM: Final = "aim: 1.5"


class Tally:
    """The rates of one contender, and what was wrong in them."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.wrong = 0

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


def singles(context: Context, contenders: Sequence[Contender]) -> list[Line]:
    sizes = context.sizes
    name = "one job per submit"
    tallies = _rounds(context, contenders, name, lambda who: Work(sizes.singles.of(who), sizes.producers))
    lines = _rates(tallies, name)
    if STOKER in tallies and len(tallies) > 1:
        best = max((who for who in tallies if who != STOKER), key=lambda who: tallies[who].rate)
        title = f"{name}: {STOKER} / {best}, the better peer"
        lines.append(ratio_line(title, tallies[STOKER].rates, tallies[best].rates, SINGLES_OF_BEST))
    return lines


def batches(context: Context, contenders: Sequence[Contender]) -> list[Line]:
    sizes = context.sizes
    name = f"batches of {sizes.batch}"
    tallies = _rounds(
        context, contenders, name, lambda who: Work(sizes.batched.of(who), sizes.batch_producers, sizes.batch)
    )
    lines = _rates(tallies, name)
    judged = {PGQUEUER: (BATCHES_OF_PGQUEUER, f" ({AIM})"), PROCRASTINATE: (BATCHES_OF_PROCRASTINATE, "")}
    for who, (target, aim) in judged.items():
        if STOKER in tallies and who in tallies:
            title = f"{name}: {STOKER} / {who}{aim}"
            lines.append(ratio_line(title, tallies[STOKER].rates, tallies[who].rates, target))
    return lines


def _rounds(
    context: Context, contenders: Sequence[Contender], name: str, work_of: Callable[[str], Work]
) -> dict[str, Tally]:
    tallies = {contender.name: Tally() for contender in contenders}
    for round in range(1, context.sizes.rounds + 1):
        for contender in contenders:
            with context.place(contender.name) as place:
                outcome = contender.end_to_end(place, work_of(contender.name))
            tallies[contender.name].rates.append(outcome.rate)
            tallies[contender.name].wrong += outcome.wrong
            said = f"{name}, round {round} of {context.sizes.rounds}, {contender.name}: {outcome.rate:,.0f}/s"
            context.progress(f"{said}, {outcome.wrong} wrong" if outcome.wrong else said)
    return tallies


def _rates(tallies: dict[str, Tally], name: str) -> list[Line]:
    lines = [median_line(f"{name}, {who}", tally.rates, "jobs/s") for who, tally in tallies.items()]
    for who, tally in tallies.items():
        lines.append(wrong_line(f"{name}, {who}: jobs lost, doubled or wrong", tally.wrong))
    return lines
