"""Rows of `jobs` and `history` as jobs, and jobs as rows.

A row names its lane; what all jobs of a lane share is looked up in memory. Both tables are read in one layout (`SELECTED`),
in which an unfinished job has nothing where only a final one can have something.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import astuple

from stoker.domain.byte_bounds import INLINE_BYTES
from stoker.domain.job import COLUMNS, Job
from stoker.domain.placement import Lane
from stoker.store import queries
from stoker.store.reads import JobSummary

_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

OF_LANE: Final = frozenset({"type", "queue", "labels", "thread_demand", "group_key", "concurrency_key"})
ONLY_FINAL: Final = frozenset(
    {"completed_at", "discarded_at", "cpu_us", "peak_memory_kb", "result", "fingerprint"}
)
_TYPES: Final = {"result": "bytea", "fingerprint": "text"}

SELECTED: Final = tuple(column for column in COLUMNS if column not in OF_LANE)
HOT_COLUMNS: Final = tuple(column for column in SELECTED if column not in ONLY_FINAL)
FINAL_COLUMNS: Final = SELECTED

_hot_values = itemgetter(*(COLUMNS.index(column) for column in HOT_COLUMNS))
_final_values = itemgetter(*(COLUMNS.index(column) for column in FINAL_COLUMNS))


_SUMMARY: Final = {
    "error": "NULL::bytea AS error",
    "payload": "'null'::bytea AS payload",
    "result": "NULL::bytea AS result",
}


def _select(*, final: bool, without: Collection[str] = ()) -> str:
    return ", ".join(
        _SUMMARY[column] if column in without else _selected(column, final) for column in SELECTED
    )


def _selected(column: str, final: bool) -> str:
    if column == "id":
        return "id::text AS id"
    if final or column not in ONLY_FINAL:
        return column
    return f"NULL::{_TYPES.get(column, 'bigint')} AS {column}"


HOT: Final = _select(final=False)
FINAL: Final = _select(final=True)


def _light(*, final: bool) -> str:
    small = f"CASE WHEN octet_length(payload) <= {INLINE_BYTES} THEN payload ELSE ''::bytea END AS payload"
    return ", ".join(small if column == "payload" else _selected(column, final) for column in SELECTED)


_STATEMENTS: Final = queries.load("stoker.store.postgres")


REPORT_TYPES: Final = ("bigint", "int", "bigint", "bigint", "bigint", "bigint", "bytea")
"""The types of a completion: see `complete_jobs`."""


def _many_reports(first: int, counted: str) -> dict[str, str]:
    """Return what fills `complete_jobs` for reports in columns, of which this is the first."""
    arrays = ", ".join(f"${n}::{type}[]" for n, type in enumerate(REPORT_TYPES, first))
    return {
        "{reports}": f"unnest({arrays})",
        "{named}": "",
        "{ordered}": "",
        "{locked}": "",
        "{counted}": counted,
    }


MANY_REPORTS: Final = _many_reports(1, "")


def _filled(hot: str, final: str) -> dict[str, str]:
    named = {"{hot}": hot, "{final}": final, "{hot_columns}": ", ".join(HOT_COLUMNS), **MANY_REPORTS}
    return {name: _with(sql, named) for name, sql in _STATEMENTS.items()}


def _with(sql: str, lists: Mapping[str, str]) -> str:
    for name, text in lists.items():
        sql = sql.replace(name, text)
    return sql


Q: Final = _filled(HOT, FINAL)


COMPLETE_MANY: Final = _with(_STATEMENTS["complete_jobs"], _many_reports(2, _STATEMENTS["count_completed"]))
"""`complete_jobs`, which also counts: the shard, then the columns of the reports."""
LOCKED: Final = (
    "locked AS MATERIALIZED (SELECT seq FROM stoker.jobs WHERE jobs.seq IN ({seqs}) ORDER BY seq FOR UPDATE)"
)


@cache
def complete_few(count: int) -> str:
    """Return `complete_jobs` for this many reports, which also counts: the shard, then the values of each report. The jobs
    are named a second time, so that a plan made while the table is empty looks them up as well. Several are locked first, in
    the order of their numbers: by that second name the server finds them in the order in which they lie on the disk."""
    width = len(REPORT_TYPES)
    places = [range(first, first + width) for first in range(2, 2 + count * width, width)]
    typed = [f"${n}::{type}" for n, type in zip(places[0], REPORT_TYPES, strict=True)]
    rows = [typed, *([f"${n}" for n in row] for row in places[1:])]
    seqs = ", ".join(f"${row[0]}" for row in places)
    filled = {
        "{reports}": "(VALUES " + ", ".join("(" + ", ".join(row) + ")" for row in rows) + ")",
        "{named}": f"jobs.seq IN ({seqs}) AND ",
        "{ordered}": f"{LOCKED.format(seqs=seqs)}, " if count > 1 else "",
        "{locked}": "(SELECT count(*) FROM locked) AS locked, " if count > 1 else "",
        "{counted}": _STATEMENTS["count_completed"],
    }
    return _with(_STATEMENTS["complete_jobs"], filled)


_LARGE: Final = ("payload", "result")
SUMMARY_Q: Final = _filled(_select(final=False, without=_SUMMARY), _select(final=True, without=_SUMMARY))
"""The same, reading jobs without what can be large."""
LISTED_Q: Final = _filled(_select(final=False, without=_LARGE), _select(final=True, without=_LARGE))
"""The same for lists, which tell how jobs failed."""
LIGHT_Q: Final = _filled(_light(final=False), _light(final=True))
"""The same, leaving large payloads in the store (`stoker.domain.byte_bounds.UNREAD`)."""
SAMPLES: Final = _STATEMENTS["group_samples"].replace("{final}", _select(final=True, without=_LARGE))


def hot_row(job: Job) -> tuple[Any, ...]:
    values: tuple[Any, ...] = _hot_values(astuple(job))
    return values


def final_row(job: Job) -> tuple[Any, ...]:
    values: tuple[Any, ...] = _final_values(astuple(job))
    return values


def job_of(row: Any, lanes: Mapping[int, Lane]) -> Job:
    (
        seq,
        id,
        name,
        lane_id,
        priority,
        rank,
        status,
        claim_id,
        attempt,
        max_attempts,
        crashes,
        threads_granted,
        on_oversize,
        timeout_sec,
        memory_mb,
        pending_deps,
        *rest,
    ) = row
    lane = lanes[lane_id]
    return Job(
        seq,
        id,
        lane.type,
        name,
        lane.queue,
        lane_id,
        priority,
        rank,
        status,
        claim_id,
        attempt,
        max_attempts,
        crashes,
        lane.thread_demand,
        threads_granted,
        on_oversize,
        timeout_sec,
        memory_mb,
        lane.labels,
        lane.group_key,
        lane.concurrency_key,
        pending_deps,
        *rest,
    )


def summary_of(row: Any, lanes: Mapping[int, Lane]) -> JobSummary:
    id, name, priority, lane_id, *rest = row
    lane = lanes[lane_id]
    return JobSummary(id, lane.type, name, lane.queue, priority, *rest)


def is_id(text: str) -> bool:
    """Return whether this can be the id of a job at all; the server refuses what is not a UUID."""
    return _ID.fullmatch(text) is not None
