"""Whether a socket has something to read, on every system."""

import select
import socket


def has_input(connection: socket.socket) -> bool:
    """Return whether a read would not wait, also at the end of the stream. Raises `OSError` or `ValueError` when closed."""
    if hasattr(select, "poll"):
        # `select` cannot watch descriptors above 1,023, which a busy process has; Windows has nothing else.
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([connection], [], [], 0)[0])
