"""What both stores keep beside ended jobs: entries of metadata for searches, and how far a purge has looked."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from stoker.domain.job import Job, decode_map
from stoker.domain.job_batch import JobBatch, batch_of
from stoker.domain.keeping import kept_until
from stoker.domain.lifecycle import FINAL


def metadata_rows(batch: JobBatch) -> Iterator[tuple[str, str, int]]:
    """The entries (key, value, seq) of jobs that are alike."""
    entries = decode_map(batch.template.metadata).items()
    for seq in batch.seqs:
        for key, value in entries:
            yield key, value, seq


def metadata_of(jobs: Iterable[Job]) -> list[tuple[str, str, int]]:
    """Return the entries of jobs that are imported."""
    return [row for job in jobs if job.metadata is not None for row in metadata_rows(batch_of(job))]


def keeps_of(jobs: Iterable[Job]) -> list[tuple[int, int]]:
    """Until when jobs that are imported, and have ended, are kept: (seq, time), where they say it."""
    return [
        (job.seq, until) for job in jobs if job.status in FINAL and (until := kept_until(job)) is not None
    ]


LOOKS: Final = 128
"""The number of looks after which a purge begins again with the oldest jobs."""


class PurgedUntil:
    """How far a purge has looked, by status: what ended before that and is still there has a retention of its own, and
    is not looked at each time. It begins anew with the process, when a clock is set back, and every `LOOKS` looks,
    because jobs that were locked or imported may have been passed over."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}
        self._looks = 0

    def since(self, status: str, until: int) -> int:
        """Return the end time from which a purge of jobs that ended before `until` has to look."""
        known = self._until.get(status, 0)
        return known if known <= until and self._looks % LOOKS else 0

    def looked(self, until: Mapping[str, int]) -> None:
        """A purge was committed that found everything that ended before these times."""
        self._until.update(until)
        self._looks += 1
