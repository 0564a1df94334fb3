"""What a task sees when its soft timeout is over: an exception that leaves it time to tidy up."""

import copyreg
from typing import Any


class SoftTimeout(Exception):
    """Raised in a task after `soft_timeout_sec`, so that it can clean up; at `timeout_sec` it is killed.

    A task that does not catch it fails with this error, and is tried again while it has attempts left.
    """

    def __init__(self, seconds: float | None = None) -> None:
        after = "" if seconds is None else f" of {seconds:g} s"
        super().__init__(f"the job ran for longer than its soft timeout{after}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it leave a process of a `multiprocessing.Pool` with its message."""
        return copyreg.__newobj__, (type(self),), {"args": self.args, **self.__dict__}  # type: ignore[attr-defined]
