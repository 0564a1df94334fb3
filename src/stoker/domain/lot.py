"""Jobs that are alike, as columns: what a batch, a round of the store and a frame to a worker are made of.

Most jobs come in company and differ from their neighbours in little more than number, id and payload. A lot keeps what
they share once, so that planning, storing, sending and counting a hundred of them costs little more than it does for
one. A job on its own is a lot of one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec
from msgspec.structs import replace

from stoker.domain.job import Job
from stoker.domain.retry import Claim

OWN_FIELDS: Final = ("seq", "id", "payload", "created_at", "run_at", "digest")
"""What may differ between jobs that are alike; `run_at` only where each is due from the moment it was created."""


class Lot(msgspec.Struct, frozen=True, gc=False):
    """`like` is the first job. The columns have a place for each job, the first included; the numbers grow."""

    like: Job
    seqs: Sequence[int]
    ids: list[str]
    payloads: list[bytes]
    created: list[int]
    digests: list[bytes] | None = None
    """For jobs on their way into a store whose ids were made by the client; all jobs of a lot have one, or none has."""

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Job]:
        """The jobs, one by one."""
        yield self.like
        for place in range(1, len(self.ids)):
            yield self._job(place)

    def _job(self, place: int) -> Job:
        like, created_at = self.like, self.created[place]
        return replace(
            like,
            seq=self.seqs[place],
            id=self.ids[place],
            payload=self.payloads[place],
            created_at=created_at,
            run_at=run_at_like(like, created_at),
            digest=None if self.digests is None else self.digests[place],
        )

    def part(self, which: slice) -> "Lot":
        """Some of these jobs; at least one."""
        first = self.like if which.start == 0 else self._job(which.start)
        digests = None if self.digests is None else self.digests[which]
        return Lot(
            first, self.seqs[which], self.ids[which], self.payloads[which], self.created[which], digests
        )

    def changed(self, like: Job) -> "Lot":
        """The same jobs after something happened to all of them; `like` is the first of them then."""
        return Lot(like, self.seqs, self.ids, self.payloads, self.created, self.digests)

    def numbered(self, seqs: Sequence[int], lane_id: int) -> "Lot":
        """The lot as a store takes it in."""
        like = replace(self.like, seq=seqs[0], lane_id=lane_id)
        return Lot(like, seqs, self.ids, self.payloads, self.created, self.digests)


def run_at_like(like: Job | Claim, created_at: int) -> int:
    """When a job is due that is like this one and was created then."""
    return created_at if like.run_at == like.created_at else like.run_at


def claim_like(like: Claim, id: str, seq: int, created_at: int) -> Claim:
    """The claim of another job of the same lot."""
    run_at = run_at_like(like, created_at)
    return replace(like, id=id, seq=seq, created_at=created_at, run_at=run_at)


def lot_of(job: Job) -> Lot:
    """A job on its own."""
    digests = None if job.digest is None else [job.digest]
    return Lot(job, range(job.seq, job.seq + 1), [job.id], [job.payload], [job.created_at], digests)


def lots_of(jobs: Iterable[Job]) -> list[Lot]:
    """Return stored jobs, in their order, in lots as large as can be, without digests: nothing writes these again."""
    return joined(map(_stored_lot, jobs))


def _stored_lot(job: Job) -> Lot:
    return Lot(job, range(job.seq, job.seq + 1), [job.id], [job.payload], [job.created_at])


def joined(lots: Iterable[Lot]) -> list[Lot]:
    """Neighbours that are alike and whose numbers follow each other become one lot."""
    runs: list[list[Lot]] = []
    shared: Job | None = None
    named = False
    following = -1
    for lot in lots:
        asked, first = _shared(lot.like), lot.seqs[0]
        if first == following and asked == shared and named == (lot.digests is not None):
            runs[-1].append(lot)
        else:
            runs.append([lot])
            shared, named = asked, lot.digests is not None
        following = lot.seqs[-1] + 1
    return [_join(run) for run in runs]


def _shared(job: Job) -> Job:
    """A job without what is its own."""
    run_at = 0 if job.run_at == job.created_at else job.run_at
    return replace(job, seq=0, id="", payload=b"", created_at=0, run_at=run_at, digest=None)


def _join(run: list[Lot]) -> Lot:
    if len(run) == 1:
        return run[0]
    ids = list(chain.from_iterable([lot.ids for lot in run]))
    first = run[0].seqs[0]
    return Lot(
        run[0].like,
        range(first, first + len(ids)),
        ids,
        list(chain.from_iterable([lot.payloads for lot in run])),
        list(chain.from_iterable([lot.created for lot in run])),
        None if run[0].digests is None else list(chain.from_iterable([lot.digests or () for lot in run])),
    )
