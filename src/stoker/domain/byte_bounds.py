"""How many bytes of payloads a claim may carry: for one transaction, for a worker's connection and for a worker's memory.

The planner counts threads and run times. This cuts its plan to what fits by bytes, in the order of the plan, so that what is
cut off is what would have run last. A worker from which something was cut off gets nothing more in this claim: small jobs
never overtake a large one for ever. Where nothing waits, one job is placed however large it is, so none is ever stuck.

Stores leave large payloads where they are while they plan (`UNREAD`), and read those of the jobs that were placed.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from stoker.domain.job_batch import JobBatch
from stoker.domain.placement import Placed, Plan, WorkerView

INLINE_BYTES: Final = 4096
"""Payloads up to this size are read together with their job."""
UNREAD: Final = b""
"""Stands for a larger payload that was not read. No payload is empty: it is JSON."""


class ByteBounds(msgspec.Struct, frozen=True):
    """The most bytes of payloads in each place."""

    claim: int = 8 * 1024 * 1024
    """In one claim, for all workers together."""
    line: int = 8 * 1024 * 1024
    """Assigned to a worker and not yet written to its connection."""
    held: int = 32 * 1024 * 1024
    """At a worker, beyond which only a free thread is reason enough to send another."""


class _Room:
    """What may still be sent to one worker in this claim."""

    __slots__ = ("free", "held", "unsent")

    def __init__(self, worker: WorkerView) -> None:
        self.free = worker.free
        self.unsent = worker.unsent_bytes
        self.held = worker.held_bytes

    def takes(self, size: int, bounds: ByteBounds) -> bool:
        line = self.unsent == 0 or self.unsent + size <= bounds.line
        return line and (self.free > 0 or self.held + size <= bounds.held)

    def spend(self, size: int, threads: int) -> None:
        self.unsent += size
        self.held += size
        self.free -= threads


def unread(plan: Plan) -> list[int]:
    """Return the numbers of the placed jobs whose payloads were not read."""
    return [
        seq
        for placed in plan.placed
        if UNREAD in placed.batch.payloads
        for seq, payload in zip(placed.batch.seqs, placed.batch.payloads, strict=True)
        if payload == UNREAD
    ]


def within(
    plan: Plan, workers: Iterable[WorkerView], sizes: Mapping[int, int], bounds: ByteBounds
) -> tuple[Plan, bool]:
    """Cut a plan to these bounds; `sizes` has the lengths of the payloads that were not read. Return the plan, and whether
    the bound of the claim itself cut something off: then another claim may follow at once."""
    chosen = {placed.session_id for placed in plan.placed}
    present = [worker for worker in workers if worker.session_id in chosen and worker.present]
    if _fits_anywhere(plan, present, sizes, bounds):
        return plan, False
    rooms = {worker.session_id: _Room(worker) for worker in present}
    left = bounds.claim
    kept: list[Placed] = []
    rest = [*plan.rest]
    cut = False
    for placed in plan.placed:
        room = rooms.get(placed.session_id)
        if room is None or cut:
            rest.append(placed.batch)
            continue
        count, size, cut = _fitting(placed, room, sizes, bounds, left, first=not kept)
        left -= size
        if count == len(placed.batch):
            kept.append(placed)
            continue
        if count:
            part = placed.batch.part(slice(0, count, 1))
            kept.append(Placed(part, placed.session_id, placed.threads))
        rest.append(placed.batch.part(slice(count, len(placed.batch), 1)))
        del rooms[placed.session_id]
    return Plan(kept, plan.cursor, rest), cut


def _fits_anywhere(
    plan: Plan, workers: Iterable[WorkerView], sizes: Mapping[int, int], bounds: ByteBounds
) -> bool:
    """Whether the whole plan would be within the bounds if one of these workers got all of it, as small payloads are."""
    total = sum(sizes.values()) + sum([sum(map(len, placed.batch.payloads)) for placed in plan.placed])
    return total <= bounds.claim and all(
        worker.unsent_bytes + total <= bounds.line and worker.held_bytes + total <= bounds.held
        for worker in workers
    )


def _fitting(
    placed: Placed, room: _Room, sizes: Mapping[int, int], bounds: ByteBounds, left: int, *, first: bool
) -> tuple[int, int, bool]:
    """Return how many jobs of a placement fit, their bytes, and whether it was the claim that had no room for more."""
    batch = placed.batch
    total = sum(map(len, batch.payloads))
    if sizes and UNREAD in batch.payloads:
        total += sum([sizes.get(seq, 0) for seq in batch.seqs])
    if total <= left and room.unsent + total <= bounds.line and room.held + total <= bounds.held:
        room.spend(total, placed.threads * len(batch))
        return len(batch), total, False
    spent = 0
    for place, payload in enumerate(batch.payloads):
        size = len(payload) or sizes.get(batch.seqs[place], 0)
        if spent + size > left and not (first and place == 0):
            return place, spent, True
        if not room.takes(size, bounds):
            return place, spent, False
        room.spend(size, placed.threads)
        spent += size
    return len(batch), spent, False


def filled(plan: Plan, payloads: Mapping[int, bytes]) -> Plan:
    """Return the plan with the payloads that were read after it was made, by the numbers of their jobs."""
    placed = [Placed(_filled(item.batch, payloads), item.session_id, item.threads) for item in plan.placed]
    return Plan(placed, plan.cursor, plan.rest)


def _filled(batch: JobBatch, found: Mapping[int, bytes]) -> JobBatch:
    if UNREAD not in batch.payloads:
        return batch
    payloads = [payload or found[seq] for seq, payload in zip(batch.seqs, batch.payloads, strict=True)]
    return JobBatch(
        replace(batch.template, payload=payloads[0]),
        batch.seqs,
        batch.ids,
        payloads,
        batch.created,
        batch.digests,
    )
