"""How many bytes of payloads a coordinator had in a claim, and waiting for a worker's connection: counted from outside.

What a claim hands out is counted where the store answers; it waits for a connection until a frame with it was taken by the
network, which is slow when much is on the way (`tests.sim.net.Pipe`). Small payloads are left out.
"""

from collections import Counter
from typing import Any, Final

from stoker.coordinator.dispatch import Dispatch
from stoker.domain.byte_bounds import ByteBounds
from stoker.store.claims import Granted
from stoker.wire import codec, frames
from tests.checkers.history import Bytes

BOUNDS: Final = ByteBounds(claim=96 * 1024, line=64 * 1024, held=256 * 1024)
"""A thousandth of what is usual, and so are the payloads."""
LARGE: Final = 8 * 1024
LARGEST: Final = 60 * 1024


class Meter:
    def __init__(self) -> None:
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._peaks: Counter[str] = Counter()

    def watch_claims(self, dispatch: Dispatch, process: str) -> None:
        """Count what each claim of this coordinator hands out."""
        take = dispatch.granted

        def counted(granted: Granted) -> None:
            total = 0
            for grant in granted.grants:
                size = _large(grant.batch.payloads)
                total += size
                self._waiting[process, grant.session_id] += size
                self._peak("line", self._waiting[process, grant.session_id])
            self._peak("claim", total)
            take(granted)

        dispatch.granted = counted  # type: ignore[method-assign]

    def opened(self, process: str, session: str) -> None:
        """A connection is new: nothing waits for it."""
        self._waiting[process, session] = 0

    def taken(self, process: str, session: str, data: Any) -> None:
        """The network took a frame."""
        if isinstance(data, bytes) and len(data) > LARGE:
            frame = codec.decode_to_worker(data)
            if isinstance(frame, frames.Assign):
                payloads = [job.payload for job in frame.jobs]
                payloads += [payload for batch in frame.batches for payload in batch.payloads]
                self._waiting[process, session] -= _large(payloads)

    def _peak(self, place: str, size: int) -> None:
        self._peaks[place] = max(self._peaks[place], size)

    def seen(self) -> list[Bytes]:
        bounds = {"claim": BOUNDS.claim, "line": BOUNDS.line}
        return [Bytes(place, self._peaks[place], bound, LARGEST) for place, bound in bounds.items()]


def _large(payloads: list[bytes]) -> int:
    return sum(len(payload) for payload in payloads if len(payload) > LARGE)
