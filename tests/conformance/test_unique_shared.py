"""Unique keys under load: many submitters at two owners of one store, with claims, retries and dead workers.

`UNIQUE_SUBMISSIONS=10000` runs it at full size; `make test` runs a tenth of that.
"""

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Final

import asyncpg
import pytest
from msgspec.structs import replace

from stoker.domain import extras
from stoker.domain.errors import UniqueConflict
from stoker.domain.extras import Extras
from stoker.domain.job import OnConflict, UniqueUntil
from stoker.domain.job_batch import batch_of
from stoker.store.base import Store
from stoker.store.submissions import Submission
from tests.conformance.circles import noticed
from tests.conformance.steps import SILENT, STEADY, a_job, a_session, a_worker, claim, end
from tests.conformance.stores import books_balance
from tests.conformance.test_shared import Pair, pair
from tests.support.clock import FakeClock
from tests.support.servers import databases

__all__ = ["pair"]

SUBMISSIONS: Final = int(os.environ.get("UNIQUE_SUBMISSIONS", "1000"))
KEYS: Final = 100
SUBMITTERS: Final = 16
CLASHES: Final = """
SELECT extras::jsonb ->> 'unique_key', count(*) FROM stoker.jobs
WHERE extras IS NOT NULL AND (claim_id = 0 OR extras::jsonb ->> 'unique_until' IS NULL)
GROUP BY 1 HAVING count(*) > 1
"""
"""Jobs that hold a key: those that are not over, and of those until started the ones that were never claimed."""


class Crowd:
    def __init__(self, pair: Pair, clock: FakeClock, until: UniqueUntil) -> None:
        self.pair = pair
        self.clock = clock
        self.until = until
        self.left = SUBMISSIONS
        self.stored: set[str] = set()
        self.submitting = SUBMITTERS

    async def submit(self, number: int) -> None:
        random = Random(f"{self.until}/{number}")
        store = self.pair[number % 2]
        while self.left > 0:
            size = min(self.left, random.choice([1, 1, 1, 5]))
            self.left -= size
            await self._submit(store, random, size)
        self.submitting -= 1

    async def _submit(self, store: Store, random: Random, size: int) -> None:
        on_conflict: OnConflict = random.choice(["return", "return", "reject", "replace"])
        calls = [
            Submission(
                batch_of(
                    replace(
                        a_job(store, delay_us=random.choice([0, 0, 1_000_000])),
                        extras=extras.encode(
                            Extras(unique_key=f"k{random.randrange(KEYS)}", unique_until=self.until)
                        ),
                    )
                ),
                on_conflict=on_conflict,
            )
            for _ in range(size)
        ]
        try:
            accepted = await store.insert(calls)
        except UniqueConflict:
            return
        self.stored |= {item.job.id for item in accepted if item.unique is None}
        if random.random() < 0.05:
            await store.cancel([accepted[0].job.id])
        if random.random() < 0.05:
            await store.replay([accepted[0].job.id])

    async def work(self, number: int) -> None:
        """Claim and end jobs; now and then the worker dies with what it holds, and its jobs are lost."""
        random = Random(f"{self.until}/worker/{number}")
        store = self.pair[number % 2]
        life = 0
        while self.submitting:
            session = f"w{number}-{life}"
            await store.open_session(a_session(store, session))
            for _ in range(20):
                store.look_again()
                for job in await claim(store, a_worker(session, threads=8)):
                    kind = random.choice(["completed", "completed", "error", "handed_back", "invalid", None])
                    if kind is not None:
                        await end(store, job, kind)  # type: ignore[arg-type]
                await asyncio.sleep(0)
            self.clock.advance(11)
            await store.expire(store.now_us() - SILENT, STEADY)
            await store.promote(1000)
            life += 1

    async def watch(self, url: str) -> list[object]:
        """Every pair of unfinished jobs with one key that a snapshot shows."""
        found: list[object] = []
        link = await asyncpg.connect(url)
        try:
            while self.submitting:
                found += await link.fetch(CLASHES)
                await asyncio.sleep(0.005)
            found += await link.fetch(CLASHES)
        finally:
            await link.close()
        return found


@pytest.mark.parametrize("until", ["finished", "started"])
async def test_a_key_is_never_held_twice_whatever_happens(
    pair: Pair, clock: FakeClock, place: Path, until: UniqueUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    circles = noticed(monkeypatch)
    crowd = Crowd(pair, clock, until)
    async with asyncio.timeout(60 + SUBMISSIONS / 20):
        *_, clashes = await asyncio.gather(
            *(crowd.submit(number) for number in range(SUBMITTERS)),
            *(crowd.work(number) for number in range(3)),
            crowd.watch(databases.url(place)),
        )
    assert clashes == []
    assert circles == []
    assert len(crowd.stored) > KEYS
    await books_balance(pair.a)
    link = await asyncpg.connect(databases.url(place))
    try:
        held = await link.fetchval("SELECT count(*) FROM stoker.unique_keys")
    finally:
        await link.close()
    assert held <= KEYS
