"""How work ended, on its way from the children to the coordinator: what completed in columns, all else one by one.

Times are readings of the monotonic clock until a frame is made. Only then do they become how long ago that was, because
a frame that is sent again is sent later.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import astuple

from stoker.clock import SECOND
from stoker.domain.retry import Kind
from stoker.domain.retry_rules import ErrorNote
from stoker.wire.frames import Done, Report, Reports

REPORT_FRAME_BYTES: Final = 1024 * 1024
REPORT_FRAME_JOBS: Final = 1_000
_REPORT_BYTES: Final = 200
"""What a report has beside its result or error, and a little more."""


class Ended(msgspec.Struct, frozen=True, gc=False):
    """How one piece of work ended."""

    id: str
    claim_id: int
    kind: Kind
    finished: float
    started: float | None = None
    result: bytes | None = None
    error: bytes | None = None
    cpu_us: int | None = None
    peak_memory_kb: int | None = None
    note: ErrorNote | None = None


class CompletedWork(msgspec.Struct):
    """Work that completed, one column for each field of an `Ended`."""

    ids: list[str] = []
    claim_ids: list[int] = []
    results: list[bytes] = []
    started: list[float] = []
    finished: list[float] = []
    cpu_us: list[int | None] = []
    peak_memory_kb: list[int | None] = []

    def extend(self, more: "CompletedWork") -> None:
        for column, other in zip(astuple(self), astuple(more), strict=True):
            column.extend(other)

    def part(self, first: int, end: int) -> "CompletedWork":
        return CompletedWork(*[column[first:end] for column in astuple(self)])

    def done(self, now: float) -> Done:
        return Done(
            self.ids,
            self.claim_ids,
            self.results,
            [int((now - at) * SECOND) if at < now else 0 for at in self.started],
            [int((now - at) * SECOND) if at < now else 0 for at in self.finished],
            self.cpu_us,
            self.peak_memory_kb,
        )


class Ends:
    """Some ends, in no order."""

    def __init__(self, completed: CompletedWork | None = None, others: list[Ended] | None = None) -> None:
        self.completed = CompletedWork() if completed is None else completed
        self.others = [] if others is None else others

    def __len__(self) -> int:
        return len(self.completed.ids) + len(self.others)

    def __iter__(self) -> Iterator[Ended]:
        """One by one, those that completed first."""
        for id, claim_id, result, started, finished, *used in zip(*astuple(self.completed), strict=True):
            yield Ended(id, claim_id, "completed", finished, started, result, None, *used)
        yield from self.others

    def add(self, more: "Ends") -> None:
        self.completed.extend(more.completed)
        self.others += more.others

    def claims_among(self, ids: set[str]) -> dict[str, int]:
        """The claims of those of these jobs that are here."""
        completed = self.completed
        if ids.isdisjoint(completed.ids) and ids.isdisjoint([end.id for end in self.others]):
            return {}
        pairs = [*zip(completed.ids, completed.claim_ids, strict=True)]
        pairs += [(end.id, end.claim_id) for end in self.others]
        return {id: claim_id for id, claim_id in pairs if id in ids}

    def batches(self) -> list["Ends"]:
        """Split so that no frame grows too large; one large result travels alone."""
        weights = [len(result) + _REPORT_BYTES for result in self.completed.results]
        weights += [len(end.result or end.error or b"") + _REPORT_BYTES for end in self.others]
        return [self._part(first, end) for first, end in cuts(weights, REPORT_FRAME_BYTES, REPORT_FRAME_JOBS)]

    def _part(self, first: int, end: int) -> "Ends":
        n = len(self.completed.ids)
        return Ends(self.completed.part(first, end), self.others[max(0, first - n) : max(0, end - n)])

    def frame(self, number: int, now: float, *, batches: bool) -> Reports:
        """What to send now; in columns what completed, if the coordinator reads `batches`."""
        if not batches:
            return Reports(number, [report(ended, now) for ended in self])
        done = self.completed.done(now) if self.completed.ids else None
        return Reports(number, [report(ended, now) for ended in self.others], done)


def cuts(weights: list[int], most_bytes: int, most: int) -> list[tuple[int, int]]:
    """Where to cut a list so that no piece has more than this, unless one alone does: the first of each, and its end."""
    if sum(weights) <= most_bytes and 0 < len(weights) <= most:
        return [(0, len(weights))]
    found: list[tuple[int, int]] = []
    size = 0
    for at, weight in enumerate(weights):
        if not found or size + weight > most_bytes or at - found[-1][0] >= most:
            found.append((at, at))
            size = 0
        found[-1] = (found[-1][0], at + 1)
        size += weight
    return found


def report(ended: Ended, now: float) -> Report:
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
