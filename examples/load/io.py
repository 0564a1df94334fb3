"""Jobs that write files and read them back: `python examples/load/io.py --size 4096`."""

import sys

from driver import Load, Planned, main

LOAD = Load(
    "io",
    "Jobs that write four files each, sync them, read them back and compare.",
    lambda n, size: Planned("io_intensive", {"files": 4, "size_kb": size}),
    jobs=50,
    wave=25,
    size=256,
    size_means="kB per file",
)

if __name__ == "__main__":
    sys.exit(main(LOAD))
