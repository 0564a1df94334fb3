"""How many file descriptors a worker needs, judged before it starts.

A child process holds some of the worker's descriptors for as long as it lives, and a few more while it is being started. A
worker that runs out of them in the middle of its work can start no process and open no connection, so the limit is looked
at first: it is raised as far as the system allows, then threads are given up, and with less than one thread needs the
worker does not start.
"""

import resource
from typing import Final

from stoker.worker.supervisor import StartFailed

OWN: Final = 14
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
    limit = _raise_limit(needed(asked, kinds=kinds))
    threads = affordable(asked, limit, kinds=kinds)
    if threads == 0:
        raise StartFailed(
            f"this process may open {limit} files, and a worker with one thread needs {needed(1, kinds=kinds)}: "
            "raise the limit (`ulimit -n`, LimitNOFILE= of systemd, --ulimit nofile= of Docker)"
        )
    return threads


def _raise_limit(wanted: int) -> int:
    """Raise the soft limit to what is wanted, as far as the hard one allows. Return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        new = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, new), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
