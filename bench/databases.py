"""Database files behind the coordinator's back: copies, made-up history, and the check after a run.

None of this is used while a coordinator has the file.
"""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import astuple, replace

from stoker.domain.job import COLUMNS, Job, JobSpec, new_job
from stoker.domain.placement import Lane
from stoker.ids import new_id
from stoker.store.sqlite import database
from stoker.store.sqlite.rows import Q

_INSERT: Final = Q["insert_jobs"].format(
    columns=", ".join(COLUMNS), rows="(" + ", ".join("?" * len(COLUMNS)) + ")"
)
_LANE: Final = 1


def copy(source: Path, target: Path) -> Path:
    """A copy of a folder, already on the disk: what is still to be written would slow down who syncs next."""
    shutil.copytree(source, target)
    for file in target.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
    return target


def write_finished(path: Path, number: int) -> None:
    """Fill a new database with completed jobs, far faster than by running them.

    Rows and counters are those that the same jobs would leave if they had run, written with the store's own statements; only
    the syncs are left out, since nothing depends on this file yet.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    db = database.open_writer(path)
    database.migrate(db)
    db.execute("PRAGMA synchronous = OFF").fetchall()
    model = _finished_job(time.time_ns() // 1_000)
    with db:
        lane = Lane(model.queue, model.type, None, 1, None, None)
        db.execute(Q["insert_lane"], (_LANE, *astuple(lane)))
        db.executemany(_INSERT, _rows(model, number))
        db.execute(Q["add_count"], (model.queue, model.type, "completed", number))
    db.close()


def _finished_job(now: int) -> Job:
    queued = new_job(JobSpec(), id="", now=now, run_at=now, max_attempts=4, order="lowest_first")
    return replace(
        queued,
        lane_id=_LANE,
        status="completed",
        claim_id=1,
        attempt=1,
        threads_granted=1,
        worker_id=new_id(),
        claimed_at=now + 200,
        started_at=now + 1_000,
        completed_at=now + 1_100,
    )


def _rows(model: Job, number: int) -> Iterator[tuple[Any, ...]]:
    for seq in range(1, number + 1):
        payload = b'{"n":%d}' % seq
        job = replace(model, seq=seq, id=new_id(), payload=payload, result=payload)
        yield astuple(job)


def _open(path: Path) -> apsw.Connection:
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)


def count_wrong(path: Path, expected: int) -> int:
    """Read every row after a run; how many jobs are missing, doubled, not completed or hold another's result."""
    db = _open(path)
    seen: set[bytes] = set()
    right = rows = 0
    for status, payload, result in db.execute("SELECT status, payload, result FROM jobs"):
        rows += 1
        right += status == "completed" and payload not in seen and _same(payload, result)
        seen.add(payload)
    counted = db.execute("SELECT sum(count) FROM counts WHERE status = 'completed'").fetchall()[0][0] or 0
    db.close()
    return max(rows - right, abs(expected - right), abs(expected - int(counted)))


def _same(payload: bytes, result: bytes | None) -> bool:
    if result is None:
        return False
    return payload == result or msgspec.json.decode(payload) == msgspec.json.decode(result)


def start_delays(path: Path) -> list[float]:
    """Seconds from submission to start of every job, in the order of submission."""
    db = _open(path)
    rows = db.execute("SELECT created_at, started_at FROM jobs ORDER BY seq").fetchall()
    db.close()
    return [(int(str(started)) - int(str(created))) / 1e6 for created, started in rows]
