"""Outlives a worker that was killed, just long enough to end what it left behind.

The supervisor tells it, one line each, of the process groups it starts (`+123`) and of those that ended (`-123`).
When the pipe closes the supervisor is gone: every group that is still listed is killed, and so is every process that
carries the worker's session in its environment, which finds those that made a group or a session of their own.

Run as a script with nothing but the standard library's core, so that it is small and starts at once.
"""

import contextlib
import os
import signal
import sys

SWEEPS = 3


def main() -> None:
    marker = sys.argv[1].encode()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = _listen()
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(SWEEPS):  # what was forking while we looked is found the next time
        for pid in _marked(marker):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _listen() -> set[int]:
    """Follow the supervisor until its end of the pipe closes; the groups that it left behind."""
    groups: set[int] = set()
    pending = b""
    while chunk := os.read(0, 65536):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            number = int(line[1:])
            if line[:1] == b"+":
                groups.add(number)
            else:
                groups.discard(number)
    return groups


def _marked(marker: bytes) -> list[int]:
    """Processes that were started under this worker's session, ourselves apart."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/environ", "rb") as file:
                if marker in file.read().split(b"\0"):
                    found.append(int(entry))
    return found


if __name__ == "__main__":
    main()
