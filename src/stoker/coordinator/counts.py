"""Sums of the counters that the store keeps: how many jobs are in which status."""

from collections.abc import Iterable, Mapping

from stoker.domain.lifecycle import STATUSES, Status
from stoker.domain.webhooks import WEBHOOK_QUEUE
from stoker.store.base import Store
from stoker.store.reads import Count, JobFilter, JobQuery


def sum_by_status(counts: Iterable[Count]) -> dict[Status, int]:
    """Return how many jobs of users are in each status; deliveries of webhooks are none."""
    by_status = dict.fromkeys(STATUSES, 0)
    for count in counts:
        if count.queue != WEBHOOK_QUEUE:
            by_status[count.status] += count.count
    return by_status


def success_rate(by_status: Mapping[Status, int]) -> float | None:
    ended = by_status["completed"] + by_status["failed"]
    return by_status["completed"] / ended if ended else None


async def dead_letters(store: Store, counts: Iterable[Count]) -> int:
    """Return how many jobs failed and were not discarded. Beyond the cap only all that failed is known, the discarded ones
    included; and where nothing failed, nothing is counted."""
    failed = sum_by_status(counts)["failed"]
    if not failed:
        return 0
    page = await store.page(JobQuery(JobFilter(dead_letters=True), limit=1))
    return failed if page.total_capped else page.total
