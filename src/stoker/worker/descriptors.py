"""How many file descriptors a worker needs, judged before it starts.

A child process holds some of the worker's descriptors for as long as it lives, and a few more while it is being started. A
worker that runs out of them in the middle of its work can start no process and open no connection, so the limit is looked
at first: it is raised as far as the system allows, then threads are given up, and with less than one thread needs the
worker does not start.
"""

from typing import Final

from stoker.system import SYSTEM
from stoker.worker.supervisor import StartFailed

OWN: Final = 14 + SYSTEM.lifeline_descriptors
"""Standard streams, event loop, guardian, one connection and another that replaces it, files that are read now and
then."""
WHILE_STARTING: Final = 8
"""What the start of one child needs in addition, until it runs."""
PER_CHILD: Final = 4


def needed(threads: int, *, kinds: int) -> int:
    """Return the descriptors that a worker needs with children of `kinds` kinds for each thread, and one for async tasks."""
    return OWN + WHILE_STARTING + PER_CHILD * (threads * kinds + 1)


def affordable(asked: int, limit: int, *, kinds: int) -> int:
    """Return the threads that fit within the limit, at most those asked for; 0 when not even one does."""
    if needed(asked, kinds=kinds) <= limit:
        return asked
    return max(0, (limit - needed(0, kinds=kinds)) // (PER_CHILD * kinds))


def secure(asked: int, *, kinds: int) -> int:
    """Make sure of the descriptors for so many threads. Return how many can be had; raises `StartFailed` for none."""
    limit = SYSTEM.raise_file_limit(needed(asked, kinds=kinds))
    threads = affordable(asked, limit, kinds=kinds)
    if threads == 0:
        raise StartFailed(
            f"this process may open {limit} files, and a worker with one thread needs {needed(1, kinds=kinds)}: "
            "raise the limit (`ulimit -n`, LimitNOFILE= of systemd, --ulimit nofile= of Docker)"
        )
    return threads
