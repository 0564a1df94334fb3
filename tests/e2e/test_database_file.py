"""A coordinator whose database is linked to, filled up, taken away, cut off from its log or made read-only."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import httpx
import pytest

from tests.e2e.system import Server, System, eventually
from tests.support.portable import PORTABLE, linux_only
from tests.support.servers import databases, shared_postgres

MEGABYTE = 1024 * 1024


def ready(server: Server) -> httpx.Response:
    return server.http.get("/ready")


def submit(server: Server) -> httpx.Response:
    return server.http.post("/jobs", json={"type": "echo"})


def reasons(server: Server) -> str:
    answer = ready(server)
    return "" if answer.status_code == 200 else " ".join(answer.json()["reasons"])


NOT_THE_FILE_ITSELF = linux_only("the file beside the database is locked, not the database itself")


@pytest.mark.parametrize(
    "by",
    [
        "its name",
        "symbolic link",
        pytest.param("hard link", marks=NOT_THE_FILE_ITSELF),
        pytest.param("a deleted lock", marks=NOT_THE_FILE_ITSELF),
    ],
)
def test_a_second_coordinator_on_one_file_is_refused(system: System, by: str) -> None:
    first = system.serve()
    path = other = system.folder / "stoker.db"
    if by == "symbolic link":
        other = system.folder / "link.db"
        other.symlink_to(path)
    elif by == "hard link":
        other = system.folder / "link.db"
        other.hardlink_to(path)
    elif by == "a deleted lock":
        (system.folder / "stoker.db.lock").unlink()
    second = system.start("serve", "--port", 0, "--database", f"sqlite:///{other}")
    assert second.exit_code() == 1
    process = "" if PORTABLE else f" (process {first.pid})"
    assert f"in use by another coordinator{process}; stop that one" in second.output
    assert submit(first).status_code == 202


def test_a_file_that_is_deleted_under_a_coordinator_is_noticed_within_seconds(system: System) -> None:
    server = system.serve()
    system.worker(server)
    eventually(lambda: ready(server).status_code == 200)
    kept = system.folder / "kept.db"
    path = (system.folder / "stoker.db").rename(kept).with_name("stoker.db")
    eventually(lambda: "was deleted or replaced" in reasons(server), 5)
    answer = submit(server)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert "stoker.db was deleted or replaced" in answer.json()["detail"]
    (event,) = server.events("database_file_lost")
    assert event["level"] == "error"
    kept.rename(path)
    eventually(lambda: ready(server).status_code == 200, 5)
    assert server.ended(submit(server).json()["id"])["status"] == "completed"


def test_a_log_that_vanished_after_a_kill_is_not_passed_over(system: System) -> None:
    server = system.serve()
    job = server.submit()
    server.kill()
    wal = system.folder / "stoker.db-wal"
    kept = wal.rename(system.folder / "kept")
    refused = system.start("serve", "--port", 0, "--database", system.database)
    assert refused.exit_code() == 1
    assert f"{wal} is missing" in refused.output
    assert f"remove {system.folder / 'stoker.db-open'}" in refused.output
    kept.rename(wal)
    assert system.serve().status(job["id"]) == "queued"


def test_a_read_only_postgresql_is_not_ready_until_it_can_be_written_again(tmp_path: Path) -> None:
    url = databases.url(tmp_path)
    name = url.rpartition("/")[2]
    with System(tmp_path / "system", url) as system:
        server = system.serve()
        system.worker(server)
        eventually(lambda: ready(server).status_code == 200)
        shared_postgres().psql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        try:
            shared_postgres().psql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()",
                name,
            )
            eventually(lambda: "jobs cannot be stored" in reasons(server), 10)
            eventually(lambda: "read-only" in reasons(server), 20)
        finally:
            shared_postgres().psql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        eventually(lambda: ready(server).status_code == 200, 10)
        assert server.ended(submit(server).json()["id"])["status"] == "completed"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(argv, check=False).returncode:
        pytest.skip("a file system of its own takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Leave no room at all beside this file."""
    with path.open("wb", buffering=0) as file:
        for size in (MEGABYTE, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size) == size:
                    pass


def test_a_full_disk_is_not_ready_until_there_is_room_again(small_disk: Path) -> None:
    with System(small_disk / "system") as system:
        server = system.serve()
        system.worker(server)
        eventually(lambda: ready(server).status_code == 200)
        filler = small_disk / "filler"
        fill(filler)
        eventually(lambda: submit(server).status_code == 503)
        eventually(lambda: "disk is full" in reasons(server), 10)
        assert submit(server).status_code == 503
        filler.unlink()
        eventually(lambda: ready(server).status_code == 200, 10)
        assert submit(server).status_code == 202


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_coordinator_that_a_later_stoker_overtook_accepts_and_claims_nothing(
    kind: str, tmp_path: Path
) -> None:
    with System(tmp_path, databases.url(tmp_path) if kind == "postgres" else None) as system:
        server = system.serve()
        system.worker(server)
        running = server.post("/jobs", {"type": "sleep", "payload": {"seconds": 8}})["id"]
        server.until(running, "running")
        waiting = server.post("/jobs", {"type": "echo", "delay_sec": 5})["id"]
        if kind == "postgres":
            name = databases.url(tmp_path).rsplit("/", 1)[-1]
            shared_postgres().psql("INSERT INTO stoker.migrations VALUES (9999, 'later', 1)", name)
        else:
            db = apsw.Connection(str(tmp_path / "stoker.db"))
            db.execute("PRAGMA user_version = 9999")
            db.close()
        eventually(lambda: "schema 9999" in reasons(server), within=5)
        refused = submit(server)
        assert (refused.status_code, "upgrade" in refused.json()["detail"]) == (503, True)
        put = server.http.put("/schedules/s", json={"every_sec": 1, "job": {"type": "echo"}})
        assert put.status_code == 503
        assert server.ended(running)["status"] == "completed"  # what runs is still reported
        assert server.until(waiting, "queued")["status"] == "queued"
        assert server.get(f"/jobs/{waiting}")["attempt"] == 0
