"""The Python SDK against a real system: the same app that the worker runs, used by a program that submits."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import stoker
from stoker import BatchCounts, Stoker, errors
from stoker.ids import new_id
from tests.e2e import jobs_app
from tests.e2e.system import Server, System, eventually


@pytest.fixture(scope="module")
def app(server: Server, crew: str) -> Iterator[Stoker]:
    """The worker's own app, pointed at the shared server."""
    with Stoker(server.url) as connected:
        original, jobs_app.app.transport = jobs_app.app.__dict__.get("transport"), connected.transport
        yield jobs_app.app
        if original is None:
            del jobs_app.app.transport
        else:
            jobs_app.app.transport = original


@asynccontextmanager
async def connections_closed(app: Stoker) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await app.transport.aclose()


def test_sync_and_async_tasks_give_their_results(app: Stoker) -> None:
    assert jobs_app.add.submit(2, 3).result(timeout=10) == 5
    assert jobs_app.add.submit(2).result(timeout=10) == 3, "defaults are the function's"
    assert jobs_app.add.submit(x=2, y=40).result(timeout=10) == 42
    assert jobs_app.add_later.submit(2, 3).result(timeout=10) == 5
    assert jobs_app.add(2, 3) == 5, "a task is still a function"


def test_everything_works_on_an_event_loop(app: Stoker) -> None:
    async def main() -> list[Any]:
        async with connections_closed(app):
            jobs = await asyncio.gather(*(jobs_app.add_later.submit_async(n, 1) for n in range(20)))
            return await asyncio.gather(*(job.result_async(timeout=20) for job in jobs))

    assert asyncio.run(main()) == list(range(1, 21))


def test_many_at_once_in_order(app: Stoker) -> None:
    handles = jobs_app.add.submit_many([{"x": n, "y": 0} for n in range(500)] + [(500, 0), 500])
    assert [handle.result(timeout=30) for handle in handles] == [*range(501), 501]
    assert jobs_app.add.submit_many([]) == []


def test_many_results_by_one_wait_each_way(app: Stoker) -> None:
    handles = jobs_app.add.submit_many([(n, 0) for n in range(300)])
    assert handles.results(timeout=30) == list(range(300))
    assert sorted(job.result() for job in stoker.as_completed(handles, timeout=30)) == list(range(300))
    assert handles.counts() == BatchCounts(total=300, completed=300)

    async def main() -> list[Any]:
        async with connections_closed(app):
            return await asyncio.gather(*(job.result_async(timeout=30) for job in handles))

    assert asyncio.run(main()) == list(range(300))


def test_a_wait_for_many_sees_every_kind_of_end(app: Stoker) -> None:
    done, bad, slow = (
        jobs_app.add.submit(1, 2),
        jobs_app.boom.options(max_attempts=2).submit(),
        jobs_app.nap.submit(60),
    )
    lost = app.job(new_id())
    threading.Timer(0.3, slow.cancel).start()
    results = stoker.gather([done, bad, slow, lost], timeout=30, return_exceptions=True)
    assert results[0] == 3
    assert [type(error) for error in results[1:]] == [errors.JobFailed, errors.JobCancelled, errors.NotFound]
    assert isinstance(results[1], errors.JobFailed)
    assert [attempt.outcome for attempt in results[1].job.attempts] == ["error", "error"]


def test_a_failure_is_raised_with_its_reason_and_traceback(app: Stoker) -> None:
    job = jobs_app.boom.options(max_attempts=2).submit("sdk")
    with pytest.raises(errors.JobFailed, match="no luck with sdk") as caught:
        job.result(timeout=20)
    failed = caught.value.job
    assert (failed.status, failed.attempt, len(failed.attempts)) == ("failed", 2, 2)
    assert "jobs_app.py" in "".join(caught.value.__notes__)


def test_cancel_ends_a_running_job(app: Stoker) -> None:
    job = jobs_app.nap.submit(60)
    eventually(lambda: job.status() == "running")
    job.cancel()
    with pytest.raises(errors.JobCancelled):
        job.result(timeout=4)
    assert job.cancel().status == "cancelled", "cancelling twice is cancelling once"


def test_a_finished_job_cannot_be_cancelled(app: Stoker) -> None:
    job = jobs_app.add.submit(1, 2)
    job.result(timeout=10)
    with pytest.raises(errors.Conflict):
        job.cancel()


def test_a_result_that_is_not_there_yet_can_be_asked_for_again(app: Stoker) -> None:
    job = jobs_app.nap.submit(1, "patience")
    with pytest.raises(errors.ResultTimeout):
        job.result(timeout=0.1)
    assert job.result(timeout=10) == "patience"


def test_arguments_are_checked_before_anything_is_sent(app: Stoker, server: Server) -> None:
    before = server.get("/stats")["jobs_total"]
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("two",), {}),
        ((), {}),
        ((1, 2, 3), {}),
        ((1,), {"z": 1}),
        ((1.5,), {}),
        ((None,), {}),
    ]
    for args, kwargs in wrong:
        with pytest.raises(errors.ArgumentError):
            jobs_app.add.submit(*args, **kwargs)
    with pytest.raises(errors.ArgumentError):
        jobs_app.add.submit_many([{"x": 1}, {"x": "two"}])
    assert server.get("/stats")["jobs_total"] == before


def test_options_reach_the_job(app: Stoker) -> None:
    job = jobs_app.add.options(
        queue="crew",
        priority=0,
        name="sum",
        timeout_sec=9,
        max_attempts=2,
        metadata={"a": "b"},
        delay_sec=0.5,
    ).submit(1, 1)
    info = job.info
    assert (info.queue, info.priority, info.name, info.timeout_sec, info.max_attempts) == (
        "crew",
        0,
        "sum",
        9,
        2,
    )
    assert info.status == "scheduled"
    assert job.result(timeout=10) == 2


def test_the_same_key_is_the_same_job(app: Stoker) -> None:
    task = jobs_app.add.options(idempotency_key=new_id())
    assert task.submit(1, 1).id == task.submit(1, 1).id
    with pytest.raises(errors.InvalidInput):
        task.submit(1, 2)


def test_a_job_of_any_type_by_name_and_by_id(app: Stoker) -> None:
    job = app.submit("echo", {"big": 2**62, "nul": "\0"})
    assert job.result(timeout=10) == {"big": 2**62, "nul": "\0"}
    assert app.job(job.id).result(timeout=1) == job.result()
    with pytest.raises(errors.NotFound):
        app.job(new_id()).refresh()


def test_a_submission_and_a_wait_sit_out_a_restart_of_the_coordinator(system: System) -> None:
    server = system.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=10)
    system.worker(server)
    with Stoker(server.url) as client:
        job = client.submit("nap", {"seconds": 1})
        server.kill()
        server = system.serve(port=server.port, WORKER_HEARTBEAT_TIMEOUT_SEC=10)
        assert job.result(timeout=15) == "nap"


def test_a_wait_for_many_sits_out_a_restart_of_the_coordinator(system: System) -> None:
    server = system.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=10)
    system.worker(server)
    with Stoker(server.url) as client:
        jobs = [client.submit("nap", {"seconds": 1}), client.submit("nap", {"seconds": 1.5})]
        results: list[Any] = []
        waiting = threading.Thread(target=lambda: results.append(stoker.gather(jobs, timeout=30)))
        waiting.start()
        server.terminate()
        assert server.exit_code() == 0
        system.serve(port=server.port, WORKER_HEARTBEAT_TIMEOUT_SEC=10)
        waiting.join()
        assert results == [["nap", "nap"]]
