"""Jobs that keep a core busy: `python examples/load/cpu.py --size 1000000`."""

import sys

from driver import Load, Planned, main

LOAD = Load(
    "cpu",
    "Jobs that hash: as many at once as the workers have threads.",
    lambda n, size: Planned("cpu_intensive", {"iterations": size}),
    jobs=50,
    wave=25,
    size=200_000,
    size_means="hashes per job",
)

if __name__ == "__main__":
    sys.exit(main(LOAD))
