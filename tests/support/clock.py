"""A clock that stands still until a test moves it."""

from stoker.clock import SECOND

START_US = 1_800_000_000 * SECOND


class FakeClock:
    def __init__(self) -> None:
        self.now = START_US
        self.mono = 1_000.0

    def now_us(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.mono

    def advance(self, seconds: float) -> None:
        """Time passes, by both clocks."""
        self.now += int(seconds * SECOND)
        self.mono += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.now += int(seconds * SECOND)
