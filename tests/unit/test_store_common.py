"""What every store works out in the same way."""

from msgspec.structs import replace

from stoker.domain.job import Job, JobSpec, new_job
from stoker.ids import new_id
from stoker.store.common import by_verb, runs_alike


def stored(seq: int, payload: bytes = b"1", **fields: object) -> Job:
    job = new_job(JobSpec(), id=new_id(), now=5, run_at=5, max_attempts=3, order="lowest_first")
    return replace(job, seq=seq, payload=payload, **fields)


def test_jobs_that_differ_only_in_number_id_and_payload_are_one_run() -> None:
    jobs = [stored(7, b"1"), stored(8, b"22"), stored(9, b"333")]
    ((like, alike),) = runs_alike(jobs)
    assert alike == jobs
    assert replace(like, seq=8, id=jobs[1].id, payload=b"22") == jobs[1]


def test_a_run_ends_where_anything_else_differs() -> None:
    jobs = [
        stored(1),
        stored(2),
        stored(3, created_at=6),
        stored(4),
        stored(5, name="x"),
        stored(6, name="x"),
    ]
    assert [alike for _, alike in runs_alike(jobs)] == [jobs[:2], jobs[2:3], jobs[3:4], jobs[4:]]


def test_a_run_ends_where_a_number_is_missing() -> None:
    jobs = [stored(1), stored(2), stored(4), stored(3)]
    assert [alike for _, alike in runs_alike(jobs)] == [jobs[:2], jobs[2:3], jobs[3:]]


def test_nothing_has_no_runs() -> None:
    assert runs_alike([]) == []


def test_verbs_come_in_their_order_with_the_places_of_their_calls() -> None:
    calls = [("claim", 1), ("finish", 2), ("claim", 3)]
    assert by_verb(calls, ["finish", "insert", "claim"]) == [("finish", [1]), ("claim", [0, 2])]
