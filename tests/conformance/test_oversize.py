"""Jobs for more threads than any worker has: those that wait are not in the way of those that run on one."""

from pathlib import Path
from typing import Final

import apsw
import pytest

from stoker.domain.job import Job
from stoker.domain.placement import DEGRADE_AFTER_US
from stoker.store.base import Store
from tests.conformance.steps import a_job, a_worker, claim, claimed, end, ids, submit, submitted
from tests.conformance.stores import StoreKind, opened
from tests.support.clock import FakeClock
from tests.support.servers import databases, shared_postgres

SECONDS: Final = DEGRADE_AFTER_US / 1_000_000
MIGRATIONS: Final = Path(__file__).parents[2] / "src" / "stoker" / "store"


async def mixed(store: Store) -> tuple[Job, Job]:
    """An oversized job that waits, and behind it one that would rather run on one thread."""
    waits = await submitted(store, thread_demand=9, on_oversize="wait", priority=0)
    degrades = await submitted(store, thread_demand=9, on_oversize="degrade", priority=1)
    return waits, degrades


async def test_a_job_that_waits_for_a_larger_worker_is_in_nobodys_way(store: Store, clock: FakeClock) -> None:
    waits, degrades = await mixed(store)
    clock.advance(SECONDS)
    assert ids(await claim(store, a_worker(threads=2))) == [degrades.id]
    assert ids(await claim(store, a_worker(threads=9))) == [waits.id]


async def test_it_is_not_counted_among_those_ahead(store: Store) -> None:
    _, degrades = await mixed(store)
    assert (await store.line(degrades)).ahead == 0


async def test_for_one_thread_it_makes_no_difference(store: Store) -> None:
    jobs = await submit(store, *[a_job(store, on_oversize=oversize) for oversize in ("wait", "degrade")])
    assert jobs[0].lane_id == jobs[1].lane_id


async def test_a_restart_knows_both(store_kind: StoreKind, place: Path, clock: FakeClock) -> None:
    async with opened(store_kind, place, clock) as store:
        _, degrades = await mixed(store)
    clock.advance(SECONDS)
    async with opened(store_kind, place, clock) as store:
        assert ids(await claim(store, a_worker(threads=2))) == [degrades.id]


def back_to_mixed_lanes(kind: StoreKind, place: Path) -> None:
    """Undo and redo the migration that took the two apart."""
    undo = """
        UPDATE jobs SET lane_id = (SELECT min(id) FROM lanes WHERE thread_demand = 9) WHERE on_oversize = 'wait';
        DELETE FROM lanes WHERE on_oversize = 'wait';
        ALTER TABLE lanes DROP COLUMN on_oversize;
    """
    if kind.name == "postgres":
        (migration,) = (MIGRATIONS / "postgres" / "migrations").glob("*_oversize_lanes.sql")
        history = undo.split(";")[0].replace("UPDATE jobs", "UPDATE history") + ";"
        sql = f"SET search_path TO stoker; {history} {undo} {migration.read_text()}"
        shared_postgres().psql(sql, databases.url(place).rsplit("/", 1)[-1])
        return
    (migration,) = (MIGRATIONS / "sqlite" / "migrations").glob("*_oversize_lanes.sql")
    db = apsw.Connection(str(place / "stoker.db"))
    db.execute(undo + migration.read_text())
    db.close()


@pytest.mark.parametrize("status", ["queued", "failed"])
async def test_jobs_that_were_stored_before_are_taken_apart(
    store_kind: StoreKind, place: Path, clock: FakeClock, status: str
) -> None:
    async with opened(store_kind, place, clock) as store:
        degrades = await submitted(store, thread_demand=9, on_oversize="degrade", priority=1)
        if status == "queued":
            waits = await submitted(store, thread_demand=9, on_oversize="wait", priority=0)
        else:
            waits = await claimed(store, thread_demand=9, on_oversize="wait", priority=0, max_attempts=1)
            await end(store, waits, "error")
    back_to_mixed_lanes(store_kind, place)
    async with opened(store_kind, place, clock) as store:
        if status == "failed":
            await store.replay([waits.id])
        clock.advance(SECONDS)
        assert ids(await claim(store, a_worker(threads=2))) == [degrades.id]
        again = await submitted(store, thread_demand=9, on_oversize="wait", priority=0)
        assert ids(await claim(store, a_worker(threads=18))) == [waits.id, again.id]
