"""A system leaves SQLite for PostgreSQL, and comes back: by the commands that people type, with everything it had.

`STOKER_TEST_MOVE_JOBS` sets how many jobs move (3,000; the acceptance run uses 100,000).
"""

import asyncio
import gzip
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.clock import SystemClock
from stoker.domain.job import Job
from stoker.store.base import Store
from stoker.store.postgres.store import PostgresStore
from stoker.store.reads import Attempt
from stoker.store.sqlite.store import SqliteStore
from stoker.store.submissions import Submission
from tests.conformance.steps import a_job, a_key, a_worker, claim, report
from tests.conformance.stores import books_balance, every_job
from tests.e2e.system import STOKER, System, eventually
from tests.support.jobs import a_submission
from tests.support.servers import shared_postgres

JOBS = int(os.environ.get("STOKER_TEST_MOVE_JOBS", "3000"))
HOUR = 3600 * 1_000_000


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"move_{request.node.name[:40]}_{os.getpid()}"
    yield shared_postgres().create_database(name)
    shared_postgres().psql(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def sqlite_url(system: System) -> str:
    return system.database


# ── making and looking ─────────────────────────────────────────────────────────────────────────────────────────────


async def fill(store: Store, jobs: int) -> None:
    """So many jobs: a tenth waits, a tenth is scheduled, the others have run, well or badly, or are running."""
    for first in range(0, jobs, 5_000):
        numbers = range(first, min(jobs, first + 5_000))
        await store.insert([_submission(store, n) for n in numbers])
    workers = (a_worker("w1", threads=1000, types=("echo", "note")),)
    for _ in range(jobs * 8 // 10 // 1000 + 1):
        await store.finish(
            [report(job, _KINDS[n % len(_KINDS)]) for n, job in enumerate(await claim(store, *workers))]
        )
    await claim(store, a_worker("w2", threads=max(1, jobs // 100), types=("echo", "note")))
    page = await every_job(store) if jobs <= 10_000 else []
    await store.cancel([job.id for job in page if job.status == "scheduled"][::3])


_KINDS: list[Any] = [
    "completed",
    "completed",
    "error",
    "completed",
    "invalid",
    "handed_back",
    "crash",
    "completed",
]


def _submission(store: Store, n: int) -> Submission:
    key = a_key(store, f"key-{n}") if n % 50 == 0 else None
    job = a_job(store, type="note" if n % 2 else "echo", priority=n % 3, delay_us=HOUR if n % 10 == 0 else 0)
    return a_submission(replace(job, payload=b'{"n": %d}' % n, queue="crew" if n % 4 else "default"), key)


History = dict[str, tuple[Job, list[Attempt]]]


async def look(store: Store) -> History:
    await books_balance(store)
    jobs = reversed(await every_job(store))
    return {job.id: (replace(job, seq=0, lane_id=0), await store.attempts(job.id)) for job in jobs}


async def in_sqlite(path: Path, jobs: int = 0) -> History:
    """What is in the file, after so many jobs were put there."""
    store = await SqliteStore.open(path, SystemClock())
    try:
        if jobs:
            await fill(store, jobs)
        return await look(store)
    finally:
        await store.close()


async def in_postgres(url: str) -> History:
    store = await PostgresStore.open(url, SystemClock())
    try:
        return await look(store)
    finally:
        await store.close()


def said(done: subprocess.CompletedProcess[Any], code: int = 0) -> str:
    text = done.stderr if isinstance(done.stderr, str) else done.stderr.decode()
    assert done.returncode == code, text
    return text


def moved(before: History, after: History) -> None:
    """The same jobs with the same histories, but for what ran: that was handed back."""
    assert list(after) == list(before)
    for id, (job, attempts) in before.items():
        if job.status != "running":
            assert after[id] == (job, attempts)
            continue
        arrived, history = after[id]
        assert (arrived.status, arrived.attempt, arrived.claim_id) == (
            "queued",
            job.attempt - 1,
            job.claim_id,
        )
        assert history[:-1] == attempts[:-1]
        assert (history[-1].kind, history[-1].charged, history[-1].claim_id) == (
            "handed_back",
            False,
            job.claim_id,
        )


# ── there and back ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.timeout(900)
def test_a_system_moves_to_postgres_goes_on_there_and_comes_back(system: System, postgres_url: str) -> None:
    before = asyncio.run(in_sqlite(system.folder / "stoker.db", JOBS))
    statuses = Counter(job.status for job, _ in before.values())
    assert {"queued", "scheduled", "running", "completed", "failed"} <= set(statuses)

    pipe(system, system.database, postgres_url)
    there = asyncio.run(in_postgres(postgres_url))
    moved(before, there)

    server = system.serve("--database", postgres_url)
    system.worker(server, threads=2)

    def idle() -> bool:
        stats = server.get("/stats")  # in one look: a job that is handed back is queued again
        return not stats["queue_depth"] and not stats["jobs_by_status"].get("running", 0)

    eventually(idle, 600, lambda: f"all queued jobs to run: {server.get('/stats')}")
    server.terminate()
    assert server.exit_code(30) == 0

    ended = asyncio.run(in_postgres(postgres_url))
    assert list(ended) == list(before)
    for id, (job, _) in there.items():
        expected = {"completed"} if job.status == "queued" else {job.status, "completed"}
        assert ended[id][0].status in expected
    assert (
        sum(job.status == "completed" for job, _ in ended.values())
        >= statuses["completed"] + statuses["running"]
    )

    back = system.folder / "back.db"
    pipe(system, postgres_url, f"sqlite:///{back}")
    moved(ended, asyncio.run(in_sqlite(back)))


def pipe(system: System, source: str, target: str) -> None:
    """`stoker export | stoker import`"""
    with subprocess.Popen(
        [STOKER, "export", "--database", source],
        env=system.environ({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as export:
        done = subprocess.run(
            [STOKER, "import", "--database", target],
            env=system.environ({}),
            stdin=export.stdout,
            capture_output=True,
            check=False,
            timeout=600,
        )
        assert export.wait(60) == 0, export.stderr and export.stderr.read()
        said(done)


def test_a_file_that_was_packed_is_read_and_nobody_else_may_read_it(
    system: System, sqlite_url: str, postgres_url: str
) -> None:
    asyncio.run(in_sqlite(system.folder / "stoker.db", 200))
    assert "exported 200 jobs" in said(system.run("export", "--database", sqlite_url, "-o", "jobs.jsonl.gz"))
    packed = system.folder / "jobs.jsonl.gz"
    assert packed.stat().st_mode & 0o777 == 0o600
    with gzip.open(packed) as file:
        assert json.loads(file.readline())["record"] == "header"
    done = system.run("import", "--json", "--database", postgres_url, packed)
    assert json.loads(done.stdout)["jobs"] == 200
    again = system.run("import", "--database", postgres_url, packed)
    assert "200 jobs were there already" in said(again)


def test_an_export_from_a_system_in_use(system: System) -> None:
    server = system.serve()
    ids = {server.submit("echo", {"n": n})["id"] for n in range(20)}
    done = system.run("export", "--database", system.database)
    said(done)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["id"] for line in lines if line["record"] == "job"} == ids
    refused = system.run("import", "--database", system.database, "/dev/null")
    assert "in use" in said(refused, code=4)


def test_files_that_are_not_whole(system: System, sqlite_url: str) -> None:
    asyncio.run(in_sqlite(system.folder / "stoker.db", 1500))
    said(system.run("export", "--database", sqlite_url, "-o", "whole.jsonl"))
    data = (system.folder / "whole.jsonl").read_bytes()
    (system.folder / "cut.jsonl").write_bytes(data[: len(data) * 9 // 10])
    (system.folder / "cut.gz").write_bytes(gzip.compress(data)[:-2000])
    target = ("--database", "sqlite:///new.db")
    cut = said(system.run("import", "cut.jsonl", *target), code=1)
    assert "cut.jsonl, line " in cut
    assert "cut off in the middle" in cut
    assert "1,000 jobs are stored" in cut
    assert "run the same command again" in cut
    assert "cannot be read to its end" in said(system.run("import", "cut.gz", *target), code=1)
    assert "500 jobs" in said(system.run("import", "whole.jsonl", *target))
    assert list(asyncio.run(in_sqlite(system.folder / "new.db"))) == list(
        asyncio.run(in_sqlite(system.folder / "stoker.db"))
    )


def test_what_is_refused_and_how(system: System, sqlite_url: str) -> None:
    assert "there is no database" in said(system.run("export", "--database", "sqlite:///none.db"), code=4)
    assert not (system.folder / "none.db").exists()
    assert "cannot read" in said(system.run("import", "none.jsonl", "--database", "sqlite:///new.db"), code=2)
    gone = "postgresql://stoker:secret@127.0.0.1:1/jobs"
    for command in (("export",), ("import", "/dev/null"), ("migrate", "up"), ("migrate", "status")):
        message = said(system.run(*command, "--database", gone), code=3)
        assert "cannot connect" in message
        assert "secret" not in message
    said(system.run("import", "/dev/null", "--priority-order", "sideways"), code=2)
    asyncio.run(in_sqlite(system.folder / "stoker.db", 10))
    nowhere = system.run("export", "--database", sqlite_url, "-o", "no/such/folder/x.jsonl")
    assert "cannot write" in said(nowhere, code=1)


# ── migrate ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_migrations_are_told_and_applied_once_by_several(
    system: System, postgres_url: str, kind: str
) -> None:
    url = postgres_url if kind == "postgres" else "sqlite:///fresh/stoker.db"
    pending = system.run("migrate", "status", "--json", "--database", url)
    said(pending, code=8)
    wanted = [migration["version"] for migration in json.loads(pending.stdout)["migrations"]]
    several = [system.start("migrate", "up", "--json", "--database", url) for _ in range(3)]
    assert [program.exit_code(30) for program in several] == [0, 0, 0]
    assert sorted(v for program in several for v in json.loads(program.output)["applied"]) == wanted
    done = system.run("migrate", "--database", url)
    said(done)
    assert "applied" in done.stdout
    assert "pending" not in done.stdout
    assert "is up to date" in system.run("migrate", "up", "--database", url).stdout
