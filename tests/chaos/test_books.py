"""The journal of changes has what happens to a job after its end too, on every store."""

import asyncio
import itertools
import sqlite3
import time
from pathlib import Path

import asyncpg
import pytest

from stoker.store.base import Store
from tests.chaos import books
from tests.chaos.books import Books, PostgresBooks, SqliteBooks
from tests.checkers.history import History
from tests.checkers.invariants import check
from tests.conformance.steps import claimed, end
from tests.conformance.stores import STORES, StoreKind
from tests.support.clock import FakeClock
from tests.support.servers import databases

KINDS = [kind for kind in STORES if kind.name != "sqlite-threads"]


class Rewritten:
    """A job that completed, and whose row somebody changed behind the store's back."""

    def __init__(self, kind: StoreKind, place: Path, clock: FakeClock) -> None:
        self._kind, self._place, self._clock = kind, place, clock
        shared = kind.name == "postgres"
        self.table = "stoker.history" if shared else "jobs"
        self.books: Books = (
            PostgresBooks(databases.url(place)) if shared else SqliteBooks(place / "stoker.db")
        )
        asyncio.run(self._open_and_close())
        self.books.watch()
        asyncio.run(self._complete())

    async def _open(self) -> Store:
        return await self._kind.open(self._place, self._clock)

    async def _open_and_close(self) -> None:
        await (await self._open()).close()

    async def _complete(self) -> None:
        store = await self._open()
        try:
            await end(store, await claimed(store), result=b'"right"')
        finally:
            await store.close()

    def rewrite(self, change: str) -> None:
        sql = f"UPDATE {self.table} SET {change}"  # noqa: S608 - our own words
        if self._kind.name == "postgres":
            asyncio.run(self._on_postgres(sql))
            return
        db = sqlite3.connect(self._place / "stoker.db")
        with db:
            db.execute(sql)
        db.close()

    async def _on_postgres(self, sql: str) -> None:
        link = await asyncpg.connect(databases.url(self._place))
        try:
            await link.execute(sql)
        finally:
            await link.close()

    def found(self) -> set[str]:
        return {violation.invariant for violation in check(History(journal=self.books.read().journal))}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        ("result = '\"wrong\"'", "one_outcome_per_job"),
        ("status = 'failed'", "one_outcome_per_job"),
        ("claim_id = claim_id + 1", "claim_numbers_only_grow"),
    ],
)
def test_a_change_of_what_was_final_is_seen(
    kind: StoreKind, tmp_path: Path, clock: FakeClock, change: str, invariant: str
) -> None:
    job = Rewritten(kind, tmp_path, clock)
    assert job.found() == set()
    job.rewrite(change)
    assert invariant in job.found()


def test_times_are_converted_by_one_offset_that_no_pause_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    pauses = itertools.cycle([0.006, 0.002, 0.0, 0.009])

    def wall() -> float:
        nonlocal now
        told = 1_000_000.0 + now
        now += next(pauses)  # another process had the processor before the monotonic clock could be read
        return told

    monkeypatch.setattr(time, "time", wall)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = books.monotonic()
    assert [clock(1_000_050.0 + place) for place in range(3)] == pytest.approx([50.0, 51.0, 52.0])
