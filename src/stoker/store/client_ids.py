"""The ids of one transaction that were made by clients: which of them name jobs that exist already.

A store looks up the ids of all calls with one statement and asks `split` what of a batch is new. A batch whose ids are
all new stays whole, which is the usual case and costs two set operations. Ids that a call of the same transaction
brought before count as known too; `undo` forgets those of a call that is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from stoker.domain.errors import IdMismatch, JobPruned
from stoker.domain.job import Job
from stoker.domain.job_batch import JobBatch
from stoker.store.submissions import Submission


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What a store knows of an id; `job` is None for a job that was pruned, `digest` for an id made by the server."""

    digest: bytes | None
    job: Job | None


class Repeat(msgspec.Struct, frozen=True, gc=False):
    """A job that is there already, in place of one that was submitted."""

    id: str
    created_at: int
    """When the submission that asks for it was received."""


Part = JobBatch | Repeat


class ClientIds:
    """`stored` holds what a look-up found."""

    def __init__(self, stored: Mapping[str, Stored] | None = None) -> None:
        self._stored: Final = stored or {}
        self._new: dict[str, bytes] = {}
        self._of_call: list[str] = []
        self._placed: list[JobBatch] = []

    def begin(self) -> None:
        """Begin another call."""
        self._of_call = []

    def undo(self) -> None:
        """Forget the ids that this call brought."""
        for id in self._of_call:
            del self._new[id]
        self._of_call = []

    def split(self, batch: JobBatch) -> Sequence[Part] | IdMismatch | JobPruned:
        """Return the parts of a batch that are to be stored and, in place of the others, the jobs that they repeat, in
        order; or why the call must be refused."""
        digests = batch.digests
        assert digests is not None  # noqa: S101 - only batches with client ids come here
        if self._stored.keys().isdisjoint(batch.ids) and self._new.keys().isdisjoint(batch.ids):
            brought = dict(zip(batch.ids, digests, strict=True))
            if len(brought) == len(batch.ids):
                self._new |= brought
                self._of_call += batch.ids
                return (batch,)
        return self._split_one_by_one(batch, digests)

    def _split_one_by_one(
        self, batch: JobBatch, digests: Sequence[bytes]
    ) -> Sequence[Part] | IdMismatch | JobPruned:
        parts: list[Part] = []
        first = 0
        for place, (id, digest) in enumerate(zip(batch.ids, digests, strict=True)):
            if id not in self._stored and id not in self._new:
                self._new[id] = digest
                self._of_call.append(id)
                continue
            if place > first:
                parts.append(batch.part(slice(first, place)))
            first = place + 1
            refusal = self._refusal(id, digest)
            if refusal is not None:
                return refusal
            parts.append(Repeat(id, batch.created[place]))
        if first < len(batch.ids):
            parts.append(batch.part(slice(first, len(batch.ids))))
        return parts

    def _refusal(self, id: str, digest: bytes) -> IdMismatch | JobPruned | None:
        stored = self._stored.get(id)
        known = self._new.get(id) if stored is None else stored.digest
        if known != digest:
            return IdMismatch(id)
        return JobPruned(id) if stored is not None and stored.job is None else None

    def give_up(self, ids: Sequence[str]) -> None:
        """Forget ids of this call whose jobs are not stored, because another job holds their unique key."""
        for id in ids:
            self._new.pop(id, None)
        self._of_call = [id for id in self._of_call if id not in ids]

    def placed(self, batch: JobBatch) -> None:
        """Remember a new batch as the store numbered it: the rest of the transaction may repeat its jobs."""
        self._placed.append(batch)

    def job(self, id: str) -> Job:
        """Return the job that a `Repeat` names."""
        stored = self._stored.get(id)
        if stored is not None and stored.job is not None:
            return stored.job
        batch = next(batch for batch in self._placed if id in batch.ids)
        place = batch.ids.index(id)
        return batch.part(slice(place, place + 1)).template

    @property
    def new(self) -> list[str]:
        """The ids of jobs that are to be stored."""
        return list(self._new)


NO_IDS: Final = ClientIds()
"""For transactions without client ids: nothing asks it."""


def named_by_client(submissions: Sequence[Submission]) -> list[str]:
    """Return the ids that clients made, of those submissions that have such."""
    return [id for item in submissions if item.batch.digests is not None for id in item.batch.ids]
