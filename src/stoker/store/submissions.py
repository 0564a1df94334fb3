"""What `insert` takes and returns."""

import msgspec

from stoker.domain.job import Job, OnConflict
from stoker.domain.job_batch import JobBatch
from stoker.domain.unique import Mark


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A client's name for a submission. `digest` is the hash of the decoded request: the same key with another
    digest is a mistake that must be told, not a repeat."""

    client: str
    key: str
    digest: bytes
    expires_at: int


class Submission(msgspec.Struct, frozen=True, gc=False):
    """Jobs to store; only one that is alone can have a key."""

    batch: JobBatch
    key: IdempotencyKey | None = None
    on_conflict: OnConflict = "return"
    """What becomes of a job whose unique key is taken. A job with a unique key is alone."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The jobs that stand in the store for a submission; `repeated` when an earlier one had made them."""

    batch: JobBatch
    repeated: bool
    unique: Mark | None = None
    """Set when the job that stands there is another one, which holds the unique key."""

    @property
    def job(self) -> Job:
        """The job, or the first of them."""
        return self.batch.template
