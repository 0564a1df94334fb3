"""The size that the write-ahead log gets when a coordinator starts."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from stoker.store.sqlite import log_room
from stoker.store.sqlite.log_room import LOG_BYTES
from stoker.store.sqlite.open_marker import wal_path
from stoker.store.sqlite.store import SqliteStore
from tests.conformance.steps import submitted
from tests.conformance.stores import every_job
from tests.support.clock import FakeClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stoker.db"


def log_size(path: Path) -> int:
    return wal_path(path).stat().st_size


async def killed(store: SqliteStore) -> None:
    await store._finish_transactions()
    await store._close_readers()
    store._file.drop()


async def test_commits_do_not_make_the_log_grow(path: Path, clock: FakeClock) -> None:
    store = await SqliteStore.open(path, clock)
    assert log_size(path) == LOG_BYTES
    for _ in range(20):
        await submitted(store)
    assert log_size(path) == LOG_BYTES
    await store.close()
    assert not wal_path(path).exists()


async def test_after_a_kill_what_stands_before_the_zeros_is_read(path: Path, clock: FakeClock) -> None:
    made: list[str] = []
    for _ in range(3):
        store = await SqliteStore.open(path, clock)
        assert [job.id for job in reversed(await every_job(store))] == made
        made += [(await submitted(store)).id for _ in range(5)]
        await killed(store)
        assert log_size(path) == LOG_BYTES
    store = await SqliteStore.open(path, clock, threads=False)
    assert [job.id for job in reversed(await every_job(store))] == made
    await store.close()


async def test_a_disk_without_much_room_keeps_it(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(path.parent)._replace(free=log_room.FREE_BYTES - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    store = await SqliteStore.open(path, clock)
    assert log_size(path) < LOG_BYTES
    await submitted(store)
    await store.close()


def test_a_disk_that_is_full_gets_its_room_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> NoReturn:
        raise OSError(28, "No space left on device")

    wal_path(path).write_bytes(b"12345")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        log_room._extend(wal_path(path))
    assert wal_path(path).read_bytes() == b"12345"


async def test_a_log_that_cannot_be_extended_is_used_as_it_is(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(wal: Path) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(log_room, "_extend", refuse)
    store = await SqliteStore.open(path, clock)
    job = await submitted(store)
    assert (await store.get([job.id]))[0] is not None
    await store.close()
