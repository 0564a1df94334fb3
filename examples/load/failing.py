"""Jobs that fail, once or always, among others that do not: `python examples/load/failing.py --jobs 60`.

A third fails once and completes at its second attempt, a third fails for good, a third is sound. Those that failed are left
in the dead letters, where they can be looked at, replayed and discarded: `stoker dlq`.
"""

import sys

from driver import Load, Planned, main

KINDS = (
    Planned("fail", {"times": 1}, max_attempts=3),
    Planned("fail", {"message": "fails for good, as planned"}, ends="failed", max_attempts=1),
    Planned("echo", "sound"),
)

LOAD = Load(
    "failing",
    "A third fails once and is retried, a third fails for good, a third is sound.",
    lambda n, size: KINDS[n % len(KINDS)],
    jobs=30,
    wave=15,
)

if __name__ == "__main__":
    sys.exit(main(LOAD))
