"""A session that began with a secret is gone on with by its owner alone, at every coordinator."""

import asyncio
from pathlib import Path

import pytest

from stoker.domain.errors import WrongSecret
from stoker.domain.session_secret import secret_hash
from stoker.store.base import Store
from tests.conformance.steps import a_session
from tests.conformance.stores import STORES, StoreKind
from tests.support.clock import FakeClock

OWN = secret_hash("the secret of this worker")
OTHER = secret_hash("a guess of somebody else")


async def test_the_owner_goes_on(store: Store) -> None:
    assert await store.open_session(a_session(store, secret_hash=OWN)) == "live"
    assert await store.open_session(a_session(store, secret_hash=OWN, threads=9)) == "live"
    (session,) = await store.sessions()
    assert (session.threads, session.secret_hash) == (9, OWN)


@pytest.mark.parametrize("given", [OTHER, None, b""])
async def test_nobody_else_does_and_nothing_changes(
    store: Store, clock: FakeClock, given: bytes | None
) -> None:
    await store.open_session(a_session(store, secret_hash=OWN))
    before = await store.sessions()
    clock.advance(1)
    with pytest.raises(WrongSecret):
        await store.open_session(a_session(store, secret_hash=given, threads=9))
    assert await store.sessions() == before


@pytest.mark.parametrize("given", [OTHER, None])
async def test_a_session_that_began_without_a_secret_stays_without(store: Store, given: bytes | None) -> None:
    assert await store.open_session(a_session(store)) == "live"
    assert await store.open_session(a_session(store, secret_hash=given)) == "live"
    assert await store.open_session(a_session(store)) == "live"
    (session,) = await store.sessions()
    assert session.secret_hash is None


async def test_a_refusal_touches_no_other_call_of_the_same_transaction(store: Store) -> None:
    await store.open_session(a_session(store, secret_hash=OWN))
    answers = await asyncio.gather(
        store.open_session(a_session(store, "w2")),
        store.open_session(a_session(store, secret_hash=OTHER)),
        store.open_session(a_session(store, "w3")),
        return_exceptions=True,
    )
    assert (answers[0], type(answers[1]), answers[2]) == ("live", WrongSecret, "live")


@pytest.mark.parametrize("kind", [kind for kind in STORES if not kind.exclusive], ids=lambda kind: kind.name)
async def test_it_holds_at_every_coordinator(kind: StoreKind, place: Path, clock: FakeClock) -> None:
    a = await kind.open(place, clock)
    b = await kind.open(place, clock)
    try:
        await a.open_session(a_session(a, secret_hash=OWN))
        with pytest.raises(WrongSecret):
            await b.open_session(a_session(b, secret_hash=OTHER))
        begun = await asyncio.gather(
            *(
                store.open_session(a_session(store, "new", secret_hash=hash))
                for store, hash in ((a, OWN), (b, OTHER))
            ),
            return_exceptions=True,
        )
        assert begun.count("live") == 1
    finally:
        await a.close()
        await b.close()
