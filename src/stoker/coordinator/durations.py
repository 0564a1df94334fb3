"""How long completed jobs waited, ran and took in all: computed once for all observers that count them."""

from collections.abc import Iterable, Mapping
from itertools import repeat
from operator import sub

import msgspec

from stoker.store.outcomes import Completions

Key = tuple[str, str, bool]
"""A queue, a type, and whether it is known when these jobs started; else they seem to have waited until they ended."""


class Durations(msgspec.Struct, frozen=True):
    """Microseconds, one of each for every job, in no order; none is negative, whatever the clocks did."""

    waits: list[int]
    runs: list[int]
    totals: list[int]


def durations_of(completed: Iterable[Completions]) -> Mapping[Key, Durations]:
    """Column by column, without a loop over the jobs: this runs for every one of them."""
    found: dict[Key, Durations] = {}
    for batch in completed:
        claim = batch.claim
        key = (claim.queue, claim.type, batch.started is not None)
        known = found.get(key)
        if known is None:
            known = found[key] = Durations([], [], [])
        started = batch.started or batch.finished
        due = batch.created if claim.run_at == claim.created_at else repeat(claim.run_at)
        known.waits.extend(map(sub, started, due))
        known.runs.extend(map(sub, batch.finished, started))
        known.totals.extend(map(sub, batch.finished, batch.created))
    for known in found.values():
        for column in (known.waits, known.runs, known.totals):
            if min(column) < 0:
                column[:] = [max(0, us) for us in column]
    return found
