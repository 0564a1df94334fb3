"""Queues as they stand: what is in each of them, and whether it is paused. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from stoker.domain.lifecycle import Status
from stoker.store.reads import Count


class QueueState(msgspec.Struct, frozen=True):
    """One queue, as `/queues` shows it."""

    name: str
    counts: Mapping[Status, int]
    paused_at: int | None
    oldest_due_at: int | None
    """When the first job in line became due; None when no job waits."""


def queue_states(
    counts: Iterable[Count], paused: Mapping[str, int], oldest_due: Mapping[str, int]
) -> list[QueueState]:
    """Every queue that has jobs or is paused, in the order of names."""
    found: dict[str, dict[Status, int]] = {name: {} for name in paused}
    for count in counts:
        by_status = found.setdefault(count.queue, {})
        by_status[count.status] = by_status.get(count.status, 0) + count.count
    return [
        QueueState(name, by_status, paused.get(name), oldest_due.get(name))
        for name, by_status in sorted(found.items())
    ]
