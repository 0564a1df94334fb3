"""Jobs that make HTTP calls on the worker's own machine: `python examples/load/network.py --size 100`."""

import sys

from driver import Load, Planned, main

LOAD = Load(
    "network",
    "Jobs that call a small HTTP server on loopback.",
    lambda n, size: Planned("network_task", {"requests": size}),
    jobs=50,
    wave=25,
    size=20,
    size_means="calls per job",
)

if __name__ == "__main__":
    sys.exit(main(LOAD))
