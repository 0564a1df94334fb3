"""The database file itself: who owns it, who may read it, and what happens when it or its log is taken away."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from stoker.cli.doctor import check_database_file
from stoker.domain.errors import StoreUnavailable
from stoker.store.sqlite.database import CHECK_SECONDS
from stoker.store.sqlite.file_lock import FileLock
from stoker.store.sqlite.logs import SqliteLogs
from stoker.store.sqlite.move import SqliteSource, SqliteTarget
from stoker.store.sqlite.store import SqliteStore
from tests.conformance.steps import a_job, ids, submit, submitted
from tests.conformance.stores import every_job
from tests.support.clock import FakeClock

HOLDER = """
import sys
from pathlib import Path
from stoker.store.sqlite.file_lock import FileLock
FileLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_elsewhere(path: Path) -> Iterator[int]:
    """The lock in the hands of another process; its id."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
        holder.stdin.close()


def looked_at(path: Path) -> str:
    """The ids of all jobs, read by another process."""
    look = "import apsw, sys; db = apsw.Connection(sys.argv[1]); print(*db.execute('SELECT id FROM jobs')); db.close()"
    return subprocess.run(
        [sys.executable, "-c", look, str(path)], capture_output=True, text=True, check=True
    ).stdout


async def crashed(path: Path, clock: FakeClock, jobs: int = 1) -> list[str]:
    """A store with jobs whose process was killed: the log stays beside the file."""
    store = await SqliteStore.open(path, clock, threads=False)
    made = [await submitted(store) for _ in range(jobs)]
    await killed(store)
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    return ids(made)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def killed(store: SqliteStore) -> None:
    await store._finish_transactions()
    await store._close_readers()
    store._file.drop()


async def stored(path: Path, clock: FakeClock) -> list[str]:
    """Every job that a coordinator finds when it starts here."""
    store = await SqliteStore.open(path, clock, threads=False)
    try:
        return sorted(ids(await every_job(store)))
    finally:
        await store.close()


# ── one owner ────────────────────────────────────────────────────────────────────────────────────────────────────────


def by_its_name(path: Path) -> Path:
    return path


def through_a_symbolic_link(path: Path) -> Path:
    link = path.with_name("symbolic.db")
    link.symlink_to(path.name)
    return link


def through_a_linked_folder(path: Path) -> Path:
    link = path.parent.with_name("linked")
    link.symlink_to(path.parent)
    return link / path.name


def through_a_hard_link(path: Path) -> Path:
    link = path.with_name("hard.db")
    link.hardlink_to(path)
    return link


def after_the_lock_was_deleted(path: Path) -> Path:
    path.with_name(path.name + ".lock").unlink()
    return path


@pytest.mark.parametrize(
    "reached",
    [
        by_its_name,
        through_a_symbolic_link,
        through_a_linked_folder,
        through_a_hard_link,
        after_the_lock_was_deleted,
    ],
)
def test_a_file_has_one_owner_by_whatever_name(tmp_path: Path, reached: Callable[[Path], Path]) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "stoker.db"
    with held_elsewhere(path) as pid:
        other = reached(path)
        with pytest.raises(
            StoreUnavailable, match=rf"{other} is in use by another coordinator \(process {pid}\)"
        ):
            FileLock(other)
    FileLock(other).release()


def test_in_one_process_a_second_owner_is_refused_without_touching_the_file(tmp_path: Path) -> None:
    """Opening and closing the file again would drop the locks that SQLite holds on it."""
    path = tmp_path / "stoker.db"
    lock = FileLock(path)
    (tmp_path / "hard.db").hardlink_to(path)
    with pytest.raises(StoreUnavailable, match=f"process {os.getpid()}"):
        FileLock(tmp_path / "hard.db")
    lock.release()


async def test_the_lock_leaves_sqlites_own_locks_alone(tmp_path: Path, clock: FakeClock) -> None:
    """Another process must not believe that it is the last one: it would delete the log on leaving."""
    path = tmp_path / "stoker.db"
    store = await SqliteStore.open(path, clock, threads=False)
    job = await submitted(store)
    with pytest.raises(StoreUnavailable):
        await SqliteStore.open(path, clock, threads=False)
    assert job.id in looked_at(path)
    assert (tmp_path / "stoker.db-wal").exists()
    later = await submitted(store)
    await store.close()
    assert await stored(path, clock) == sorted([job.id, later.id])


async def test_a_link_and_the_file_have_the_same_log(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "stoker.db"
    made = await crashed(path, clock)
    assert await stored(through_a_symbolic_link(path), clock) == made
    assert names(tmp_path) == ["stoker.db", "stoker.db.lock", "symbolic.db"]


async def test_a_file_that_cannot_be_opened_is_a_clear_refusal(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "stoker.db").mkdir()
    with pytest.raises(StoreUnavailable, match=r"cannot open .*stoker\.db"):
        await SqliteStore.open(tmp_path / "stoker.db", clock)


# ── for their owner only ─────────────────────────────────────────────────────────────────────────────────────────────


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())}


async def test_what_is_made_can_be_read_by_its_owner_only(tmp_path: Path, clock: FakeClock) -> None:
    folder = tmp_path / ".stoker"
    mask = os.umask(0o022)
    try:
        store = await SqliteStore.open(folder / "stoker.db", clock)
        logs = SqliteLogs.open(folder / "stoker-logs.db")
        await submitted(store)
        found = modes(folder)
        await logs.close()
        await store.close()
    finally:
        os.umask(mask)
    assert found.pop(".stoker") == "0o700"
    assert set(found.values()) == {"0o600"}
    assert {
        "stoker.db",
        "stoker.db-wal",
        "stoker.db-shm",
        "stoker.db-open",
        "stoker.db.lock",
        "stoker-logs.db",
    } <= set(found)


async def test_what_an_earlier_release_made_is_mended(tmp_path: Path, clock: FakeClock) -> None:
    folder = tmp_path / ".stoker"
    await crashed(folder / "stoker.db", clock)
    await SqliteLogs.open(folder / "stoker-logs.db").close()
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    store = await SqliteStore.open(folder / "stoker.db", clock)
    await SqliteLogs.open(folder / "stoker-logs.db").close()
    found = modes(folder)
    await store.close()
    assert found.pop(".stoker") == "0o700"
    assert set(found.values()) == {"0o600"}


async def test_a_folder_that_holds_other_things_keeps_its_mode(tmp_path: Path, clock: FakeClock) -> None:
    os.chmod(tmp_path, 0o755)  # noqa: S103 - as folders usually are
    await (await SqliteStore.open(tmp_path / "stoker.db", clock)).close()
    assert modes(tmp_path)[tmp_path.name] == "0o755"


# ── taken away while it is open ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
async def test_a_file_that_is_taken_away_accepts_nothing_until_it_is_back(
    tmp_path: Path, clock: FakeClock, replaced: bool
) -> None:
    path = tmp_path / "stoker.db"
    store = await SqliteStore.open(path, clock)
    before = await submitted(store)
    aside = path.rename(tmp_path / "aside.db")
    if replaced:
        shutil.copy(aside, path)
    clock.advance(CHECK_SECONDS)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"stoker\.db was deleted or replaced"):
            await submitted(store)
    aside.rename(path)
    clock.advance(CHECK_SECONDS)
    after = await submitted(store)
    await store.close()
    assert await stored(path, clock) == sorted([before.id, after.id])


async def test_a_log_that_is_taken_away_accepts_nothing_and_a_clean_end_saves_what_it_held(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "stoker.db"
    store = await SqliteStore.open(path, clock)
    before = await submitted(store)
    (tmp_path / "stoker.db-wal").unlink()
    clock.advance(CHECK_SECONDS)
    with pytest.raises(StoreUnavailable, match=r"stoker\.db-wal was deleted or replaced"):
        await submitted(store)
    await store.close()
    assert await stored(path, clock) == [before.id]


def with_another_database(path: Path) -> None:
    path.write_bytes(path.with_name("another.db").read_bytes())


def with_an_earlier_backup(path: Path) -> None:
    path.write_bytes(path.with_name("backup.db").read_bytes())


def with_nothing(path: Path) -> None:
    os.truncate(path, 0)


def with_garbage(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize(
    "overwrite", [with_another_database, with_an_earlier_backup, with_nothing, with_garbage]
)
async def test_a_file_that_is_overwritten_in_place_accepts_nothing_more_and_is_left_as_it_is(
    tmp_path: Path, clock: FakeClock, overwrite: Callable[[Path], None]
) -> None:
    path = tmp_path / "stoker.db"
    other = await SqliteStore.open(tmp_path / "another.db", clock)
    await submitted(other)
    await other.close()
    store = await SqliteStore.open(path, clock)
    by_vacuum(store._db, tmp_path / "backup.db")
    await submitted(store)
    overwrite(path)
    put_there = path.read_bytes()
    clock.advance(CHECK_SECONDS)
    for _ in range(2):
        with pytest.raises(
            StoreUnavailable, match=r"contents of the database file .*stoker\.db were overwritten"
        ):
            await submitted(store)
        clock.advance(CHECK_SECONDS)
    await store.close()
    assert path.read_bytes() == put_there
    with pytest.raises(StoreUnavailable, match=r"belongs to another file|is missing or empty"):
        await SqliteStore.open(path, clock)
    assert path.read_bytes() == put_there


async def test_a_checkpoint_of_its_own_is_no_overwriting(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "stoker.db"
    store = await SqliteStore.open(path, clock)
    made = []
    for _ in range(3):
        made += [await submitted(store) for _ in range(50)]
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        clock.advance(CHECK_SECONDS)
    await store.close()
    assert await stored(path, clock) == sorted(ids(made))


async def test_what_cannot_be_read_is_not_available_instead_of_a_defect(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "stoker.db"
    await (await SqliteStore.open(path, clock)).close()
    store = await SqliteStore.open(path, clock)
    with_garbage(path)
    for read in (store.get([a_job(store).id]), store.sessions(), store.next_schedule_at()):
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            await read
    await store.close()


# ── a log that vanished while nothing ran ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", ["deleted", "emptied", "deleted with -shm"])
async def test_a_log_that_vanished_is_refused_until_the_loss_is_accepted(
    tmp_path: Path, clock: FakeClock, lost: str
) -> None:
    path = tmp_path / "stoker.db"
    await crashed(path, clock)
    wal = tmp_path / "stoker.db-wal"
    if lost == "emptied":
        os.truncate(wal, 0)
    else:
        wal.unlink()
    if lost == "deleted with -shm":
        (tmp_path / "stoker.db-shm").unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"stoker\.db-wal is missing.*remove .*stoker\.db-open"):
            await SqliteStore.open(path, clock)
    with pytest.raises(StoreUnavailable, match="is missing"):
        await SqliteSource.open(path, clock)
    assert [finding.state for finding in check_database_file(path)] == ["broken"]
    (tmp_path / "stoker.db-open").unlink()
    assert not list(check_database_file(path))
    assert await stored(path, clock) == []
    assert await stored(path, clock) == []


@pytest.mark.parametrize("clean", [False, True], ids=["after a kill", "taken away before a clean end"])
async def test_a_log_is_not_written_over_a_file_that_was_put_in_the_place_of_its_own(
    tmp_path: Path, clock: FakeClock, clean: bool
) -> None:
    path, backup, aside = (tmp_path / name for name in ("stoker.db", "backup.db", "aside.db"))
    store = await SqliteStore.open(path, clock)
    before = await submitted(store)
    by_vacuum(store._db, backup)
    after = await submitted(store)
    if not clean:
        await killed(store)
    path.rename(aside)
    shutil.copy(backup, path)
    if clean:
        await store.close()
    for _ in range(2):
        with pytest.raises(
            StoreUnavailable, match=r"stoker\.db-wal belongs to another file.*remove .*-wal and .*-open"
        ):
            await SqliteStore.open(path, clock)
    with pytest.raises(StoreUnavailable, match="belongs to another file"):
        await SqliteSource.open(path, clock)
    path.rename(backup)
    aside.rename(path)
    assert await stored(path, clock) == sorted([before.id, after.id])
    backup.rename(path)
    assert await stored(path, clock) == [before.id]


async def test_a_log_without_its_database_is_not_deleted(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "stoker.db"
    made = await crashed(path, clock)
    aside = path.rename(tmp_path / "aside.db")
    for _ in range(2):
        with pytest.raises(
            StoreUnavailable, match=r"stoker\.db is missing or empty.*remove .*-wal and .*-open"
        ):
            await SqliteStore.open(path, clock)
    aside.rename(path)
    assert await stored(path, clock) == made
    path.unlink()
    assert await stored(path, clock) == []


async def test_a_log_that_is_put_back_is_read(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "stoker.db"
    made = await crashed(path, clock)
    aside = (tmp_path / "stoker.db-wal").rename(tmp_path / "aside")
    with pytest.raises(StoreUnavailable, match="is missing"):
        await SqliteStore.open(path, clock)
    aside.rename(tmp_path / "stoker.db-wal")
    assert await stored(path, clock) == made


async def test_after_a_clean_end_nothing_is_left_and_nothing_is_missing(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "stoker.db"
    store = await SqliteStore.open(path, clock)
    job = await submitted(store)
    await store.close()
    assert names(tmp_path) == ["stoker.db", "stoker.db.lock"]
    moved = path.rename(tmp_path / "moved.db")
    assert await stored(moved, clock) == [job.id]


async def test_after_a_kill_the_log_is_read_again_and_again(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "stoker.db"
    made = [id for _ in range(3) for id in await crashed(path, clock)]
    assert await stored(path, clock) == sorted(made)


async def test_after_a_kill_all_files_together_may_be_moved(tmp_path: Path, clock: FakeClock) -> None:
    folder = tmp_path / "before"
    made = await crashed(folder / "stoker.db", clock)
    assert await stored(folder.rename(tmp_path / "after") / "stoker.db", clock) == made


async def test_a_command_that_writes_after_a_kill_leaves_a_file_that_starts(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "stoker.db"
    made = await crashed(path, clock)
    await (await SqliteTarget.open(path, clock)).close()
    assert await stored(path, clock) == made


def by_vacuum(db: apsw.Connection, to: Path) -> None:
    db.execute("VACUUM INTO ?", (str(to),)).fetchall()


def by_backup(db: apsw.Connection, to: Path) -> None:
    copy = apsw.Connection(str(to))
    with copy.backup("main", db, "main") as backup:
        backup.step()
    copy.close()


@pytest.mark.parametrize("make", [by_vacuum, by_backup])
@pytest.mark.parametrize("of", ["this life", "an earlier life"])
async def test_a_backup_of_the_file_alone_starts_in_the_place_of_one_that_crashed(
    tmp_path: Path, clock: FakeClock, make: Callable[[apsw.Connection, Path], None], of: str
) -> None:
    path, backup = tmp_path / "stoker.db", tmp_path / "backup.db"
    store = await SqliteStore.open(path, clock)
    job = await submitted(store)
    make(store._db, backup)
    await submit(store, *[a_job(store) for _ in range(5)])
    if of == "an earlier life":
        await store.close()
        store = await SqliteStore.open(path, clock)
    await killed(store)
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink()
    path.write_bytes(backup.read_bytes())
    assert await stored(path, clock) == [job.id]


async def test_a_copy_after_a_clean_end_starts_in_the_place_of_one_that_crashed(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "stoker.db"
    store = await SqliteStore.open(path, clock)
    job = await submitted(store)
    await store.close()
    copy = path.read_bytes()
    await crashed(path, clock)
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink()
    path.write_bytes(copy)
    assert await stored(path, clock) == [job.id]


async def test_a_database_of_an_earlier_release_starts_with_its_log_and_without(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "stoker.db"
    made = await crashed(path, clock)
    (tmp_path / "stoker.db-open").unlink()
    assert await stored(path, clock) == made
    assert await stored(path, clock) == made


async def test_a_marker_that_cannot_be_written_is_no_reason_not_to_start(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "stoker.db"
    (tmp_path / "stoker.db-open.part").mkdir()
    store = await SqliteStore.open(path, clock)
    job = await submitted(store)
    await killed(store)
    assert await stored(path, clock) == [job.id]


MAPPING = """
import resource, sys
from pathlib import Path
from stoker.store.sqlite.database import open_reader, open_writer
path = Path(sys.argv[1])
open_writer(path).execute("CREATE TABLE t (a)").fetchall()
if sys.argv[2] == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
print(open_reader(path, mapped=True).execute("PRAGMA mmap_size").fetchall()[0][0] > 0)
"""


@pytest.mark.parametrize(("space", "maps"), [("free", "True"), ("limited", "False")])
def test_the_file_is_not_mapped_where_the_address_space_is_limited(
    tmp_path: Path, space: str, maps: str
) -> None:
    """Requests need that space: with 1,200 MiB a mapped file made the coordinator run out of it."""
    command = [sys.executable, "-c", MAPPING, str(tmp_path / "stoker.db"), space]
    assert subprocess.check_output(command, text=True).strip() == maps
