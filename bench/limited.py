"""Run a command with a limit on its address space: `python limited.py MIB COMMAND…`."""

import os
import resource
import sys


def main() -> None:
    mib, command = int(sys.argv[1]), sys.argv[2:]
    resource.setrlimit(resource.RLIMIT_AS, (mib * 1024 * 1024, mib * 1024 * 1024))
    os.execvp(command[0], command)  # noqa: S606 - an argv, no shell


if __name__ == "__main__":
    main()
