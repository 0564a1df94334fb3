"""Many small jobs in waves: `python examples/load/high_volume.py --jobs 5000 --wave 100`."""

import sys

from driver import Load, Planned, main

LOAD = Load(
    "high-volume",
    "Many small jobs, in waves of 25 requests at once.",
    lambda n, size: Planned("echo", {"number": n}),
    jobs=200,
    wave=25,
)

if __name__ == "__main__":
    sys.exit(main(LOAD))
