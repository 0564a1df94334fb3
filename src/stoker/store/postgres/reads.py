"""Reading the shared store: every read is one statement, or one transaction, and so one snapshot."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from stoker.domain.explain import POSITION_CAP, JobsAhead
from stoker.domain.job import Job
from stoker.domain.retry import Claim, claim_of
from stoker.domain.series import GaugeRow, TallyRow
from stoker.domain.short_ids import RECENT_JOBS, ShortId
from stoker.store.bulk import Bulk, bulk_of
from stoker.store.postgres.database import Database, Link
from stoker.store.postgres.filters import by_lane, filter_sql, tables
from stoker.store.postgres.lists import WALKING, PostgresLists
from stoker.store.postgres.memory import PostgresMemory
from stoker.store.postgres.rows import LISTED_Q, SAMPLES, SUMMARY_Q, Q, is_id, job_of, summary_of
from stoker.store.postgres.schedules import PostgresScheduleReads
from stoker.store.reads import (
    SPARKS,
    TOTAL_CAP,
    Attempt,
    Count,
    DeadLetterGroup,
    DeadLetterGroups,
    FailureSample,
    JobFilter,
    JobQuery,
    JobState,
    JobSummary,
    Page,
    fitting,
    has_earlier,
    id_range,
    newest_ids,
    sparkline,
    with_current,
)
from stoker.store.series import gauge_of, tally_of
from stoker.store.sessions import Session, session_of

SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
ROWS_A_TURN: Final = 200
"""Jobs of a page that are read at once: a thousand take 15 ms to convert, and the event loop has other things to do."""


class PostgresReader:
    """The reads of the store. `memory` knows the lanes."""

    def __init__(self, database: Database, memory: PostgresMemory) -> None:
        self._database = database
        self._memory = memory
        self.schedules = PostgresScheduleReads(database)

    async def _jobs(self, sql: str, *values: Any) -> list[Job]:
        return await self._database.read(lambda link: self._jobs_over(link, sql, *values))

    async def _jobs_over(self, link: Link, sql: str, *values: Any) -> list[Job]:
        rows = await link.fetch(sql, *values)
        lanes = await self._memory.lanes_of(link, rows)
        return [job_of(row, lanes) for row in rows]

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        wanted = [id for id in ids if is_id(id)]
        jobs = {job.id: job for job in await self._jobs(Q["get_jobs"], wanted)} if wanted else {}
        return [jobs.get(id) for id in ids]

    async def summaries(self, ids: Sequence[str]) -> list[JobSummary]:
        async def read(link: Link) -> list[JobSummary]:
            rows = await link.fetch(Q["job_summaries"], [id for id in ids if is_id(id)])
            lanes = await self._memory.lanes_of(link, rows)
            return [summary_of(row, lanes) for row in rows]

        return await self._database.read(read)

    async def states(self, ids: Sequence[str]) -> list[JobState]:
        rows = await self._database.fetch(Q["job_states"], [id for id in ids if is_id(id)])
        return [JobState(*row) for row in rows]

    async def ids_like(self, part: ShortId, limit: int) -> list[str]:
        between = id_range(part.beginning)
        begins = await self._database.fetch(Q["ids_beginning"], *between, limit) if between else []
        ends = await self._database.fetch(Q["ids_ending"], RECENT_JOBS, part.ending, limit)
        return newest_ids((id for (id,) in [*begins, *ends]), limit)

    async def line(self, job: Job) -> JobsAhead:
        ((ahead, first),) = await self._database.fetch(
            Q["line"], job.lane_id, job.rank, job.seq, POSITION_CAP
        )
        return JobsAhead(ahead, first if ahead else None)

    async def claims(self, keys: Sequence[tuple[str, int]]) -> list[Claim | None]:
        wanted = [id for id, _ in keys if is_id(id)]
        found = await self._jobs(SUMMARY_Q["get_jobs"], wanted) if wanted else []
        running = {(job.id, job.claim_id): job for job in found if job.status == "running"}
        return [claim_of(running[key]) if key in running else None for key in keys]

    async def held(self, session_id: str) -> list[Claim]:
        return [claim_of(job) for job in await self._jobs(SUMMARY_Q["claims_of_session"], session_id)]

    async def cancels(self, session_ids: Sequence[str]) -> list[Claim]:
        return [claim_of(job) for job in await self._jobs(SUMMARY_Q["cancels"], list(session_ids))]

    async def attempts(self, id: str) -> list[Attempt]:
        async def read(link: Link) -> list[Attempt]:
            jobs = await self._jobs_over(link, Q["get_jobs"], [id])
            if not jobs:
                return []
            rows = await link.fetch(Q["attempts_of"], jobs[0].seq)
            return with_current([Attempt(*row) for row in rows], jobs[0])

        return await self._database.read(read) if is_id(id) else []

    async def attempts_of(self, jobs: Sequence[Job]) -> list[list[Attempt]]:
        recorded: defaultdict[int, list[Attempt]] = defaultdict(list)
        seqs = [job.seq for job in jobs if has_earlier(job)]
        if seqs:
            for seq, *fields in await self._database.fetch(Q["attempts_of_jobs"], seqs):
                recorded[seq].append(Attempt(*fields))
        return [with_current(recorded.get(job.seq, []), job) for job in jobs]

    async def counts(self) -> list[Count]:
        return [Count(*row) for row in await self._database.fetch(Q["all_counts"])]

    async def oldest_due(self) -> dict[str, int]:
        return dict(await self._database.fetch(Q["oldest_due"]))

    async def noted_types(self) -> dict[str, bytes]:
        return dict(await self._database.fetch(Q["noted_types"]))

    async def paused(self) -> dict[str, int]:
        return dict(await self._database.fetch(Q["paused_queues"]))

    async def sessions(self) -> list[Session]:
        return [session_of(row) for row in await self._database.fetch(Q["all_sessions"])]

    async def next_limit_at(self) -> int | None:
        at: int | None = await self._database.fetchval(Q["next_limit"])
        return at

    async def key_holder(self, key: str) -> str | None:
        rows = await self._database.fetch(Q["key_holders"], [key])
        return rows[0][1] if rows else None

    async def keys_taken(self, filter: JobFilter) -> int:
        async def count(link: Link) -> int:
            await self._memory.read_lanes(link)
            wanted = replace(filter, status=None, dead_letters=False)
            where, values = filter_sql(wanted, self._memory, first=2)
            query = Q["count_keys_taken"].replace("{free}", Q["key_is_free"]).replace("{where}", where)
            return int(await link.fetchval(query, TOTAL_CAP, *values))

        return await self._database.read(count)

    async def known_key(self, client: str, key: str, now: int) -> bool:
        return bool(await self._database.fetch(Q["get_keys"], [client], [key], now))

    async def next_due_at(self) -> int | None:
        due: int | None = await self._database.fetchval(Q["next_due"])
        return due

    async def page(self, query: JobQuery) -> Page:
        return await self._database.read(lambda link: self._page(link, query), begin=WALKING)

    async def _page(self, link: Link, query: JobQuery) -> Page:
        await self._memory.read_lanes(link)
        counts = [Count(*row) for row in await link.fetch(Q["all_counts"])]
        found, total, capped = await PostgresLists(link, self._memory, counts).page(query)
        named, seqs = LISTED_Q if query.summary else Q, found.seqs
        if seqs and not query.summary:
            sizes = await link.fetch(Q["list_sizes"], seqs)
            seqs = seqs[: fitting(row["bytes"] for row in sizes)]
        jobs: list[Job] = []
        for first in range(0, len(seqs), ROWS_A_TURN):
            part = seqs[first : first + ROWS_A_TURN]
            jobs += await self._jobs_over(link, named["list_jobs"], part)
        return Page(jobs, total, capped, found.next_before_seq if len(seqs) == len(found.seqs) else seqs[-1])

    async def dead_letter_groups(self, limit: int, now: int) -> DeadLetterGroups:
        return await self._database.read(lambda link: self._groups(link, limit, now), begin=SNAPSHOT)

    async def _groups(self, link: Link, limit: int, now: int) -> DeadLetterGroups:
        rows = await link.fetch(Q["dead_letter_groups"], limit)
        if not rows:
            return DeadLetterGroups([], 0, 0, now)
        names, firsts, lasts = ([row[place] for row in rows] for place in (0, 2, 3))
        spans = [max(now - first, 0) + 1 for first in firsts]
        sparks: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, *part in await link.fetch(Q["group_sparks"], names, firsts, spans, SPARKS):
            sparks[name].append((part[0], part[1]))
        samples = {job.fingerprint: job for job in await self._jobs_over(link, SAMPLES, names, lasts)}
        groups = [
            DeadLetterGroup(name, count, first, last, sparkline(sparks[name]), samples[name])
            for name, count, first, last, *_ in rows
        ]
        return DeadLetterGroups(groups, rows[0][4], rows[0][5], now)

    async def failure_samples(self, limit: int) -> list[FailureSample]:
        return [FailureSample(*row) for row in await self._database.fetch(Q["failure_samples"], limit)]

    async def series(
        self, bucket_sec: int, start: int, end: int, queue: str | None, type: str | None, *, folded: bool
    ) -> tuple[list[TallyRow], list[GaugeRow]]:
        tallies = await self._database.fetch(
            Q["folded_tallies" if folded else "tallies"], bucket_sec, start, end, queue, type
        )
        gauges = await self._database.fetch(Q["gauges"], bucket_sec, start, end)
        return [tally_of(row) for row in tallies], [gauge_of(row) for row in gauges]

    async def bulk(self, id: str) -> Bulk | None:
        rows = await self._database.fetch(Q["get_bulk"], id)
        return bulk_of(rows[0]) if rows else None

    async def bulks(self, limit: int, *, running: bool) -> list[Bulk]:
        rows = await self._database.fetch(Q["running_bulks" if running else "latest_bulks"], limit)
        return [bulk_of(row) for row in rows]

    async def bulk_candidates(self, bulk: Bulk, limit: int) -> list[tuple[int, str]]:
        return await self._database.read(lambda link: self._candidates(link, bulk, limit))

    async def _candidates(self, link: Link, bulk: Bulk, limit: int) -> list[tuple[int, str]]:
        wanted = bulk.wanted
        if by_lane(wanted):
            await self._memory.read_lanes(link)
        where, values = filter_sql(wanted, self._memory, first=3)
        sql = Q["next_" + tables(wanted)].format(where=where)
        return [(row[0], row[1]) for row in await link.fetch(sql, bulk.cursor, limit, *values)]
