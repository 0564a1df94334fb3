"""The guardian: outlives a worker that was killed, just long enough to kill the processes of its jobs.

The supervisor writes a line to its stdin for each process group that it starts (`+123`) and that ended (`-123`). When the
pipe closes, the supervisor is gone: the guardian kills every group that is still listed, and every process that carries one
of the worker's marks: its session in the environment, or its number as the soft limit on file locks (`linux_orphans.py`).
The marks find processes that left their group and session, even with an empty environment. Only Linux has the number;
elsewhere environments are read by `psutil`.

Run as a script that on Linux imports only the core of the standard library, so that it is small and starts at once.
"""

import contextlib
import os
import signal
import sys

SWEEPS = 50
COUNT_BITS = 20


def main() -> None:
    marker = sys.argv[1]
    family = int(sys.argv[2]) if len(sys.argv) > 2 else None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = _listen()
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(SWEEPS):  # a process that forked during one sweep is found by the next
        found = with_variable(marker) if family is None else _marked(marker.encode(), family)
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            break


def _listen() -> set[int]:
    """Read from the supervisor until the pipe closes, and return the groups that it left behind."""
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


def with_variable(marker: str) -> list[int]:
    """Return other living processes with this variable in their environment; none where `psutil` is missing."""
    try:
        import psutil
    except ImportError:
        return []
    name, _, value = marker.partition("=")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            named = process.pid != os.getpid() and process.environ().get(name) == value
            if named and process.status() not in ("zombie", "dead"):
                found.append(process.pid)
    return found


def _marked(marker: bytes, family: int) -> list[int]:
    """Return other living processes that carry one of the worker's marks."""
    others = [entry for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid()]
    return [int(entry) for entry in others if _carries(entry, marker, family)]


def _carries(pid: str, marker: bytes, family: int) -> bool:
    if _read(pid, "stat").rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"]):
        return False
    if marker in _read(pid, "environ").split(b"\0"):
        return True
    number = _read(pid, "limits").partition(b"Max file locks")[2].split(None, 1)[:1]
    return bool(number) and number[0].isdigit() and int(number[0]) >> COUNT_BITS == family


def _read(pid: str, name: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
    return b""


if __name__ == "__main__":
    main()
