"""Run a command that cannot outlive its parent: `python tether.py PARENT_PID COMMAND…`.

The kernel kills the command when the parent dies, however it dies. Standard library only, since this runs before every
process of the benchmark.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent not in (0, os.getppid()):  # it died before the line above
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606 - an argv, no shell


if __name__ == "__main__":
    main()
