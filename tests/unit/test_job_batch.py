"""Jobs that are alike, as columns."""

from msgspec.structs import replace

from stoker.domain.job import Job, JobSpec, new_job
from stoker.domain.job_batch import batch_of, batches_of, joined
from stoker.ids import new_id


def stored(seq: int, payload: bytes = b"1", *, at: int = 5, delay: int = 0, **fields: object) -> Job:
    job = new_job(JobSpec(), id=new_id(), now=at, run_at=at + delay, max_attempts=3, order="lowest_first")
    return replace(job, seq=seq, payload=payload, **fields)


def test_jobs_that_are_alike_become_one_batch_and_come_out_of_it_as_they_were() -> None:
    jobs = [stored(7, b"1"), stored(8, b"22", at=6), stored(9, b"333", at=6)]
    (batch,) = batches_of(jobs)
    assert (list(batch), len(batch), batch.template) == (jobs, 3, jobs[0])


def test_a_batch_ends_where_anything_else_differs() -> None:
    jobs = [stored(1), stored(2), stored(3, claim_id=1), stored(4), stored(5, name="x"), stored(6, name="x")]
    assert [list(batch) for batch in batches_of(jobs)] == [jobs[:2], jobs[2:3], jobs[3:4], jobs[4:]]


def test_a_batch_ends_where_a_number_is_missing() -> None:
    jobs = [stored(1), stored(2), stored(4), stored(3)]
    assert [list(batch) for batch in batches_of(jobs)] == [jobs[:2], jobs[2:3], jobs[3:]]


def test_jobs_that_are_due_later_are_alike_if_they_are_due_at_the_same_time() -> None:
    jobs = [stored(1, at=5, delay=10), stored(2, at=6, delay=9), stored(3, at=7, delay=10), stored(4, at=8)]
    assert [list(batch) for batch in batches_of(jobs)] == [jobs[:2], jobs[2:3], jobs[3:]]


def test_nothing_has_no_batches() -> None:
    assert batches_of([]) == []


def test_batches_of_any_size_are_joined() -> None:
    jobs = [stored(seq, at=seq) for seq in range(1, 8)]
    one, rest = batches_of(jobs[:4])[0], jobs[4:]
    (batch,) = joined([one, *map(batch_of, rest)])
    assert list(batch) == jobs


def test_a_part_holds_the_jobs_of_its_places() -> None:
    jobs = [stored(seq, b"%d" % seq, at=seq) for seq in range(1, 8)]
    (batch,) = batches_of(jobs)
    assert list(batch.part(slice(1, 7, 2))) == jobs[1:7:2]
    assert list(batch.part(slice(5, 7))) == jobs[5:]


def test_what_happens_to_the_first_happens_to_all() -> None:
    jobs = [stored(1), stored(2)]
    (batch,) = batches_of(jobs)
    changed = batch.changed(replace(batch.template, status="running", claim_id=1))
    assert list(changed) == [replace(job, status="running", claim_id=1) for job in jobs]
