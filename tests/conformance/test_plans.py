"""No statement of either store walks a table of jobs from end to end.

The plan of each named statement is looked at, also of a new one, and what each list reads is counted. A statement that must
read everything is added to `WALKS`, with the reason.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import apsw
import pytest

from bench.reads.asks import Known, asks
from bench.reads.build import write_postgres, write_sqlite
from stoker.api.schemas.query import DeadLettersQuery, JobsQuery, filter_of, job_query, parse_query
from stoker.api.schemas.search import wanted_jobs
from stoker.clock import SystemClock
from stoker.coordinator.text_search import with_text
from stoker.domain.errors import TooDeep
from stoker.store import queries
from stoker.store.base import Store
from stoker.store.postgres.database import Database, migrate
from stoker.store.postgres.filters import numbered
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.reads import PostgresReader
from stoker.store.postgres.rows import MANY_REPORTS, complete_few
from stoker.store.reads import Count, FailureSample, JobFilter, JobQuery, Page
from stoker.store.sqlite import database, lists
from stoker.store.sqlite.filters import filter_sql
from stoker.store.sqlite.reads import SqliteReader
from tests.support.servers import databases, shared_postgres

JOBS: Final = 60_000
"""Finished jobs, and as many queued: more than one page may look at."""
MOST_STEPS: Final = 2_500_000
"""Steps of SQLite's machine for a page of any list; to walk all of these jobs takes more."""
BIG: Final = ("jobs", "history", "attempts")

SEEKING: Final = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"

WALKS: Final = {
    "sqlite": {
        "matching": "of a bulk operation, in the background",
        "next_matching": "of a bulk operation, in the background",
        "last_completed": "once, when a coordinator starts, in a thread of its own",
        "dead_letter_groups": "the index of failed jobs alone; kept by stoker.coordinator.dead_groups where they are many",
        "count_keys_taken": "as many as its limit says, but all dead letters where none matches: of a write, never of a GET",
        "dead_letters": "as many as its limit says, but all dead letters where none matches: of a write, never of a GET",
        "walk": "as many jobs as its limit says",
        "walk_matches": "as many jobs as the limit of its walk says",
        "walked": "as many jobs as the limit of its walk says",
        "names": "as many names as its caller's limit says",
        "names_like": "only while there are few names",
        "ids_between": "as many ids as its caller's limit says",
        "ids_ending": "as many of the newest ids as its limit says, of the index alone",
    },
    "postgres": {
        "count_keys_taken": "as many as its limit says, but all dead letters where none matches: of a write, never of a GET",
        "dead_letters": "as many as its limit says, but all dead letters where none matches: of a write, never of a GET",
        "dead_letter_groups": "the index of failed jobs alone; kept by stoker.coordinator.dead_groups where they are many",
        "names": "as many names as its limit says",
    },
}

_WALK: Final = "SELECT * FROM {jobs} WHERE seq >= {a} AND seq < {b} ORDER BY seq DESC LIMIT {c}"
FILLED: Final[Mapping[str, str]] = {
    "columns": "seq, status",
    "index": "",
    "key": "true",
    "order": "DESC",
    "where": "priority = 5",
    "table": "history",
    "more": "",
}


def statements(package: str) -> dict[str, str]:
    return queries.load(package)


@pytest.fixture(scope="module")
def full_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path = tmp_path_factory.mktemp("plans") / "stoker.db"
    write_sqlite(path, JOBS, lambda _: None)
    db = database.open_reader(path)
    yield db
    db.close()


@pytest.fixture(scope="module")
def full_postgres(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = databases.bare(tmp_path_factory.mktemp("plans"))
    asyncio.run(write_postgres(url, JOBS, lambda _: None))
    return url.rsplit("/", 1)[-1]


def sqlite_statement(name: str, sql: str) -> str | None:
    """The statement as it is run; None for what is only a part of others."""
    if not re.match(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)", sql):
        return None
    walk = _WALK.format(jobs="jobs", a="?", b="?", c="?")
    width = 1 if "IN (VALUES {rows})" in sql else len(re.findall(r"column\d", sql)) + 2
    rows = "(" + ", ".join("?" * width) + ")"
    if name in ("insert_jobs", "insert_alike", "insert_alike_named"):
        return None  # writes without looking
    filled = {
        **FILLED,
        "rows": rows,
        "walk": walk,
        "matching": "SELECT seq FROM jobs WHERE seq > 1",
        "free": statements("stoker.store.sqlite")["key_is_free"],
    }
    return sql.format(**filled)


def test_no_statement_on_sqlite_walks_the_jobs(full_sqlite: apsw.Connection) -> None:
    found = {}
    for name, sql in statements("stoker.store.sqlite").items():
        statement = sqlite_statement(name, sql)
        if statement is None or name in WALKS["sqlite"]:
            continue
        lines = [str(row[3]) for row in _explained(full_sqlite, statement)]
        walks = [line for line in lines if re.match(rf"SCAN ({'|'.join(BIG)})\b", line)]
        # One that is asked for its first entry stops there, whatever the plan calls it.
        if walks and "LIMIT 1" not in statement:
            found[name] = walks
    assert found == {}


def _explained(db: apsw.Connection, statement: str) -> list[Any]:
    places = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    values = [None] * (max(places) if places else statement.count("?"))
    return db.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()


def test_the_oldest_due_time_is_found_by_seeking_both_lane_and_rank(full_sqlite: apsw.Connection) -> None:
    sql = statements("stoker.store.sqlite")["oldest_due"]
    lines = [str(row[3]) for row in full_sqlite.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert any("(lane_id=? AND rank>?)" in line for line in lines)
    assert any("(lane_id=? AND rank=?)" in line for line in lines)
    reader = SqliteReader(full_sqlite)
    assert steps(full_sqlite, reader.oldest_due) < 100_000


def steps(db: apsw.Connection, read: Any) -> int:
    """About how many steps of its machine SQLite takes for a read."""
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += 1000
        return False

    db.set_progress_handler(count, 1000)
    try:
        read()
    finally:
        db.set_progress_handler(None)
    return taken


def test_no_list_looks_at_more_jobs_than_its_bound(full_sqlite: apsw.Connection) -> None:
    reader = SqliteReader(full_sqlite, lambda: JOBS)
    ids = [
        reader.page(JobQuery(JobFilter(status=status), limit=1)).jobs[0].id
        for status in ("queued", "completed")
    ]
    now = reader.get(ids[0]).created_at  # type: ignore[union-attr]
    slow = {}
    for ask in asks(Known(JOBS, ids, "none")):
        path, _, text = ask.path.partition("?")
        if path not in ("/jobs", "/dlq"):
            continue
        query = asked(reader, path, text, now)

        def read(query: JobQuery = query) -> None:
            try:
                reader.page(query)
            except TooDeep:
                pass

        if (taken := steps(full_sqlite, read)) > MOST_STEPS:
            slow[ask.path] = taken
    assert slow == {}


def asked(reader: SqliteReader, path: str, text: str, now: int) -> JobQuery:
    """What the store is asked for a GET of a list."""
    given: DeadLettersQuery
    if path == "/dlq":
        given = parse_query(DeadLettersQuery, text.encode())
        wanted = filter_of(given, None, now, dead_letters=True)
    else:
        given = parse_query(JobsQuery, text.encode())
        wanted = wanted_jobs(given, given.status, now)
    return job_query(given, searched(reader, wanted))


def searched(reader: SqliteReader, wanted: JobFilter) -> JobFilter:
    """The filter with the types and failures that its text is a part of."""

    class Read:
        async def counts(self) -> list[Count]:
            return reader.counts()

        async def failure_samples(self, limit: int) -> list[FailureSample]:
            return reader.failure_samples(limit)

    return asyncio.run(with_text(cast(Store, Read()), wanted))


@pytest.mark.parametrize("text", ["type-7", "rare", "type", "ValueError", "no-such-text"])
def test_where_names_are_few_a_text_is_found_without_a_walk(
    full_sqlite: apsw.Connection, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(lists, "NAMES", 10 * JOBS)
    reader = SqliteReader(full_sqlite, lambda: JOBS)
    wanted = searched(reader, JobFilter(text=text))
    assert bool(wanted.text_types or wanted.text_failures) == (text != "no-such-text")
    seen: list[Page] = []
    assert steps(full_sqlite, lambda: seen.append(reader.page(JobQuery(wanted)))) <= MOST_STEPS
    (page,) = seen
    assert bool(page.total) == (text != "no-such-text")
    where, values = filter_sql(wanted)
    matching = full_sqlite.execute(f"SELECT seq FROM jobs WHERE {where} ORDER BY seq DESC LIMIT 50", values)  # noqa: S608
    assert [job.seq for job in page.jobs] == [row[0] for row in matching][: len(page.jobs)]


def test_pages_that_end_early_lead_to_every_job_that_matches(full_sqlite: apsw.Connection) -> None:
    reader = SqliteReader(full_sqlite, lambda: JOBS)
    seen: list[int] = []
    before: int | None = None
    pages = 0
    while True:
        page = reader.page(JobQuery(JobFilter(worker="worker-rare"), limit=10, before_seq=before))
        seen += [job.seq for job in page.jobs]
        pages += 1
        assert page.total_capped or page.total == 1
        before = page.next_before_seq
        if before is None:
            break
    assert seen == [23]
    assert 2 <= pages < 20


def test_a_page_of_one_priority_costs_the_number_of_lanes(full_sqlite: apsw.Connection) -> None:
    reader = SqliteReader(full_sqlite, lambda: JOBS)
    for limit in (50, 1_000):
        query = JobQuery(JobFilter(priority=5), limit=limit)
        assert steps(full_sqlite, lambda query=query: reader.page(query)) < 300_000


@pytest.fixture(scope="module")
def postgres_pages(full_postgres: str) -> Callable[[list[JobQuery]], list[Page]]:
    """Reads pages of the full database."""

    async def read(queries: list[JobQuery]) -> list[Page]:
        store = await Database.open(shared_postgres().url_of(full_postgres))
        try:
            reader = PostgresReader(store, PostgresMemory(SystemClock()))
            return [await reader.page(query) for query in queries]
        finally:
            await store.close()

    return lambda queries: asyncio.run(read(queries))


def test_both_stores_give_the_same_pages(
    full_sqlite: apsw.Connection, postgres_pages: Callable[[list[JobQuery]], list[Page]]
) -> None:
    filters = [
        JobFilter(priority=5),
        JobFilter(priority=3, status="queued"),
        JobFilter(status="queued", queue="queue-3"),
        JobFilter(type="type-7"),
        JobFilter(name="common", status="failed"),
    ]
    queries = [
        JobQuery(filter, limit=limit, before_seq=before)
        for filter in filters
        for limit in (3, 900)
        for before in (None, JOBS + 20_000)
    ]
    # Deep in the backlog, across the end of it, and counted from the end of the list.
    queries += [JobQuery(limit=50, offset=offset) for offset in (30_000, JOBS + 10_080, 2 * JOBS - 7_000)]
    queries += [JobQuery(limit=1_000, offset=2 * JOBS + 10_100 - 10)]
    reader = SqliteReader(full_sqlite, lambda: JOBS)
    for query, page in zip(queries, postgres_pages(queries), strict=True):
        expected = reader.page(query)
        numbers = [job.seq for job in page.jobs]
        shorter = min(len(numbers), len(expected.jobs))
        assert numbers[:shorter] == [job.seq for job in expected.jobs][:shorter], query
        assert shorter or query.filter.name, query
        assert numbers == sorted(numbers, reverse=True)


def postgres_statement(name: str, sql: str) -> str | None:
    if not re.match(r"\s*(SELECT|WITH|UPDATE|DELETE)", sql) or name == "walk":
        return None
    walk = _WALK.format(jobs="stoker.history", a="?", b="?", c="?")
    if "?" in sql or "{walk}" in sql or "{parts}" in sql:
        sql = (
            sql.replace("{walk}", walk)
            .replace("{each}", walk.replace("*", "seq"))
            .replace("{parts}", f"({walk})")
        )
        sql = numbered(sql.replace("{where}", FILLED["where"]).replace("{order}", "DESC"))
    where = FILLED["where"] if name != "dead_letters" else f"AND {FILLED['where']}"
    free = statements("stoker.store.postgres")["key_is_free"]
    filled = {
        "hot": "seq",
        "final": "seq",
        "where": where,
        "table": "history",
        "more": "",
        "free": free,
        "hot_columns": "seq",
        "inserted": "inserted AS (INSERT INTO stoker.jobs (seq) VALUES ($9), ($10) RETURNING seq)",
        **{key.strip("{}"): text for key, text in MANY_REPORTS.items()},
    }
    for key, value in filled.items():
        sql = sql.replace("{" + key + "}", value)
    return sql


def test_no_statement_on_postgresql_walks_the_jobs(full_postgres: str) -> None:
    found = {}
    for name, sql in statements("stoker.store.postgres").items():
        statement = postgres_statement(name, sql)
        if statement is None or name in WALKS["postgres"]:
            continue
        explain = f"{SEEKING}; EXPLAIN (GENERIC_PLAN, FORMAT JSON) {statement}"
        answer = shared_postgres().psql(explain, full_postgres)
        plan = json.loads(answer[answer.index("[") :])[0]["Plan"]
        if walks := list(_walking(plan, limited=False)):
            found[name] = walks
    assert found == {}


@pytest.mark.parametrize("count", [1, 2, 16])
def test_a_few_completions_are_looked_up_by_a_plan_that_was_made_for_an_empty_table(
    place: Path, count: int
) -> None:
    """Such a plan may be used for as long as a connection lasts, and the table is empty again and again."""
    database = databases.bare(place).rsplit("/", 1)[-1]
    asyncio.run(migrated(databases.url(place)))
    shared_postgres().psql("VACUUM ANALYZE stoker.jobs", database)
    explain = f"{SEEKING}; EXPLAIN (GENERIC_PLAN, FORMAT JSON) {complete_few(count)}"
    answer = shared_postgres().psql(explain, database)
    plan = json.loads(answer[answer.index("[") :])[0]["Plan"]
    assert list(_walking(plan, limited=False)) == []


async def migrated(url: str) -> None:
    database = await Database.open(url)
    try:
        await migrate(database)
    finally:
        await database.close()


def _walking(node: dict[str, Any], *, limited: bool) -> Iterator[str]:
    """The nodes of a plan that read all of a table of jobs."""
    kind, table = node["Node Type"], node.get("Relation Name")
    without_key = kind == "Seq Scan" or (kind.startswith("Index") and "Index Cond" not in node)
    if table in BIG and without_key and not limited:
        yield f"{kind} on {table}"
    stops = kind == "Limit" or (limited and kind in ("LockRows", "Subquery Scan"))
    for part in node.get("Plans", ()):
        yield from _walking(part, limited=stops)


def test_statements_that_may_walk_exist() -> None:
    for package, walks in WALKS.items():
        assert set(walks) <= set(statements(f"stoker.store.{package}"))


def test_every_get_of_the_api_is_asked_for() -> None:
    assert len(asks(Known(1_000, ["00000000-0000-7000-8000-000000000000"] * 2, "none"))) > 100
