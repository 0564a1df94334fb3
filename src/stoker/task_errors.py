"""What a task raises to say what should become of its job.

    raise stoker.RetryAfter(30)          # try again in 30 s; costs an attempt, and is final when it was the last
    raise stoker.Snooze(60)              # not now: come back in 60 s; costs nothing, at most 1,000 times
    raise stoker.Fail("no such invoice")  # no retry can mend this: the job is a dead letter at once

They work in sync and async tasks, whatever the retry policy of the job says.
"""

import copyreg
import math
from typing import Any

from stoker.domain.retry_rules import MAX_ASKED_SEC


class TaskSignal(Exception):
    """The base of these three. Code that catches every `Exception` should let it pass."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it leave a process of a `multiprocessing.Pool` with its message and its seconds."""
        return copyreg.__newobj__, (type(self),), {"args": self.args, **self.__dict__}  # type: ignore[attr-defined]


class RetryAfter(TaskSignal):
    """Raise in a task to fail this attempt and begin the next one `seconds` from now, whatever the retry policy says."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        self.seconds = _seconds("RetryAfter", seconds)
        super().__init__(reason or f"the task asked to be tried again after {self.seconds:g} s")


class Snooze(TaskSignal):
    """Raise in a task to run the job again `seconds` from now, without counting this attempt."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        self.seconds = _seconds("Snooze", seconds)
        super().__init__(reason or f"the task asked to come back after {self.seconds:g} s")


class Fail(TaskSignal):
    """Raise in a task to fail the job for good, without retries. It becomes a dead letter with this reason."""

    retryable = False

    def __init__(self, reason: str = "the task gave up") -> None:
        super().__init__(reason)


def _seconds(what: str, seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{what} takes a number of seconds, not {type(seconds).__name__}")
    if not math.isfinite(seconds) or not 0 <= seconds <= MAX_ASKED_SEC:
        raise ValueError(f"{what}({seconds}): seconds must be from 0 to {MAX_ASKED_SEC:.0f}")
    return float(seconds)
