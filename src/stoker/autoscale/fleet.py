"""Who counts as a worker. Pure: what really runs, and what the coordinator says, in; what to decide on, out.

Of our own workers the provider knows the truth: one that died still has a session until its heartbeat times out, and
one that was just started has none yet. Other workers are known only to the coordinator. So ours are counted as the
provider sees them, the others as the coordinator does, and a session of ours whose process is gone counts for nothing.
"""

from collections.abc import Callable, Collection

import msgspec

from stoker.autoscale.coordinator_api import CoordinatorSnapshot, WorkerRow
from stoker.autoscale.providers.base import Own
from stoker.domain.scaling import Load


class Fleet(msgspec.Struct, frozen=True):
    load: Load
    removable: list[WorkerRow]
    """Idle workers that may be drained, the one to drain first in front."""
    unknown: frozenset[str]
    """Our own that run, but have no session: they are starting, have left, or are stuck."""


def all_workers(seen: CoordinatorSnapshot, default_threads: int) -> Fleet:
    """Return the fleet for an autoscaler that only recommends: it counts all live workers, and any idle one could be
    removed by its operator."""
    live = [row for row in seen.workers if row.status == "live"]
    idle = [row for row in live if row.is_idle]
    return Fleet(_load(seen, len(live), len(idle), default_threads), idle, frozenset())


def assess(
    seen: CoordinatorSnapshot, own: Collection[Own], owns: Callable[[WorkerRow], bool], default_threads: int
) -> Fleet:
    """Return the fleet for an autoscaler that has workers of its own; only those may be removed."""
    sessions = {mine.name: row for mine in own for row in seen.workers if mine.is_life(row) and _is_here(row)}
    draining = {name for name, row in sessions.items() if row.status == "draining"}
    others = [row for row in seen.workers if row.status == "live" and not owns(row)]
    # The latest started goes first: the first ones have the longest memory of what they are good at.
    idle = [sessions[mine.name] for mine in own if mine.name in sessions and sessions[mine.name].is_idle]
    load = _load(seen, len(own) - len(draining) + len(others), len(idle), default_threads)
    return Fleet(load, idle[::-1], frozenset(mine.name for mine in own) - sessions.keys())


def _is_here(row: WorkerRow) -> bool:
    return row.status in ("live", "draining")


def _load(seen: CoordinatorSnapshot, workers: int, idle: int, default_threads: int) -> Load:
    live = [row for row in seen.workers if row.status == "live"]
    threads = sum(row.threads for row in live) / len(live) if live else float(default_threads)
    return Load(
        queue_depth=seen.stats.queue_depth - seen.stats.paused_depth,
        workers=workers,
        idle=idle,
        threads_per_worker=threads,
        threads_used=sum(row.threads_used for row in live),
        pending_thread_seconds=seen.stats.pending_thread_seconds,
    )
