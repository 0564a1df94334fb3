"""Leaving when asked: the first signal starts a graceful end, the second forces it."""

import os
import signal
from collections.abc import Callable
from typing import Final

from stoker.system import SYSTEM

FORCED_EXIT: Final = 130
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def on_signals(leave: Callable[[], None], force: Callable[[], None] = lambda: None) -> None:
    """Call `leave` at the first SIGTERM or SIGINT; at the second, `force`, and end the process at once."""
    seen = 0

    def handle() -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            leave()
        else:
            force()
            os._exit(FORCED_EXIT)

    SYSTEM.on_signals(_SIGNALS, handle)
