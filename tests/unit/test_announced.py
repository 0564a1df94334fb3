"""What workers announce for the jobs of their types, as a coordinator keeps it in mind."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from stoker.coordinator.announced import Announced
from stoker.domain.errors import StoreUnavailable
from stoker.domain.job import NO_DEFAULTS, JobDefaults
from stoker.wire.frames import TypeNote

MAIL, POST = JobDefaults(queue="mail"), JobDefaults(queue="post")


class Notes:
    """The part of a store that keeps notes on types. A read shows what was stored when it began, and ends with `go_on`."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.reads = 0
        self.away = False
        self.reading, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def note_types(self, notes: Mapping[str, bytes]) -> None:
        self.kept |= notes

    async def noted_types(self) -> dict[str, bytes]:
        self.reads += 1
        if self.away:
            raise StoreUnavailable("away")
        found = dict(self.kept)
        self.reading.set()
        await self.go_on.wait()
        return found


class Rig:
    def __init__(self, notes: Notes | None = None) -> None:
        self.notes = notes or Notes()
        self.told = 0
        store: Any = self.notes  # all that it needs of one
        self.announced = Announced(store, self._tell)

    def _tell(self) -> None:
        self.told += 1

    async def hello(self, **defaults: JobDefaults) -> None:
        await self.announced.keep(
            defaults, {type: TypeNote(defaults=given) for type, given in defaults.items()}
        )


async def test_what_is_announced_counts_at_once_and_is_told_once() -> None:
    rig = Rig()
    assert rig.announced.of("send") is NO_DEFAULTS
    await rig.hello(send=MAIL, plain=NO_DEFAULTS)
    await rig.hello(send=MAIL)
    assert (rig.announced.of("send"), rig.announced.of("plain"), rig.told) == (MAIL, NO_DEFAULTS, 1)
    await rig.hello(send=NO_DEFAULTS)
    assert (rig.announced.of("send"), rig.told) == (NO_DEFAULTS, 2)


async def test_another_coordinator_reads_it_from_the_store() -> None:
    here = Rig()
    elsewhere = Rig(here.notes)
    await here.hello(send=MAIL)
    await elsewhere.announced.read()
    assert elsewhere.announced.of("send") == MAIL
    await here.hello(send=NO_DEFAULTS)
    await elsewhere.announced.read_if_told()
    assert elsewhere.announced.of("send") == NO_DEFAULTS


async def test_what_is_announced_during_a_read_is_not_lost_by_it() -> None:
    rig = Rig()
    await rig.hello(send=MAIL, other=MAIL)
    rig.notes.go_on.clear()
    reading = asyncio.create_task(rig.announced.read())
    await rig.notes.reading.wait()
    await rig.hello(send=POST)
    rig.notes.go_on.set()
    await reading
    assert (rig.announced.of("send"), rig.announced.of("other")) == (POST, MAIL)


async def test_a_worker_that_appears_is_a_reason_to_look_and_one_that_stays_is_none() -> None:
    rig = Rig()
    await rig.announced.look([])
    assert rig.notes.reads == 0
    rig.notes.kept["send"] = b'{"defaults":{"queue":"mail"}}'
    await rig.announced.look(["w1"])
    assert (rig.notes.reads, rig.announced.of("send")) == (1, MAIL)
    await rig.announced.look(["w1"])
    await rig.announced.look([])
    assert rig.notes.reads == 1
    await rig.announced.look(["w1"])
    assert rig.notes.reads == 2


async def test_a_look_that_failed_is_repeated() -> None:
    rig = Rig()
    rig.notes.kept["send"] = b'{"defaults":{"queue":"mail"}}'
    rig.notes.away = True
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await rig.announced.look(["w1"])
    await rig.announced.read_if_told()
    rig.notes.away = False
    await rig.announced.look(["w1"])
    assert rig.announced.of("send") == MAIL
