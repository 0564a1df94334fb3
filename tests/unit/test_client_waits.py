"""The waits of a process, against a small API over real HTTP: any number of them share one or two connections."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stoker
from stoker import Batch, JobHandle, Stoker, errors
from stoker.client import courier
from stoker.ids import new_id
from tests.unit.fake_api import Answer, FakeApi, Seen, fake_api, problem


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as running:
        yield running


@pytest.fixture
def app(api: FakeApi) -> Iterator[Stoker]:
    with Stoker(api.url) as app:
        yield app


def eventually(check: Callable[[], bool], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def submitted(api: FakeApi, app: Stoker, number: int) -> Batch[Any]:
    made = [api._insert({"type": "echo", "result": n}, None) for n in range(number)]
    return Batch(app.job(job["id"]) for job in made)


def waits_of(api: FakeApi) -> list[Seen]:
    return [seen for seen in api.requests if seen.path == "/jobs/wait"]


def run(app: Stoker, main: Callable[[], Any]) -> Any:
    """Run a coroutine function on a fresh loop, and close its connections."""

    async def whole() -> Any:
        async with app:
            return await main()

    return asyncio.run(whole())


# --- sharing


def test_any_number_of_async_waits_is_one_request(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 2_000)
    for job in jobs:
        api.finish(job.id)

    async def main() -> list[Any]:
        return await asyncio.gather(*(job.result_async() for job in jobs))

    assert run(app, main) == list(range(2_000))
    assert [len(seen.body["ids"]) for seen in api.requests] == [2_000]
    assert api.connections == 1


def test_an_answer_that_has_only_a_part_is_followed_by_another_question(api: FakeApi, app: Stoker) -> None:
    api.wait_limit = 400
    jobs = submitted(api, app, 1_000)
    for job in jobs:
        api.finish(job.id)
    assert run(app, lambda: stoker.gather_async(jobs)) == list(range(1_000))
    assert [len(seen.body["ids"]) for seen in api.requests] == [1_000, 600, 200]


def test_waits_that_come_one_after_another_take_two_connections_and_submits_another(
    api: FakeApi, app: Stoker
) -> None:
    jobs = submitted(api, app, 30)

    async def main() -> list[Any]:
        tasks: list[asyncio.Task[Any]] = []
        for job in jobs:
            tasks.append(asyncio.create_task(job.result_async()))
            await app.submit_async("echo")
        await asyncio.to_thread(eventually, lambda: sum(len(s.body["ids"]) for s in waits_of(api)) >= 30)
        for job in jobs:
            api.finish(job.id)
        return await asyncio.gather(*tasks)

    assert run(app, main) == list(range(30))


def test_blocking_waits_of_many_threads_share_too(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 40)
    results: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda n=n: results.__setitem__(n, jobs[n].result(timeout=30)))
        for n in range(40)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: len({id for seen in waits_of(api) for id in seen.body["ids"]}) == 39)
    for job in reversed(jobs):
        api.finish(job.id)
    for thread in threads:
        thread.join()
    assert results == {n: n for n in range(40)}
    direct = [seen for seen in api.requests if seen.method == "GET"]
    assert {seen.path for seen in direct} == {f"/jobs/{jobs[0].id}"}, "the first asks for itself"


def test_several_waits_for_one_job_all_end(api: FakeApi, app: Stoker) -> None:
    (job,) = submitted(api, app, 1)

    async def main() -> list[Any]:
        both = asyncio.gather(*(app.job(id).result_async() for id in (job.id, job.id, job.id.upper())))
        await asyncio.to_thread(api.waiting.wait, 10)
        api.finish(job.id, result="all")
        return await both

    assert run(app, main) == ["all"] * 3


def test_more_waits_than_the_requests_can_carry_take_turns(
    api: FakeApi, app: Stoker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier, "MAX_IDS", 10)
    monkeypatch.setattr(courier, "CROWDED_HOLD_SECONDS", 0.02)
    jobs = submitted(api, app, 45)

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(job.result_async()) for job in jobs]
        api.finish(jobs[-1].id)
        assert await tasks[-1] == 44, "the last is heard of, although the first 20 go on"
        for job in jobs:
            api.finish(job.id)
        return await asyncio.gather(*tasks)

    assert run(app, main) == list(range(45))
    assert max(len(seen.body["ids"]) for seen in waits_of(api)) == 10


# --- ends of every kind


def test_each_wait_gets_its_own_end(api: FakeApi, app: Stoker) -> None:
    done, bad, gone = submitted(api, app, 3)
    api.finish(done.id)
    api.finish(bad.id, "failed", error={"type": "ValueError", "message": "no luck"})
    api.finish(gone.id, "cancelled")
    unknown, odd = app.job(new_id()), app.job("nonsense" * 20)

    async def main() -> list[Any]:
        jobs = (done, bad, gone, unknown, odd)
        return await asyncio.gather(*(job.result_async(timeout=20) for job in jobs), return_exceptions=True)

    results = run(app, main)
    assert results[0] == 0
    assert [type(error) for error in results[1:]] == [
        errors.JobFailed,
        errors.JobCancelled,
        errors.NotFound,
        errors.NotFound,
    ]
    assert "no luck" in str(results[1])
    assert unknown.id in str(results[3])


def test_a_wait_that_loses_patience_says_so_and_the_others_go_on(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 3)

    async def main() -> list[Any]:
        timeouts = (0.05, 30, 0)
        tasks = [asyncio.create_task(jobs[n].result_async(timeouts[n])) for n in range(3)]
        await asyncio.wait(tasks[::2])
        api.finish(jobs[1].id)
        return await asyncio.gather(*tasks, return_exceptions=True)

    late, done, at_once = run(app, main)
    assert done == 1
    assert isinstance(late, errors.ResultTimeout)
    assert (late.job.status, late.timeout) == ("queued", 0.05)
    assert isinstance(at_once, errors.ResultTimeout)


def test_a_blocking_wait_that_loses_patience_says_so(api: FakeApi, app: Stoker) -> None:
    first, second = submitted(api, app, 2)
    holder = threading.Thread(target=first.result)
    holder.start()
    api.waiting.wait(10)
    with pytest.raises(errors.ResultTimeout, match=r"is queued after 0\.05 s"):
        second.result(timeout=0.05)
    api.finish(first.id)
    holder.join()


def test_a_cancelled_task_leaves_nothing_behind(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 50)

    async def main() -> None:
        tasks = [asyncio.create_task(job.result_async()) for job in jobs]
        await asyncio.to_thread(api.waiting.wait, 10)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not app.transport.waits._receivers
        api.finish(jobs[0].id)
        assert await jobs[0].result_async() == 0

    run(app, main)


# --- the life of the courier


def test_one_loop_after_another_may_wait(api: FakeApi, app: Stoker) -> None:
    for number in range(3):
        (job,) = submitted(api, app, 1)
        api.finish(job.id, result=number)
        assert asyncio.run(job.result_async()) == number


def test_a_loop_that_is_closed_under_its_waits_harms_nobody(api: FakeApi, app: Stoker) -> None:
    forgotten, job = submitted(api, app, 2)
    loop = asyncio.new_event_loop()
    task = loop.create_task(forgotten.result_async())
    loop.run_until_complete(asyncio.sleep(0.01))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    api.finish(job.id)
    api.finish(forgotten.id)
    assert asyncio.run(job.result_async()) == 1


def test_the_courier_leaves_when_nobody_waits_and_comes_back(
    api: FakeApi, app: Stoker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier, "IDLE_SECONDS", 0.01)
    for _ in range(3):
        (job,) = submitted(api, app, 1)
        api.finish(job.id)
        asyncio.run(job.result_async())
        eventually(lambda: not any(thread.name == "stoker-waits" for thread in threading.enumerate()))


def test_closing_the_client_ends_its_waits_with_an_error(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 2)
    caught: list[Exception] = []

    def wait() -> None:
        try:
            stoker.gather(jobs)
        except errors.StokerError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    api.waiting.wait(10)
    app.close()
    thread.join()
    assert [type(error) for error in caught] == [errors.ConnectionFailed]
    api.finish(jobs[0].id)
    api.finish(jobs[1].id)
    assert stoker.gather(jobs) == [0, 1], "the next wait opens new connections"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_process_has_connections_and_a_courier_of_its_own(api: FakeApi, app: Stoker) -> None:
    before, held, after = submitted(api, app, 3)
    api.finish(before.id)
    assert stoker.gather([before]) == [0]
    assert before.result() == 0
    waiting = threading.Thread(target=lambda: stoker.gather([held]))
    waiting.start()
    api.waiting.wait(10)
    api.finish(after.id)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child() -> None:
        answers.put((stoker.gather([after]), after.result(), asyncio.run(after.result_async())))

    process = context.Process(target=child)
    process.start()
    process.join(20)
    assert process.exitcode == 0
    assert answers.get() == ([2], 2, 2)
    api.finish(held.id)
    waiting.join()
    answers.close()


def test_ctrl_c_ends_a_wait_for_many(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 2)

    def interrupt() -> None:
        api.waiting.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # A shell that runs the tests in the background has them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            stoker.gather(jobs)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not app.transport.waits._receivers


# --- servers that are not as expected


def test_an_older_server_is_asked_for_one_job_at_a_time(api: FakeApi, app: Stoker) -> None:
    api.is_old = True
    jobs = submitted(api, app, 20)
    for job in jobs:
        api.finish(job.id)
    lost = app.job(new_id())
    results = run(app, lambda: stoker.gather_async([*jobs, lost], return_exceptions=True))
    assert results[:20] == list(range(20))
    assert isinstance(results[20], errors.NotFound)
    assert len(waits_of(api)) == 1
    with pytest.raises(errors.StokerError, match="of an earlier release"):
        jobs.counts()


def test_a_coordinator_that_stops_and_comes_back_is_asked_again(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 3)

    async def main() -> list[Any]:
        waiting = asyncio.gather(*(job.result_async() for job in jobs))
        await asyncio.to_thread(api.waiting.wait, 10)
        api.stop_waiting()  # answers without news
        await asyncio.to_thread(eventually, lambda: len(waits_of(api)) > 1)
        api.stopping = False
        api.fail_next = 2  # and then connections break
        for job in jobs:
            api.finish(job.id)
        return await waiting

    assert run(app, main) == [0, 1, 2]
    assert len(waits_of(api)) < 10, "it does not ask in a hurry"


def test_a_server_that_is_busy_is_given_time(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 2)
    for job in jobs:
        api.finish(job.id)
    busy = iter([problem(503, "Busy", "too many", headers={"Retry-After": "0"})] * 3)

    def answer(seen: Seen) -> Answer:
        return next(busy, None) or api._wait_for_any(seen.body)

    api.answers["POST", "/jobs/wait"] = answer
    assert stoker.gather(jobs) == [0, 1]


@pytest.mark.parametrize("status", [401, 500])
def test_a_refusal_reaches_everybody_who_waits(api: FakeApi, app: Stoker, status: int) -> None:
    jobs = submitted(api, app, 3)
    api.answers["POST", "/jobs/wait"] = problem(status, "No", "not for you")

    async def main() -> list[Any]:
        return await asyncio.gather(*(job.result_async() for job in jobs), return_exceptions=True)

    results = run(app, main)
    expected = errors.Unauthorized if status == 401 else errors.Unavailable
    assert [type(error) for error in results] == [expected] * 3
    assert len(set(map(id, results))) == 3, "each has an exception of its own"
    assert "not for you" in str(results[0])


# --- many jobs as one


def test_gather_keeps_the_order_and_raises_the_first_failure(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 5)
    for job in reversed(jobs):
        api.finish(job.id, "failed" if job is jobs[2] else "completed")
    with pytest.raises(errors.JobFailed):
        stoker.gather(jobs)
    results = jobs.results(return_exceptions=True)
    assert [*results[:2], *results[3:]] == [0, 1, 3, 4]
    assert isinstance(results[2], errors.JobFailed)
    assert stoker.gather([]) == []
    assert stoker.gather([jobs[4], jobs[0], jobs[4]]) == [4, 0, 4]


def test_gather_gives_up_in_time(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 2)
    api.finish(jobs[0].id)
    with pytest.raises(errors.ResultTimeout) as caught:
        stoker.gather(jobs, timeout=0.05)
    assert caught.value.job.id == jobs[1].id
    with pytest.raises(errors.ResultTimeout):
        run(app, lambda: stoker.gather_async(jobs, timeout=0.05))
    with pytest.raises(errors.ArgumentError, match="no number of seconds"):
        stoker.gather(jobs, timeout=float("nan"))


def test_jobs_come_as_they_end_and_their_results_with_them(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 3)
    seen: list[JobHandle[Any]] = []
    api.finish(jobs[1].id)
    for job in stoker.as_completed(jobs, timeout=20):
        seen.append(job)
        left = [other for other in (jobs[2], jobs[0]) if other not in seen]
        if left:
            api.finish(left[0].id)
    assert seen == [jobs[1], jobs[2], jobs[0]]
    asked = len(api.requests)
    assert [job.result() for job in seen] == [1, 2, 0]
    assert len(api.requests) == asked, "the results came with the ends"
    assert jobs[0].result() == 0
    assert len(api.requests) == asked + 1, "the next time the server is asked"


def test_jobs_come_as_they_end_on_a_loop_too(api: FakeApi, app: Stoker) -> None:
    jobs = submitted(api, app, 3)

    async def main() -> list[Any]:
        seen = []
        api.finish(jobs[2].id)
        async for job in jobs.as_completed():
            seen.append(await job.result_async())
            if len(seen) < 3:
                api.finish(jobs[2 - len(seen)].id)
        return seen

    assert run(app, main) == [2, 1, 0]


def test_a_batch_counts_its_jobs_by_status(api: FakeApi, app: Stoker) -> None:
    @app.task
    def work(n: int) -> None: ...

    jobs = work.submit_many(range(5))
    assert isinstance(jobs, Batch)
    api.finish(jobs[0].id)
    api.finish(jobs[1].id, "failed")
    jobs.append(app.job(new_id()))
    counts = jobs.counts()
    assert (counts.total, counts.completed, counts.failed, counts.queued, counts.missing) == (6, 1, 1, 3, 1)
    assert (counts.ended, counts.pending) == (2, 3)
    assert run(app, jobs.counts_async) == counts
    assert waits_of(api)[0].body["limit"] == 0
