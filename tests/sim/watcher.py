"""A load balancer: asks every coordinator over and over whether it is ready, and writes down what it was told."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from stoker.domain.errors import StokerDomainError
from stoker.testing.loop import Process
from tests.checkers.history import Ready
from tests.sim.nodes import CoordinatorNode, Refused, Unknown

if TYPE_CHECKING:
    from tests.sim.world import World

MEAN_SECONDS: Final = 0.8
ANSWER_SECONDS: Final = 8.0


class Watcher:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._process = Process(world.loop, "lb")

    def start(self) -> None:
        for node in self._world.coordinators:
            self._process.spawn(self._watch(node, self._world.random(f"lb/{node.name}")))

    async def _watch(self, node: CoordinatorNode, random: Random) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.0, 2 * MEAN_SECONDS))
            await self._ask(node, random)

    async def _ask(self, node: CoordinatorNode, random: Random) -> None:
        world = self._world
        asked = world.loop.time()
        try:
            reasons = await node.call(
                self._process, random, lambda coordinator: coordinator.readiness.reasons(), ANSWER_SECONDS
            )
        except (Refused, Unknown, StokerDomainError):
            return
        world.readies.append(Ready(asked, world.loop.time(), node.name, not reasons))
        world.trace("lb", f"{node.name} {'; '.join(reasons) or 'ready'}")
