"""The ids of one transaction that were made by clients: which of them name jobs that exist already.

A store looks up the ids of all calls with one statement and asks `split` what of a lot is new. A lot whose ids are all new
stays whole, which is the usual case and costs two set operations. Ids that a call of the same transaction brought before
count as known too; `undo` forgets those of a call that is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from stoker.domain.errors import IdMismatch, JobPruned
from stoker.domain.job import Job
from stoker.domain.lot import Lot
from stoker.store.base import Submission


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What a store knows of an id; `job` is None for a job that was pruned, `digest` for an id made by the server."""

    digest: bytes | None
    job: Job | None


class Repeat(msgspec.Struct, frozen=True, gc=False):
    """A job that is there already, in place of one that was submitted."""

    id: str
    created_at: int
    """When the submission that asks for it was received."""


Part = Lot | Repeat


class ClientIds:
    """`stored` holds what a look-up found."""

    def __init__(self, stored: Mapping[str, Stored] | None = None) -> None:
        self._stored: Final = stored or {}
        self._new: dict[str, bytes] = {}
        self._of_call: list[str] = []
        self._placed: list[Lot] = []

    def begin(self) -> None:
        """Begin another call."""
        self._of_call = []

    def undo(self) -> None:
        """Forget the ids that this call brought."""
        for id in self._of_call:
            del self._new[id]
        self._of_call = []

    def split(self, lot: Lot) -> Sequence[Part] | IdMismatch | JobPruned:
        """Return the parts of a lot that are to be stored and, in place of the others, the jobs that they repeat, in order;
        or why the call must be refused."""
        digests = lot.digests
        assert digests is not None  # noqa: S101 - only lots with client ids come here
        if self._stored.keys().isdisjoint(lot.ids) and self._new.keys().isdisjoint(lot.ids):
            brought = dict(zip(lot.ids, digests, strict=True))
            if len(brought) == len(lot.ids):
                self._new |= brought
                self._of_call += lot.ids
                return (lot,)
        return self._split_one_by_one(lot, digests)

    def _split_one_by_one(
        self, lot: Lot, digests: Sequence[bytes]
    ) -> Sequence[Part] | IdMismatch | JobPruned:
        parts: list[Part] = []
        first = 0
        for place, (id, digest) in enumerate(zip(lot.ids, digests, strict=True)):
            if id not in self._stored and id not in self._new:
                self._new[id] = digest
                self._of_call.append(id)
                continue
            if place > first:
                parts.append(lot.part(slice(first, place)))
            first = place + 1
            refusal = self._refusal(id, digest)
            if refusal is not None:
                return refusal
            parts.append(Repeat(id, lot.created[place]))
        if first < len(lot.ids):
            parts.append(lot.part(slice(first, len(lot.ids))))
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

    def placed(self, lot: Lot) -> None:
        """Remember a new lot as the store numbered it: the rest of the transaction may repeat its jobs."""
        self._placed.append(lot)

    def job(self, id: str) -> Job:
        """Return the job that a `Repeat` names."""
        stored = self._stored.get(id)
        if stored is not None and stored.job is not None:
            return stored.job
        lot = next(lot for lot in self._placed if id in lot.ids)
        place = lot.ids.index(id)
        return lot.part(slice(place, place + 1)).like

    @property
    def new(self) -> list[str]:
        """The ids of jobs that are to be stored."""
        return list(self._new)


NO_IDS: Final = ClientIds()
"""For transactions without client ids: nothing asks it."""


def named_by_client(submissions: Sequence[Submission]) -> list[str]:
    """Return the ids that clients made, of those submissions that have such."""
    return [id for item in submissions if item.lot.digests is not None for id in item.lot.ids]
