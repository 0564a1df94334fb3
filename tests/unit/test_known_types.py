"""Which types are known: asked for every submission of a name that is no built-in type, so rarely looked up."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from stoker.coordinator import known_types
from stoker.coordinator.announced import Announced
from stoker.coordinator.known_types import KnownTypes
from stoker.coordinator.peers import Peers
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import Sessions
from stoker.store.base import Store
from stoker.store.sessions import NO_NOTE
from tests.unit.test_sessions import a_session


class NotedTypes:
    """A store, as far as it is asked."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        self.notes: dict[str, bytes] = {}
        self.looks = 0

    async def noted_types(self) -> dict[str, bytes]:
        self.looks += 1
        return self.notes


class Elsewhere:
    async def serves(self, types: Iterable[str]) -> set[str]:
        return {"elsewhere"} & set(types)


def known_by(store: NotedTypes, sessions: Sessions | None = None) -> KnownTypes:
    peers: Any = Elsewhere()
    nothing: Any = lambda changed: None  # noqa: E731
    return KnownTypes(
        cast(Store, store),
        Sessions() if sessions is None else sessions,
        cast(Peers, peers),
        Announced(cast(Store, store), nothing),
        RunTimes(),
    )


def test_a_name_that_nobody_knows_is_not_looked_up_each_time() -> None:
    store = NotedTypes()
    store.notes = {"noted": NO_NOTE}

    async def ask() -> list[bool]:
        known = known_by(store)
        return [await known.has(type) for type in ("other", "noted", "other", "noted")]

    assert asyncio.run(ask()) == [False, True, False, True]
    assert store.looks == 1


def test_what_is_noted_later_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_types, "LOOK_SECONDS", 0.0)
    store = NotedTypes()

    async def ask() -> tuple[bool, bool]:
        known = known_by(store)
        before = await known.has("noted")
        store.notes = {"noted": NO_NOTE}
        return before, await known.has("noted")

    assert asyncio.run(ask()) == (False, True)


def test_a_type_of_a_worker_that_left_stays_known() -> None:
    sessions = Sessions()
    session = a_session()
    sessions.add(session)
    sessions.remove(session, 0)
    store = NotedTypes()
    assert asyncio.run(known_by(store, sessions).has("echo"))
    assert store.looks == 0


def test_workers_of_other_coordinators_count_where_the_store_is_shared() -> None:
    assert asyncio.run(known_by(NotedTypes(shared=True)).has("elsewhere"))
    assert not asyncio.run(known_by(NotedTypes()).has("elsewhere"))
