"""The soft timeout that a sync Python job runs under."""

from contextlib import AbstractContextManager, nullcontext

from stoker.soft_timeout import SoftTimeout
from stoker.system.interrupt import Interrupt


def soft_limit(seconds: float | None) -> AbstractContextManager[None]:
    """Return a `with` block that raises `SoftTimeout` in the main thread after `seconds`; None for no limit."""
    return nullcontext() if seconds is None else Interrupt(seconds, SoftTimeout)
