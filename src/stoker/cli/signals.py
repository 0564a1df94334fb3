"""Leaving when asked: the first signal starts a graceful end, the second forces it."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Final

FORCED_EXIT: Final = 130
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def on_signals(leave: Callable[[], None], force: Callable[[], None] = lambda: None) -> None:
    """Call `leave` at the first SIGTERM or SIGINT; at the second, `force`, and end the process at once."""
    loop = asyncio.get_running_loop()
    seen = 0

    def handle() -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            leave()
        else:
            force()
            os._exit(FORCED_EXIT)

    for number in _SIGNALS:
        loop.add_signal_handler(number, handle)
