"""What was confirmed survives a power cut: every commit of a job waits for the disk, whatever a server was told before."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import apsw
import pytest

from stoker.store.base import Store
from stoker.store.postgres import schema
from stoker.store.postgres.store import PostgresStore
from stoker.store.sqlite.store import SqliteStore
from tests.conformance.steps import a_job, a_key, a_session, claimed, end, failed, submitted
from tests.support.clock import FakeClock
from tests.support.jobs import a_submission
from tests.support.pooler import Pooler
from tests.support.servers import shared_postgres

FULL: Final = 2
WITNESS: Final = """
CREATE TABLE witness (relation text, synchronous_commit text);
CREATE FUNCTION bear_witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.witness VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'stoker' LOOP
        EXECUTE format(
            'CREATE CONSTRAINT TRIGGER bear_witness AFTER INSERT OR UPDATE OR DELETE ON stoker.%I '
            'DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.bear_witness()', name);
    END LOOP;
END $$
"""
"""Notes, at the moment of a commit, which table was written and how the server means to commit."""
WRITTEN: Final = {"jobs", "history", "attempts", "counts", "idempotency_keys", "sessions", "paused_queues"}


@pytest.mark.parametrize("threads", [False, True], ids=["inline", "threads"])
async def test_sqlite_syncs_its_log_at_every_commit(place: Path, clock: FakeClock, threads: bool) -> None:
    store = await SqliteStore.open(place / "stoker.db", clock, threads=threads)
    try:
        await _work(store)
        assert _pragma(store._db, "journal_mode") == "wal"
        assert _pragma(store._db, "synchronous") == FULL
    finally:
        await store.close()


def _pragma(db: apsw.Connection, name: str) -> object:
    ((value,),) = db.execute(f"PRAGMA {name}").fetchall()
    return value


class Forgetful:
    """A database of PostgreSQL whose sessions do not wait for the disk unless they ask for it."""

    def __init__(self) -> None:
        self.name = f"forgetful_{uuid4().hex[:8]}"
        self.url = shared_postgres().create_database(self.name)

    def forget(self, whose: str = "DATABASE {}") -> None:
        self.psql(f"ALTER {whose.format(self.name)} SET synchronous_commit = off")

    def end_sessions(self) -> None:
        self.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    def psql(self, sql: str) -> str:
        return shared_postgres().psql(sql, self.name)

    def witnessed(self) -> set[tuple[str, str]]:
        return {
            (relation, how)
            for line in self.psql("SELECT DISTINCT * FROM witness").splitlines()
            for relation, _, how in [line.partition("|")]
        }

    def drop(self) -> None:
        shared_postgres().psql(f"DROP DATABASE {self.name} WITH (FORCE)")


@pytest.fixture
def forgetful() -> Iterator[Forgetful]:
    database = Forgetful()
    yield database
    database.drop()


@pytest.mark.parametrize("whose", ["DATABASE {}", "ROLE postgres IN DATABASE {}"], ids=["database", "role"])
async def test_postgres_waits_for_the_disk_where_the_default_is_not_to(
    forgetful: Forgetful, clock: FakeClock, whose: str
) -> None:
    forgetful.forget(whose)
    assert await _witnessed(forgetful, clock) == {(relation, "on") for relation in WRITTEN}


async def test_postgres_waits_for_the_disk_behind_a_pooler_that_takes_no_settings(
    forgetful: Forgetful, clock: FakeClock
) -> None:
    forgetful.forget()
    with Pooler(shared_postgres().port) as pooler:
        url = f"postgresql://postgres@127.0.0.1:{pooler.port}/{forgetful.name}?prepared=off"
        assert await _witnessed(forgetful, clock, url) == {(relation, "on") for relation in WRITTEN}


async def test_postgres_waits_for_the_disk_where_the_default_changes_later(
    forgetful: Forgetful, clock: FakeClock
) -> None:
    """Connections come and go, and each new one begins with what the default is then."""

    def changes() -> None:
        forgetful.forget()
        forgetful.end_sessions()

    assert await _witnessed(forgetful, clock, once_open=changes) == {(relation, "on") for relation in WRITTEN}


async def test_postgres_keeps_what_is_stricter(forgetful: Forgetful, clock: FakeClock) -> None:
    forgetful.psql(f"ALTER DATABASE {forgetful.name} SET synchronous_commit = remote_apply")
    witnessed = await _witnessed(forgetful, clock)
    assert witnessed == {(relation, "remote_apply") for relation in WRITTEN}


async def _witnessed(
    forgetful: Forgetful,
    clock: FakeClock,
    url: str | None = None,
    *,
    once_open: Callable[[], None] = lambda: None,
) -> set[tuple[str, str]]:
    """How the commits of a store that did everything once were made, by table."""
    await schema.up(forgetful.url)
    forgetful.psql(WITNESS)
    store = await PostgresStore.open(url or forgetful.url, clock, own_clock=True)
    try:
        once_open()
        await _work(store)
    finally:
        await store.close()
    return {(relation, how) for relation, how in forgetful.witnessed() if relation in WRITTEN}


async def _work(store: Store) -> None:
    """A write of each kind that somebody gets an answer for."""
    await store.open_session(a_session(store))
    await end(store, await claimed(store))
    await store.replay([(await failed(store)).id])
    await store.cancel([(await submitted(store)).id])
    await store.insert([a_submission(a_job(store), a_key(store))])
    await store.set_paused("default", True)
