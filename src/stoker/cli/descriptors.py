"""How many file descriptors a coordinator may use, and how many of them its clients.

A process that has none left closes new connections without a word, and can open neither its database nor anything else. So
the soft limit is raised as far as the system allows, a part is kept for the coordinator itself, and too little for that is
said at the start.
"""

from typing import Final

from stoker.system import SYSTEM

WANTED: Final = 65_536
OWN: Final = 40
"""Standard streams, event loop, listener, the database with its readers, files that are read now and then."""
FEWEST: Final = 8
"""Connections without which a coordinator is of no use."""
OWN_PART: Final = 8
"""One descriptor in this many is kept too: pools, webhooks, web services that are dialled as workers."""


class TooFew(Exception):
    """This process may not open the files that a coordinator needs."""


def connections() -> int:
    """Raise the limit on open files. Return how many connections clients may hold. Raises `TooFew`."""
    limit = SYSTEM.raise_file_limit(WANTED)
    if limit < OWN + FEWEST:
        raise TooFew(
            f"this process may open {limit} files, and a coordinator needs {OWN + FEWEST}: raise the limit (`ulimit -n`, "
            "LimitNOFILE= of systemd, --ulimit nofile= of Docker)"
        )
    return limit - max(OWN, limit // OWN_PART)
