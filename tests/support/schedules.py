"""Schedules over a store, without a coordinator around them."""

from collections.abc import Sequence
from typing import Any, Final

from stoker.clock import SECOND
from stoker.coordinator.observers import JobObserver, Observers
from stoker.coordinator.schedule_fields import definition_of
from stoker.coordinator.schedules import JobRules, Schedules
from stoker.domain.job import NO_DEFAULTS, JobSpec
from stoker.domain.schedule import Definition, Tick
from stoker.ids import new_id
from stoker.store.base import Store
from stoker.store.schedules import ScheduleChanged
from stoker.wire.schedules import ScheduleFields

HOOK_HOSTS: Final = ("hooks.example.com",)


class Changes(JobObserver):
    """Keeps what happened to schedules."""

    def __init__(self, changes: list[ScheduleChanged]) -> None:
        self._changes = changes

    def ticked(self, changed: Sequence[ScheduleChanged]) -> None:
        self._changes += changed


class ScheduleDriver(Schedules):
    """A coordinator's schedules without its loop: a test fires them. `changed` has what its observer was told."""

    def __init__(self, store: Store, new_id: Any = new_id) -> None:
        self.changed: list[ScheduleChanged] = []
        super().__init__(
            store,
            JobRules(4, "lowest_first", lambda type: NO_DEFAULTS, HOOK_HOSTS),
            new_id=new_id,
            monotonic=lambda: 0.0,
            kept_us=30 * 86_400 * SECOND,
            wake=lambda: None,
            observers=Observers(Changes(self.changed)),
        )

    async def set(self, name: str = "s", **fields: Any) -> None:
        await self.put(name, a_definition(**fields))

    async def fire_all(self) -> None:
        """Fire until nothing is due."""
        while await self.fire():
            pass


def a_definition(**fields: Any) -> Definition:
    """Every minute, unless told otherwise."""
    job = fields.pop("job", JobSpec())
    paused = fields.pop("paused", None)
    if "every_sec" not in fields:
        fields.setdefault("cron", "* * * * *")
    return definition_of(ScheduleFields(**fields), job, paused, webhook_hosts=HOOK_HOSTS)


def brief(ticks: Sequence[Tick], start: int) -> list[tuple[str, int, int, str, str | None]]:
    """Records in minutes from a start, the earliest first."""
    minute = 60 * SECOND
    rows = [
        (t.kind, (t.tick - start) // minute, (t.last - start) // minute, t.outcome, t.reason) for t in ticks
    ]
    return sorted(rows, key=lambda row: row[1])
