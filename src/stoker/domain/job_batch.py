"""Jobs that are alike, as columns: what a request, a transaction of the store and a frame to a worker are made of.

Most jobs come in company and differ from their neighbours in little more than number, id and payload. A batch keeps what
they share once, so that planning, storing, sending and counting a hundred of them costs little more than it does for
one. A job on its own is a batch of one.
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


class JobBatch(msgspec.Struct, frozen=True, gc=False):
    """`template` is the first job. The columns have a place for each job, the first included; the numbers grow."""

    template: Job
    seqs: Sequence[int]
    ids: list[str]
    payloads: list[bytes]
    created: list[int]
    digests: list[bytes] | None = None
    """For jobs on their way into a store whose ids were made by the client; all jobs of a batch have one, or none has."""

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Job]:
        """The jobs, one by one."""
        yield self.template
        for place in range(1, len(self.ids)):
            yield self._job(place)

    def _job(self, place: int) -> Job:
        template, created_at = self.template, self.created[place]
        return replace(
            template,
            seq=self.seqs[place],
            id=self.ids[place],
            payload=self.payloads[place],
            created_at=created_at,
            run_at=run_at_in_batch(template, created_at),
            digest=None if self.digests is None else self.digests[place],
        )

    def part(self, which: slice) -> "JobBatch":
        """Some of these jobs; at least one."""
        first = self.template if which.start == 0 else self._job(which.start)
        digests = None if self.digests is None else self.digests[which]
        return JobBatch(
            first, self.seqs[which], self.ids[which], self.payloads[which], self.created[which], digests
        )

    def changed(self, template: Job) -> "JobBatch":
        """The same jobs after something happened to all of them; `template` is the first of them then."""
        return JobBatch(template, self.seqs, self.ids, self.payloads, self.created, self.digests)

    def numbered(self, seqs: Sequence[int], lane_id: int) -> "JobBatch":
        """Return the batch as a store takes it in."""
        template = replace(self.template, seq=seqs[0], lane_id=lane_id)
        return JobBatch(template, seqs, self.ids, self.payloads, self.created, self.digests)


def run_at_in_batch(template: Job | Claim, created_at: int) -> int:
    """Return `run_at` for another job of the batch of `template`, given its `created_at`."""
    return created_at if template.run_at == template.created_at else template.run_at


def claim_in_batch(template: Claim, id: str, seq: int, created_at: int) -> Claim:
    """Return the claim of another job of the batch of `template`."""
    run_at = run_at_in_batch(template, created_at)
    return replace(template, id=id, seq=seq, created_at=created_at, run_at=run_at)


def batch_of(job: Job) -> JobBatch:
    """A job on its own."""
    digests = None if job.digest is None else [job.digest]
    return JobBatch(job, range(job.seq, job.seq + 1), [job.id], [job.payload], [job.created_at], digests)


def batches_of(jobs: Iterable[Job]) -> list[JobBatch]:
    """Return stored jobs, in their order, in batches as large as can be, without digests: nothing writes these again."""
    return joined(map(_stored_batch, jobs))


def _stored_batch(job: Job) -> JobBatch:
    return JobBatch(job, range(job.seq, job.seq + 1), [job.id], [job.payload], [job.created_at])


def joined(batches: Iterable[JobBatch]) -> list[JobBatch]:
    """Join adjacent batches that share a template and whose numbers follow each other."""
    batches = list(batches)
    if len(batches) < 2:
        return batches
    runs: list[list[JobBatch]] = []
    shared: Job | None = None
    named = False
    following = -1
    for batch in batches:
        asked, first = _shared(batch.template), batch.seqs[0]
        if first == following and asked == shared and named == (batch.digests is not None):
            runs[-1].append(batch)
        else:
            runs.append([batch])
            shared, named = asked, batch.digests is not None
        following = batch.seqs[-1] + 1
    return [_join(run) for run in runs]


def _shared(job: Job) -> Job:
    """A job without what is its own."""
    run_at = 0 if job.run_at == job.created_at else job.run_at
    return replace(job, seq=0, id="", payload=b"", created_at=0, run_at=run_at, digest=None)


def _join(run: list[JobBatch]) -> JobBatch:
    if len(run) == 1:
        return run[0]
    ids = list(chain.from_iterable([batch.ids for batch in run]))
    first = run[0].seqs[0]
    return JobBatch(
        run[0].template,
        range(first, first + len(ids)),
        ids,
        list(chain.from_iterable([batch.payloads for batch in run])),
        list(chain.from_iterable([batch.created for batch in run])),
        None if run[0].digests is None else list(chain.from_iterable([batch.digests or () for batch in run])),
    )
