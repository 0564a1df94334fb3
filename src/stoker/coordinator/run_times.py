"""How long jobs of a type take, as observed: what the prefetch is measured with."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stoker.domain.placement import PREFETCH_US

_WEIGHT: Final = 0.2
_MAX_TYPES: Final = 10_000
_SAMPLES: Final = 51


class RunTimes:
    """A moving average of run times by type, in microseconds."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}
        self.us: dict[str, int] = {}
        self._samples: dict[str, deque[int]] = {}

    def observe(self, runs: Iterable[tuple[str, Sequence[int]]]) -> None:
        """Take in the runs of one frame: (type, microseconds of each). One that was too
        slow for a prefetch counts whole, so that its type loses the prefetch at once and regains it gradually."""
        by_type: dict[str, list[int]] = {}
        for type, us in runs:
            by_type.setdefault(type, []).extend(us)
        for type, times in by_type.items():
            if not times:
                continue
            seen = sum(times) / len(times)
            known = self._average.get(type)
            average = seen if known is None else known + _WEIGHT * (seen - known)
            slowest = max(times)
            if slowest >= PREFETCH_US:
                average = max(average, slowest)
            if len(self._average) < _MAX_TYPES or known is not None:
                self._average[type] = average
                self.us[type] = int(average)
                # One of each frame is enough for a median, and costs a busy coordinator next to nothing.
                self._samples.setdefault(type, deque(maxlen=_SAMPLES)).append(times[len(times) // 2])

    def p50_us(self, type: str) -> int | None:
        """Return what half of the latest runs do not exceed; None for a type that was not seen."""
        samples = self._samples.get(type)
        return None if samples is None else sorted(samples)[(len(samples) - 1) // 2]

    def view(self) -> Mapping[str, int]:
        return self.us
