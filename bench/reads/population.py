"""What a large database is filled with, as SQL that both stores understand.

Of `jobs` finished jobs, numbered from 1, eight in a hundred failed and two were cancelled; as many queued jobs follow, nine
in ten of them in one lane, and a few that are scheduled or running. So the finished jobs lie below the whole backlog, and
some of what can be asked for (a type, a worker, a name) has a handful of jobs at the far end: the hard cases of a list.
"""

from typing import Final

import msgspec

TYPES: Final = 20
QUEUES: Final = 5
LANES: Final = TYPES * QUEUES
RARE: Final = "rare"
RARE_LANE: Final = LANES + 1
RARE_NUMBERS: Final = (17, 18, 19)
"""Finished jobs of the rare type, and as far into the backlog, queued ones."""
WORKERS: Final = 50
RARE_WORKER: Final = "worker-rare"
GROUPS: Final = 200
SCHEDULED: Final = 10_000
RUNNING: Final = 100
SPAN_US: Final = 2 * 24 * 3600 * 1_000_000
"""All jobs were created within two days, so that none is past its retention."""


Columns = dict[str, str]
"""An expression for each column, in which `n` is the number of the job and `{created}` when it was created."""


class Dialect(msgspec.Struct, frozen=True):
    """What the two databases call differently."""

    name: str
    id: str
    """A UUIDv7 from `{ms}` and `{n}`."""
    bytes: str
    """`{text}` as bytes."""
    numbers: str
    """A table with `n` from `{first}` to `{last}`."""
    of_lane: tuple[str, ...] = ()
    """What the table of jobs repeats of their lanes."""


SQLITE: Final = Dialect(
    name="sqlite",
    id="printf('%08x-%04x-7000-8000-%012x', ({ms}) >> 16, ({ms}) & 65535, {n})",
    bytes="CAST({text} AS BLOB)",
    numbers="(WITH RECURSIVE c (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c WHERE n < {last}) SELECT n FROM c)",
    of_lane=("queue", "type", "thread_demand"),
)
POSTGRES: Final = Dialect(
    name="postgres",
    id="(lpad(to_hex(({ms}) >> 16), 8, '0') || '-' || lpad(to_hex(({ms}) & 65535), 4, '0') "
    "|| '-7000-8000-' || lpad(to_hex({n}), 12, '0'))::uuid",
    bytes="convert_to({text}, 'UTF8')",
    numbers="generate_series({first}::bigint, {last}::bigint) AS numbers (n)",
)


def lanes() -> list[tuple[int, str, str]]:
    """(id, queue, type) of every lane; none has labels or keys."""
    common = [
        (1 + queue * TYPES + type, f"queue-{queue}", f"type-{type}")
        for queue in range(QUEUES)
        for type in range(TYPES)
    ]
    return [*common, (RARE_LANE, RARE, RARE)]


def _lane(jobs: int) -> str:
    rare = ", ".join(map(str, RARE_NUMBERS))
    return f"CASE WHEN n % {jobs} IN ({rare}) THEN {RARE_LANE} WHEN n % 10 <> 3 THEN 1 ELSE 1 + (n / 10) % {LANES} END"


def finished(jobs: int, now: int, dialect: Dialect) -> Columns:
    """The columns of finished job `n`, each as an expression. What is the same in all is left out where it is null."""
    status = "CASE WHEN n % 100 < 8 THEN 'failed' WHEN n % 100 < 10 THEN 'cancelled' ELSE 'completed' END"
    failed = "n % 100 < 8"
    return {
        **_common(jobs, now, dialect),
        "status": status,
        "claim_id": "1",
        "attempt": "1",
        "worker_id": f"CASE WHEN n = 23 THEN '{RARE_WORKER}' ELSE 'worker-' || (n % {WORKERS}) END",
        "threads_granted": "1",
        "claimed_at": "{created} + 1000",
        "started_at": "{created} + 2000",
        "completed_at": "{created} + 3000",
        "discarded_at": f"CASE WHEN {failed} AND (n / 100) % 10 = 0 THEN {{created}} + 4000 END",
        "error": f"CASE WHEN {failed} THEN {dialect.bytes.format(text=_ERROR)} END",
        "result": f"CASE WHEN n % 100 >= 10 THEN {dialect.bytes.format(text=_PAYLOAD)} END",
        "fingerprint": f"CASE WHEN {failed} THEN 'error-' || ((n / 100) % {GROUPS}) END",
    }


def queued(jobs: int, now: int, dialect: Dialect) -> Columns:
    return {**_common(jobs, now, dialect), "status": "'queued'", "claim_id": "0", "attempt": "0"}


def scheduled(jobs: int, now: int, dialect: Dialect) -> Columns:
    return {
        **queued(jobs, now, dialect),
        "status": "'scheduled'",
        "run_at": f"{now} + n % 100000 * 1000000 + 86400000000",
    }


def running(jobs: int, now: int, dialect: Dialect) -> Columns:
    return {
        **queued(jobs, now, dialect),
        "status": "'running'",
        "claim_id": "1",
        "attempt": "1",
        "worker_id": "'worker-' || (n % 4)",
        "threads_granted": "1",
        "claimed_at": "{created} + 1000",
    }


_PAYLOAD: Final = "'{{\"n\":' || n || '}}'"
_ERROR: Final = '\'{{"type":"ValueError","message":"number \' || n || \'"}}\''


def _common(jobs: int, now: int, dialect: Dialect) -> Columns:
    created = f"{now - SPAN_US} + n * {SPAN_US // (2 * jobs + SCHEDULED + RUNNING + 1)}"
    columns = {
        "seq": "n",
        "id": dialect.id.format(ms="({created}) / 1000", n="n"),
        "lane_id": _lane(jobs),
        "priority": "CASE WHEN n % 10 <> 3 THEN 5 ELSE (n / 1000) % 10 END",
        "rank": "CASE WHEN n % 10 <> 3 THEN 5 ELSE (n / 1000) % 10 END",
        "max_attempts": "4",
        "crashes": "0",
        "on_oversize": "'degrade'",
        "pending_deps": "0",
        "name": "CASE WHEN n % 5 = 0 THEN 'name-' || n WHEN n % 1000 = 1 THEN 'common' END",
        "created_at": "{created}",
        "run_at": "{created}",
        "payload": dialect.bytes.format(text=_PAYLOAD),
    }
    lane = {name: f"(SELECT {name} FROM lanes WHERE id = {columns['lane_id']})" for name in dialect.of_lane}  # noqa: S608
    return {"created": created, **columns, **lane}


def insert(table: str, columns: Columns, first: int, last: int, dialect: Dialect) -> str:
    """The statement that fills a table with the jobs from `first` to `last`."""
    created = f"({columns['created']})"
    filled = {
        name: value.replace("{created}", created) for name, value in columns.items() if name != "created"
    }
    filled = {name: value.replace("{{", "{").replace("}}", "}") for name, value in filled.items()}
    source = dialect.numbers.format(first=first, last=last)
    return f"INSERT INTO {table} ({', '.join(filled)}) SELECT {', '.join(filled.values())} FROM {source}"  # noqa: S608
