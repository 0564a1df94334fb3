"""A transaction leaves no reference cycle: the collector runs rarely in a coordinator, and a cycle would keep payloads."""

import gc
from collections.abc import Iterator

import pytest

from stoker.store.base import Store
from tests.conformance.steps import a_session, a_worker, claim, end, submitted


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What only the collector would have found since the test began."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_a_transaction_is_freed_as_soon_as_it_is_over(store: Store, garbage: list[object]) -> None:
    await store.open_session(a_session(store))
    job = await submitted(store)
    (claimed,) = await claim(store, a_worker(threads=1))
    await end(store, claimed, "completed")
    await store.replay([job.id])
    gc.collect()
    assert [
        found for found in garbage if type(found).__name__ in {"SqliteTransaction", "PostgresTransaction"}
    ] == []
