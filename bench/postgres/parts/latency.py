"""How soon a job starts when there is nothing else to do: from just before it is submitted until its code runs.

Peers note the wall clock in the job itself; Stoker's jobs carry the time of their start.
"""

from collections.abc import Sequence

from bench.postgres.contenders import Contender
from bench.postgres.context import Context
from bench.results import Line, percentile, wrong_line


def run(context: Context, contenders: Sequence[Contender]) -> list[Line]:
    lines: list[Line] = []
    sizes = context.sizes
    for contender in contenders:
        with context.place(contender.name) as place:
            delays = contender.idle(place, sizes.idle_submits, sizes.idle_gap_seconds)
        wrong = max(delays.wrong, sizes.idle_submits - len(delays.starts))
        name = f"idle submit to start, {contender.name}"
        lines += [
            Line(f"{name}, p50", percentile(delays.starts, 50), "ms"),
            Line(f"{name}, p99", percentile(delays.starts, 99), "ms"),
            wrong_line(f"{name}: jobs lost, doubled or wrong", wrong),
        ]
        context.progress(f"{name}: p50 {percentile(delays.starts, 50):.2f} ms")
    return lines
