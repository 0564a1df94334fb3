"""What upkeep needs of both stores: how long rows are kept, and the rows that wait for a time."""

from collections.abc import Iterable

import msgspec

from stoker.domain.job import Job
from stoker.domain.lifecycle import Status
from stoker.domain.time_limits import next_limit
from stoker.domain.unique import holds_key, key_of


class Retention(msgspec.Struct, frozen=True):
    completed_us: int
    failed_us: int
    sessions_us: int = 600_000_000
    client_ids_us: int = 86_400_000_000
    """For how long after its submission the id of a job that is deleted stays taken, if a client made it."""
    keep_grace_us: int = 0
    """How much longer a job with a `keep_sec` is kept, for clients that wait for its end."""

    @property
    def by_status(self) -> tuple[tuple[Status, int], ...]:
        """How long a job is kept, by the status in which it ended."""
        return (
            ("completed", self.completed_us),
            ("cancelled", self.completed_us),
            ("failed", self.failed_us),
        )


def held_keys(jobs: Iterable[Job]) -> list[tuple[str, str]]:
    """Return the unique keys that these jobs hold, in order: (key, id of the job)."""
    return sorted((key, job.id) for job in jobs if (key := key_of(job.extras)) is not None and holds_key(job))


def noted_limits(jobs: Iterable[Job]) -> list[tuple[int, int]]:
    """Return when those of these jobs that have an expiry or a deadline are to be looked at: (number, time)."""
    return [(job.seq, at) for job in jobs if (at := next_limit(job)) is not None]
