"""Schedules of a simulated world: made by a client at the beginning, over before the end, and each tick must fire once.

They catch up without bound, so that no outage, crash or clock that is set excuses a tick; what other rules do is for
`tests.sim.year`. The jobs have no marker: no client submitted them.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

import apsw
import msgspec

from stoker.clock import SECOND
from stoker.coordinator.assembly import Coordinator
from stoker.domain.job import JobSpec
from stoker.domain.schedule import Definition
from tests.checkers.history import Tick
from tests.sim.machine import Deed
from tests.support.schedules import a_definition

if TYPE_CHECKING:
    from tests.sim.clients import Client
    from tests.sim.world import World

LAST_SECONDS: Final = 25.0
_ROWS: Final = "SELECT name, every_us, created_at, end_at FROM schedules ORDER BY name"
_FIRED: Final = "SELECT id, extras FROM jobs WHERE extras LIKE '%schedul%' ORDER BY seq"
_RECORDED: Final = "SELECT schedule, tick FROM schedule_ticks WHERE last <> tick OR outcome <> 'fired'"


class Ticking:
    """The schedules of a world; most worlds have some."""

    def __init__(self, world: "World") -> None:
        chance = world.random("schedules")
        self._random = chance
        self._every = [chance.choice((1.0, 2.0, 3.5)) for _ in range(chance.choice((0, 1, 2)))]

    def start(self, client: "Client") -> None:
        for number, every in enumerate(self._every):
            client.start(self._put(client, f"s{number}", every))

    async def _put(self, client: "Client", name: str, every: float) -> None:
        """Ask until it is clear; putting twice is putting once."""
        definition: Definition | None = None

        async def put(coordinator: Coordinator) -> Any:
            nonlocal definition
            end = coordinator.clock.now_us() + int(LAST_SECONDS * SECOND)
            definition = definition or msgspec.structs.replace(_definition(every), end_at=end)
            return await coordinator.schedules.put(name, definition)

        while True:
            _, answer, text = await client._ask(put)
            client.world.trace(client.name, f"schedule {name} {answer} {text}")
            if answer == "ok":
                return
            await asyncio.sleep(self._random.uniform(0.3, 2.0))


def _definition(every: float) -> Definition:
    payload = msgspec.Raw(msgspec.json.encode(Deed("")))
    return a_definition(
        every_sec=every, catch_up_sec=86_400.0, catch_up_max=1_000, job=JobSpec(payload, "work")
    )


def is_over(db: apsw.Connection) -> bool:
    """Whether no tick comes any more."""
    return db.execute("SELECT 1 FROM schedules WHERE due_at IS NOT NULL").fetchone() is None


def expected_ticks(db: apsw.Connection) -> list[Tick]:
    return [
        Tick(name, str(tick))
        for name, every, created, end in db.execute(_ROWS)
        for tick in range(created + every, end + 1, every)
    ]


def fired_ticks(db: apsw.Connection) -> list[Tick]:
    """The jobs, by their ticks; a tick that is not recorded as fired counts as one more, for it should not be there."""
    found = []
    for id, text in db.execute(_FIRED):
        used = msgspec.json.decode(text)
        found.append(Tick(used["schedule"], str(used["scheduled_for"]), id))
    return found + [Tick(name, str(tick)) for name, tick in db.execute(_RECORDED)]
