"""Whether a job could be stored: probes, and what is told of how writes end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoker.domain.errors import StoreUnavailable
from stoker.store.base import Store
from stoker.store.postgres.store import PostgresStore
from stoker.store.sqlite.store import SqliteStore
from tests.conformance.steps import a_job, a_key, claimed, end, submitted
from tests.conformance.stores import every_job
from tests.support.jobs import a_submission
from tests.support.servers import databases, shared_postgres


@contextmanager
def read_only(store: Store, place: Path) -> Iterator[None]:
    """Meanwhile the store can be read and not written."""
    if isinstance(store, SqliteStore):
        store._db.execute("PRAGMA query_only = on")
        yield
        store._db.execute("PRAGMA query_only = off")
        return
    assert isinstance(store, PostgresStore)
    for writer in store._writers:
        writer._patience_seconds = 0.2
    name = databases.url(place).rpartition("/")[2]
    server = shared_postgres()
    server.psql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    server.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        name,
    )
    yield
    server.psql(f"ALTER DATABASE {name} RESET default_transaction_read_only")


async def test_a_probe_writes_nothing_that_anything_else_reads(store: Store) -> None:
    await submitted(store)
    before = await every_job(store), await store.counts(), await store.sessions()
    for _ in range(3):
        await store.probe()
    assert before == (await every_job(store), await store.counts(), await store.sessions())
    assert await end(store, await claimed(store, type="mine")) == "completed"


async def test_a_probe_fails_while_no_job_can_be_stored_and_succeeds_afterwards(
    store: Store, place: Path
) -> None:
    await submitted(store)
    with read_only(store, place):
        with pytest.raises(StoreUnavailable):
            await store.probe()
        with pytest.raises(StoreUnavailable):
            await submitted(store)
        assert len(await every_job(store)) == 1
    await store.probe()
    await submitted(store)
    await end(store, await claimed(store, type="mine"))
    assert len(await every_job(store)) == 3


async def test_how_writes_end_is_told(store: Store, place: Path) -> None:
    outcomes: list[Exception | None] = []
    store.on_outcome(outcomes.append)
    submission = a_submission(a_job(store), a_key(store))
    await store.insert([submission])
    assert outcomes == [None]
    await store.insert([submission])
    await store.renew([])
    await store.claims([])
    assert outcomes == [None], "what stored nothing tells nothing"
    await store.probe()
    assert outcomes == [None, None]
    with read_only(store, place), pytest.raises(StoreUnavailable) as refusal:
        await store.probe()
    assert outcomes == [None, None, refusal.value]
