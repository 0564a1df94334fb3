"""A client of the optional features: unique keys, expiry, and edits of jobs that wait."""

import asyncio
from typing import TYPE_CHECKING, Final

from stoker.clock import SECOND
from stoker.coordinator.assembly import Coordinator
from stoker.domain import extras
from stoker.domain.edit import Changes
from stoker.domain.extras import Extras
from stoker.domain.job import Job, OnConflict, encode_map, new_job
from stoker.domain.job_batch import batch_of
from stoker.store.submissions import Accepted, Submission
from tests.sim.clients import Client, Order
from tests.sim.machine import Deed

if TYPE_CHECKING:
    from tests.sim.world import World

KEYS: Final = ("u1", "u2", "u3")
EDIT: Final = "edit"
"""The field of the metadata that has the number of the last edit."""


class LimitClient(Client):
    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._edits = 0

    async def _something(self) -> None:
        what = self.random.random()
        if what < 0.55:
            await self._submit_unique()
        elif what < 0.75:
            await self._submit_expiring()
        else:
            await self._submit_and_edit()

    async def _submit_unique(self) -> None:
        until = "started" if self.random.random() < 0.3 else "finished"
        key = self.random.choice(KEYS)
        on_conflict: OnConflict = "reject" if self.random.random() < 0.3 else "return"
        job = await self._store(Extras(unique_key=key, unique_until=until), on_conflict)  # type: ignore[arg-type]
        if job is not None and self.random.random() < 0.3:
            await self.cancel(job.id)
            if self.random.random() < 0.5:
                await self.replay(job.id)

    async def _submit_expiring(self) -> None:
        now = self.world.clock.now_us()
        await self._store(Extras(expires_at=now + int(self.random.uniform(0.05, 4.0) * SECOND)))

    async def _submit_and_edit(self) -> None:
        """Change a job a few times while it waits, and now and then while it runs."""
        job = await self._store(Extras(), delay_sec=self.random.uniform(0.2, 5.0))
        if job is None:
            return
        for _ in range(self.random.choice([1, 2, 3])):
            await self._edit(job.id)
            await asyncio.sleep(self.random.uniform(0.0, 2.0))

    async def _edit(self, id: str) -> None:
        self._edits += 1
        number = self._edits
        changes = Changes(metadata=encode_map({EDIT: str(number)}), priority=number % 3, rank=number % 3)
        called = self.world.loop.time()
        job, answer, text = await self._ask(lambda coordinator: coordinator.jobs.edit(id, changes))
        if answer == "ok":
            self.world.edited[id] = number
        elif answer == "unknown":
            self.world.edits_in_doubt.add((id, number))
        self._wrote("edit", called, answer, f"{id} #{number} {text}", jobs=[id], job=job)

    async def _store(
        self, used: Extras, on_conflict: OnConflict = "return", delay_sec: float | None = None
    ) -> Job | None:
        """Submit one job, once; the job if it is a new one."""
        self._orders += 1
        deed = Deed(f"{self.name}-{self._orders}", self.random.uniform(0.005, 1.5))
        order = Order(deed, self.random.choice(["quick", "work"]), delay_sec=delay_sec)
        called = self.world.loop.time()

        async def submit(coordinator: Coordinator) -> Accepted:
            now = coordinator.clock.now_us()
            job = new_job(
                order.spec(),
                id=self.world.new_job_id(),
                now=now,
                run_at=now + int((delay_sec or 0.0) * SECOND),
                max_attempts=order.max_attempts,
                order="lowest_first",
                extras=extras.encode(used),
            )
            submitted = await coordinator.jobs.submit([Submission(batch_of(job), None, on_conflict)])
            return submitted.accepted[0]

        accepted, answer, text = await self._ask(submit)
        if accepted is not None and accepted.unique is not None:
            self.world.trace(self.name, f"submit {deed.marker} gets {accepted.job.id}")
            return None
        ids = [accepted.job.id] if accepted is not None else []
        self._wrote("submit", called, answer, f"[{deed.marker}] {text}", [order.item], ids)
        self.known += ids
        return None if accepted is None else accepted.job
