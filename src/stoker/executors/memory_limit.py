"""The limit on memory that a job runs under."""

from typing import Final

from stoker.system import SYSTEM

_MB: Final = 1024 * 1024
_SLACK_BYTES: Final = 16 * _MB


class MemoryLimit:
    """Limits what one job may allocate beyond what the process has now; above it Python raises `MemoryError`."""

    def __init__(self, memory_mb: int | None) -> None:
        self._memory_mb = memory_mb

    def __enter__(self) -> None:
        if self._memory_mb is not None:
            SYSTEM.limit_own_memory(self._memory_mb * _MB + _SLACK_BYTES)

    def __exit__(self, *_: object) -> None:
        if self._memory_mb is not None:
            SYSTEM.limit_own_memory(None)
