"""How long jobs that completed waited, ran and took, as everybody who counts them wants to know it: worked out once."""

from collections.abc import Iterable, Mapping

import msgspec

from stoker.store.base import Completions

Key = tuple[str, str, bool]
"""A queue, a type, and whether it is known when these jobs started; else they seem to have waited until they ended."""


class Durations(msgspec.Struct, frozen=True):
    """Microseconds, one of each for every job, in no order; none is negative, whatever the clocks did."""

    waits: list[int]
    runs: list[int]
    totals: list[int]


def durations_of(completed: Iterable[Completions]) -> Mapping[Key, Durations]:
    """One loop and no calls: this runs for every job."""
    found: dict[Key, Durations] = {}
    for lot in completed:
        claim = lot.claim
        key = (claim.queue, claim.type, lot.rows[0][2] is not None)
        known = found.get(key)
        if known is None:
            known = found[key] = Durations([], [], [])
        waits, runs, totals = known.waits, known.runs, known.totals
        due = None if claim.run_at == claim.created_at else claim.run_at
        for created_at, (_, _, started, finished, _, _, _) in zip(lot.created, lot.rows, strict=True):
            if started is None:
                started = finished
            waits.append(started - (created_at if due is None else due))
            runs.append(finished - started)
            totals.append(finished - created_at)
    for known in found.values():
        for column in (known.waits, known.runs, known.totals):
            if min(column) < 0:
                column[:] = [max(0, us) for us in column]
    return found
