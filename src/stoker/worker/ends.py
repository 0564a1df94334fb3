"""Outcomes that wait to be reported: completed work in columns, everything else one by one.

Times are readings of the monotonic clock until a frame is made. Only then do they become how long ago that was, because
a frame that is sent again is sent later. Making a frame is the one place where outcomes take the form of the wire.
"""

from typing import Final

from stoker.clock import SECOND
from stoker.executors.pipe import OutcomeBatch, WorkOutcome
from stoker.wire.frames import Done, Report, Reports

REPORT_FRAME_BYTES: Final = 1024 * 1024
REPORT_FRAME_JOBS: Final = 1_000
REPORT_EVERY_SECONDS: Final = 0.005
GATHER_SECONDS: Final = 0.003
"""How long a report waits for others where more jobs are here than threads: short ones that were sent ahead end soon."""
_REPORT_BYTES: Final = 200
"""What a report has beside its result or error, and a little more."""


def report_at(now: float, last: float, *, more: bool) -> float:
    """Return when to report what ended now. `last`: when something was reported; `more`: whether the
    worker has more jobs than threads."""
    due = last + REPORT_EVERY_SECONDS
    return max(due, now + GATHER_SECONDS) if more else due


class Unreported:
    """Keeps outcomes until a coordinator acknowledges them: unsent ones, and sent ones by the number of their frame."""

    def __init__(self) -> None:
        self.unsent: list[OutcomeBatch] = []
        self.unacknowledged: dict[int, OutcomeBatch] = {}
        self.in_batches = False
        """Whether the coordinator reads what completed in columns."""
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self.unsent or self.unacknowledged)

    def forget(self) -> None:
        """Drop everything: the session that it belongs to is lost."""
        self.unsent.clear()
        self.unacknowledged.clear()

    def claims_among(self, ids: set[str]) -> dict[str, int]:
        """Return the claims under which jobs of these ids ended; of several claims of a job the latest."""
        known: dict[str, int] = {}
        for ended in (*self.unacknowledged.values(), *self.unsent):
            if ended.others or not ids.isdisjoint(ended.ids):
                pairs = [*zip(ended.ids, ended.claim_ids, strict=True)]
                pairs += [(one.id, one.claim_id) for one in ended.others]
                known.update({id: claim_id for id, claim_id in pairs if id in ids})
        return known

    def next_frames(self, now: float) -> list[Reports]:
        """Return frames of all unsent outcomes, which are kept until they are acknowledged."""
        if not self.unsent:
            return []
        ended = self.unsent[0] if len(self.unsent) == 1 else OutcomeBatch.merged(self.unsent)
        self.unsent = []
        frames: list[Reports] = []
        for part in split(ended):
            self._number += 1
            self.unacknowledged[self._number] = part
            frames.append(frame(part, self._number, now, batches=self.in_batches))
        return frames

    def frames_again(self, now: float) -> list[Reports]:
        """Return the frames that were sent and not acknowledged, with their numbers."""
        return [
            frame(part, number, now, batches=self.in_batches) for number, part in self.unacknowledged.items()
        ]


def frame(ended: OutcomeBatch, number: int, now: float, *, batches: bool) -> Reports:
    """Build the frame that reports these outcomes: completed work in columns, if the coordinator reads `batches`."""
    if not batches:
        return Reports(number, [report(one, now) for one in ended])
    done = Done(
        ended.ids,
        ended.claim_ids,
        ended.results,
        [int((now - at) * SECOND) if at < now else 0 for at in ended.started],
        [int((now - at) * SECOND) if at < now else 0 for at in ended.finished],
        ended.cpu_us,
        ended.peak_memory_kb,
    )
    return Reports(number, [report(one, now) for one in ended.others], done if ended.ids else None)


def split(ended: OutcomeBatch) -> list[OutcomeBatch]:
    """Divide into pieces of which none makes too large a frame; one large result travels alone."""
    weights = [len(result) + _REPORT_BYTES for result in ended.results]
    weights += [len(one.result or one.error or b"") + _REPORT_BYTES for one in ended.others]
    if sum(weights) <= REPORT_FRAME_BYTES and 0 < len(weights) <= REPORT_FRAME_JOBS:
        return [ended]
    found: list[tuple[int, int]] = []
    size = 0
    for at, weight in enumerate(weights):
        if not found or size + weight > REPORT_FRAME_BYTES or at - found[-1][0] >= REPORT_FRAME_JOBS:
            found.append((at, at))
            size = 0
        found[-1] = (found[-1][0], at + 1)
        size += weight
    return [ended.part(first, end) for first, end in found]


def report(ended: WorkOutcome, now: float) -> Report:
    return Report(
        ended.id,
        ended.claim_id,
        ended.kind,
        ended.result,
        ended.error,
        None if ended.started is None else us_between(ended.started, now),
        us_between(ended.finished, now),
        ended.cpu_us,
        ended.peak_memory_kb,
        ended.note,
    )


def us_between(then: float, now: float) -> int:
    return int((now - then) * SECOND) if then < now else 0
