"""Keys pressed while a screen is shown."""

from __future__ import annotations

import os
import select
import sys
import time
from types import TracebackType
from typing import Any, Self

termios: Any
tty: Any
try:
    import termios
    import tty
except ImportError:  # Windows: there only Ctrl-C quits
    termios = tty = None


class Keys:
    """Reads single key presses inside its `with` block; none where stdin is not a terminal."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if termios is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
            self._before = None

    def quit_within(self, seconds: float) -> bool:
        """Wait up to `seconds`. Return whether q was pressed, which ends the wait, or the terminal is gone."""
        if self._before is None:
            time.sleep(seconds)
            return False
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([sys.stdin], [], [], left)[0]:
                pressed = os.read(sys.stdin.fileno(), 64)
                if not pressed or b"q" in pressed.lower():  # nothing: the terminal is gone
                    return True
        return False
