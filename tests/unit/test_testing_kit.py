"""The test kit: `with app.testing() as t:`."""

import asyncio
import logging
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from stoker import (
    JobFailed,
    ResultTimeout,
    Stoker,
    StokerError,
    as_completed,
    cancelled,
    current_job,
    gather,
    progress,
)
from stoker.task_errors import RetryAfter
from stoker.testing.kit import START, Kit
from stoker.testing.plugin import stoker_test

__all__ = ["stoker_test"]


class Order(msgspec.Struct):
    id: int
    when: datetime


@pytest.fixture
def app() -> Stoker:
    return Stoker("http://stoker.example:8080", name="shop")


def outcomes(job: Any) -> list[str | None]:
    return [attempt.outcome for attempt in job.attempts()]


# ── running ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_waits_until_the_test_runs_it(app: Stoker) -> None:
    ran: list[int] = []

    @app.task
    def double(x: int) -> int:
        ran.append(x)
        return 2 * x

    with app.testing() as t:
        job = double.submit(4)
        assert (job.status(), ran) == ("queued", [])
        t.run_until_idle()
        assert (job.status(), ran) == ("completed", [4])
        assert job.result() == 8
        assert t.now == START


def test_a_wait_for_a_result_runs_the_job(app: Stoker) -> None:
    @app.task
    def double(x: int) -> int:
        return 2 * x

    with app.testing():
        assert double.submit(4).result() == 8
        assert double.submit_many([1, 2, 3]).results(timeout=1) == [2, 4, 6]


def test_enqueued_jobs_have_the_arguments_that_a_worker_would_call_with(app: Stoker) -> None:
    @app.task(queue="orders", priority=0)
    def ship(order: Order, *, fast: bool = False) -> None: ...

    @app.task
    def other() -> None: ...

    order = Order(7, datetime(2030, 5, 5, tzinfo=UTC))
    with app.testing() as t:
        ship.submit(order, fast=True)
        ship.options(delay_sec=60).submit(order)
        other.submit()
        first, second = t.enqueued(ship)
        assert first.arguments == {"order": order, "fast": True}
        assert (first.status, first.queue, first.priority) == ("queued", "orders", 0)
        assert (second.status, second.run_at) == ("scheduled", START + timedelta(minutes=1))
        assert len(t.enqueued()) == 3
        t.run_until_idle()
        assert [call.id for call in t.enqueued()] == [second.id]
        assert [call.id for call in t.done(ship)] == [first.id]
        assert first.handle.status() == "completed"


@pytest.mark.parametrize("return_exceptions", [False, True])
def test_a_wait_for_many_jobs_times_out_in_virtual_time(app: Stoker, return_exceptions: bool) -> None:
    @app.task
    def ship(order: int) -> int:
        return order

    with app.testing() as t:
        jobs = [ship.submit(1), ship.options(delay_sec=3_600).submit(2)]
        began = t.now
        with pytest.raises(ResultTimeout):
            gather(jobs, timeout=60, return_exceptions=return_exceptions)
        assert (t.now - began).total_seconds() == 60
        assert gather(jobs, timeout=7_200) == [1, 2]


async def test_jobs_that_ended_in_time_come_before_the_timeout(app: Stoker) -> None:
    @app.task
    def ship(order: int) -> int:
        return order

    with app.testing():
        late, soon = ship.options(delay_sec=3_600).submit(2), ship.submit(1)
        came = aiter(as_completed([late, soon], timeout=60))
        assert (await anext(came)).id == soon.id
        with pytest.raises(ResultTimeout):
            await anext(came)


def test_arguments_and_results_are_really_serialised(app: Stoker) -> None:
    given: list[Any] = []

    @app.task
    def keep(items: tuple[int, ...], order: Order) -> set[int]:
        given.append((items, order))
        return {1, 2}

    order = Order(1, START)
    with app.testing():
        assert keep.submit((1, 2), order).result() == {1, 2}
    assert given == [((1, 2), order)]
    assert given[0][1] is not order


def test_a_task_runs_in_the_thread_of_the_test_so_that_patches_reach_it(
    app: Stoker, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def look() -> tuple[float, int]:
        return time.time(), threading.get_ident()

    monkeypatch.setattr(time, "time", lambda: 12.5)
    with app.testing():
        assert look.submit().result() == (12.5, threading.get_ident())


def test_a_failure_has_the_traceback_of_the_task(app: Stoker) -> None:
    @app.task(max_attempts=1)
    def explode() -> None:
        raise ValueError("the boiler is cold")

    with app.testing() as t:
        job = explode.submit()
        with pytest.raises(JobFailed, match="the boiler is cold"):
            job.result()
        error = job.info.error
        assert error is not None
        assert error.type == "ValueError"
        assert 'raise ValueError("the boiler is cold")' in (error.traceback or "")
        assert "SyncChild" not in (error.traceback or "")
        assert [call.id for call in t.failed(explode)] == [job.id]


def test_jobs_run_in_the_order_of_their_priorities(app: Stoker) -> None:
    ran: list[str] = []

    @app.task
    def note(name: str) -> None:
        ran.append(name)

    with app.testing() as t:
        for name, priority in (("late", 2), ("usual", 1), ("first", 0)):
            note.options(priority=priority).submit(name)
        t.run_until_idle()
    assert ran == ["first", "usual", "late"]


# ── async and nested ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_async_task_sleeps_in_virtual_time(app: Stoker) -> None:
    @app.task
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return current_job().id

    began = time.monotonic()
    with app.testing() as t:
        jobs = nap.submit_many([20.0, 10.0])
        t.run_until_idle()
        assert jobs.results() == [job.id for job in jobs]
    assert time.monotonic() - began < 10


def test_an_async_task_is_ended_by_its_timeout(app: Stoker) -> None:
    @app.task(timeout_sec=5, max_attempts=1)
    async def nap() -> None:
        await asyncio.sleep(3600)

    with app.testing() as t:
        job = nap.submit()
        t.run_until_idle()
        assert outcomes(job) == ["timeout"]


def test_tasks_submit_tasks_and_wait_for_them(app: Stoker) -> None:
    @app.task
    def double(x: int) -> int:
        return 2 * x

    @app.task
    def sums(numbers: list[int]) -> int:
        return sum(job.result(timeout=5) for job in [double.submit(number) for number in numbers])

    @app.task
    async def sums_async(numbers: list[int]) -> int:
        jobs = [await double.submit_async(number) for number in numbers]
        return sum([await job.result_async() for job in jobs]) + double.submit(1).result()

    with app.testing():
        assert sums.submit([1, 2, 3]).result() == 12
        assert sums_async.submit([1, 2, 3]).result() == 14


def test_a_task_may_run_an_event_loop_of_its_own(app: Stoker) -> None:
    async def three() -> int:
        await asyncio.sleep(0)
        return 3

    @app.task
    def count() -> int:
        return asyncio.run(three())

    with app.testing():
        assert count.submit().result() == 3


def test_the_kit_works_inside_an_event_loop(app: Stoker) -> None:
    @app.task
    def double(x: int) -> int:
        return 2 * x

    async def test() -> list[int]:
        with app.testing() as t:
            jobs = [await double.submit_async(number) for number in (1, 2)]
            t.run_until_idle()
            assert await jobs[0].status_async() == "completed"
            await asyncio.sleep(0)
            found = [await job.result_async() for job in jobs]
            return found + await (await double.submit_many_async([3])).results_async()

    assert asyncio.run(test()) == [2, 4, 6]


def test_other_threads_may_submit(app: Stoker) -> None:
    @app.task
    def double(x: int) -> int:
        return 2 * x

    with app.testing() as t:
        threads = [threading.Thread(target=double.submit, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        t.run_until_idle()
        assert sorted(call.arguments["x"] for call in t.done(double)) == [0, 1, 2, 3, 4]


# ── what a task can say ────────────────────────────────────────────────────────────────────────────────────────────


def test_output_log_records_and_progress_arrive(app: Stoker, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    @app.task
    def talk() -> None:
        print("hello")  # noqa: T201 - that is what is captured
        logging.getLogger("shop").info("sold")
        progress(1, 2, "half")
        seen.append((current_job().type, current_job().attempt, cancelled()))

    with app.testing():
        job = talk.submit()
        job.result()
        texts = {entry.stream: entry.text for entry in job.logs()}
    assert texts["stdout"] == "hello\n"
    assert "INFO shop: sold" in texts["log"]
    assert seen == [("talk", 1, False)]
    assert "hello" in capsys.readouterr().out


def test_nothing_of_a_job_stays_behind(app: Stoker) -> None:
    import sys

    @app.task
    def quiet() -> None: ...

    before = sys.stdout, sys.path[:], logging.getLogger().level
    with app.testing() as t:
        quiet.submit()
        t.run_until_idle()
        with pytest.raises(LookupError):
            current_job()
    assert (sys.stdout, sys.path, logging.getLogger().level) == before


# ── time ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_retries_run_when_they_are_due(app: Stoker) -> None:
    @app.task(max_attempts=3)
    def flaky() -> int:
        if current_job().attempt < 3:
            raise ConnectionError("not yet")
        return current_job().attempt

    with app.testing() as t:
        job = flaky.submit()
        t.run_until_idle()
        assert (job.status(), job.info.attempt) == ("scheduled", 1)
        t.advance(seconds=1.9)
        assert job.refresh().attempt == 1
        t.advance(seconds=0.1)
        assert job.refresh().attempt == 2
        t.advance(minutes=1)
        assert job.result() == 3
        assert t.now == START + timedelta(seconds=62)


def test_a_task_says_when_it_wants_to_run_again(app: Stoker) -> None:
    @app.task(max_attempts=2)
    def poll() -> int:
        attempt = current_job().attempt
        if attempt == 1:
            raise RetryAfter(3600)
        return attempt

    with app.testing() as t:
        job = poll.submit()
        t.run_until_idle()
        assert job.refresh().run_at == START + timedelta(hours=1)
        t.advance(hours=1)
        assert job.result() == 2


def test_a_wait_without_a_timeout_moves_the_clock_as_far_as_it_takes(app: Stoker) -> None:
    @app.task
    def quick() -> str:
        return "done"

    with app.testing() as t:
        assert quick.options(delay_sec=7200).submit().result() == "done"
        assert t.now == START + timedelta(hours=2)


def test_a_wait_with_a_timeout_ends_in_virtual_time(app: Stoker) -> None:
    @app.task
    def quick() -> None: ...

    with app.testing() as t:
        job = quick.options(delay_sec=7200).submit()
        with pytest.raises(ResultTimeout):
            job.result(timeout=600)
        assert t.now == START + timedelta(minutes=10)


def test_a_wait_for_a_job_that_nothing_runs_ends(app: Stoker) -> None:
    with app.testing(), pytest.raises(ResultTimeout, match="no_such_task"):
        app.submit("no_such_task", {}).result()


def test_delayed_jobs_run_in_the_order_of_their_times(app: Stoker) -> None:
    ran: list[tuple[str, datetime]] = []
    with app.testing() as t:

        @app.task
        def note(name: str) -> None:
            ran.append((name, t.now))

        note.options(delay_sec=3600).submit("b")
        note.options(run_at=START + timedelta(minutes=5)).submit("a")
        note.options(delay_sec=7201).submit("c")
        t.advance(hours=2)
    assert ran == [("a", START + timedelta(minutes=5)), ("b", START + timedelta(hours=1))]


def test_a_schedule_fires_at_each_of_its_times(app: Stoker) -> None:
    ticks: list[Any] = []

    @app.cron("0 9 * * *", timezone="UTC")
    @app.task
    def report() -> None:
        ticks.append(current_job().scheduled_for)

    with app.testing() as t:
        t.advance(days=3)
    assert ticks == [datetime(2030, 1, day, 9, tzinfo=UTC) for day in (1, 2, 3)]


def test_a_unique_job_is_submitted_once(app: Stoker) -> None:
    @app.task
    def rebuild() -> None: ...

    with app.testing() as t:
        first = rebuild.options(unique_key="index").submit()
        assert rebuild.options(unique_key="index").submit().id == first.id
        t.run_until_idle()
        assert rebuild.options(unique_key="index").submit().id != first.id


def test_a_job_expires_while_it_waits(app: Stoker) -> None:
    @app.task
    def remind() -> None: ...

    with app.testing() as t:
        job = remind.options(delay_sec=60, expires_in_sec=30).submit()
        t.advance(minutes=2)
        assert job.status() in ("cancelled", "failed")


def test_a_hundred_jobs_with_retries_and_a_schedule_over_a_week_take_under_two_seconds(app: Stoker) -> None:
    ticks: list[int] = []

    @app.task(max_attempts=5)
    def flaky(number: int) -> int:
        if current_job().attempt <= number % 4:
            raise ConnectionError("not yet")
        return number

    @app.every(6 * 3600)
    @app.task
    def sweep() -> None:
        ticks.append(1)

    with app.testing() as t:  # imports and migrations are done once in a process
        t.run_until_idle()
    ticks.clear()
    began = time.process_time()
    with app.testing() as t:
        for number in range(100):
            flaky.options(delay_sec=number * 6000).submit(number)
        t.advance(weeks=1)
        assert sorted(call.arguments["number"] for call in t.done(flaky)) == list(range(100))
    assert 27 <= len(ticks) <= 29
    assert time.process_time() - began < 2


# ── death ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_whose_worker_dies_runs_again(app: Stoker) -> None:
    ran: list[str] = []

    @app.task
    def note(name: str) -> None:
        ran.append(name)

    with app.testing() as t:
        other = note.submit("other")
        job = note.submit("victim")
        t.crash(job)
        t.run_until_idle()
        assert outcomes(job) == ["lost", "completed"]
        assert outcomes(other) == ["completed"]
    assert ran == ["other", "victim"]


def test_a_worker_can_die_after_the_task_ran_and_before_it_said_so(app: Stoker) -> None:
    ran: list[int] = []

    @app.task
    def charge() -> None:
        ran.append(current_job().attempt)

    @app.task
    async def charge_async() -> None:
        ran.append(current_job().attempt)

    with app.testing() as t:
        for task in (charge, charge_async):
            job = task.submit()
            t.crash(job, after=True)
            t.run_until_idle()
            assert outcomes(job) == ["lost", "completed"]
    assert ran == [1, 2, 1, 2]


def test_a_worker_can_die_while_the_task_runs(app: Stoker) -> None:
    with app.testing() as t:

        @app.task(max_attempts=1)
        def crashing() -> None:
            t.crash(current_job().id)

        job = crashing.submit()
        t.run_until_idle()
        assert (job.status(), outcomes(job)) == ("failed", ["lost"])
        with pytest.raises(StokerError, match="has no next attempt"):
            t.crash(job)


def test_control_c_ends_the_test_and_not_the_job(app: Stoker) -> None:
    @app.task
    def interrupted() -> None:
        raise KeyboardInterrupt

    with app.testing() as t:
        interrupted.submit()
        with pytest.raises(KeyboardInterrupt):
            t.run_until_idle()


# ── the life of the app ────────────────────────────────────────────────────────────────────────────────────────────


def test_lifespans_and_middleware_are_around_the_tasks() -> None:
    import signal
    from collections.abc import AsyncIterator, Callable
    from contextlib import asynccontextmanager

    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Stoker) -> AsyncIterator[None]:
        seen.append("enter")
        await asyncio.sleep(1)
        yield
        seen.append("leave")

    app = Stoker(lifespan=lifespan)

    @app.middleware
    def around(job: Any, call_next: Callable[[], Any]) -> Any:
        seen.append(f"before {job.type}")
        return call_next()

    @app.task
    def work() -> None:
        seen.append("work")

    before = signal.getsignal(signal.SIGTERM)
    with app.testing():
        work.submit().result()
    assert seen == ["enter", "before work", "work", "leave"]
    assert signal.getsignal(signal.SIGTERM) is before


# ── the block ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_app_is_as_before_after_the_block(app: Stoker) -> None:
    @app.task
    def nothing() -> None: ...

    with app.testing() as t:
        job = nothing.submit()
        t.run_until_idle()
    assert "transport" not in app.__dict__
    assert app.transport.url == "http://stoker.example:8080"
    transport = app.transport
    with app.testing():
        assert app.transport is not transport
    assert app.transport is transport
    with pytest.raises(StokerError, match="has ended"):
        job.refresh()
    with pytest.raises(StokerError, match="not open"):
        t.run_until_idle()


def test_blocks_do_not_share_jobs(app: Stoker) -> None:
    @app.task
    def nothing() -> None: ...

    with app.testing() as t:
        nothing.submit()
    with app.testing() as t:
        assert t.enqueued() == []


def test_a_block_within_a_block_is_refused(app: Stoker) -> None:
    with app.testing(), pytest.raises(StokerError, match="open already"), app.testing():
        pass
    with app.testing():
        pass


def test_an_error_in_the_block_ends_it(app: Stoker) -> None:
    with pytest.raises(ZeroDivisionError), app.testing():
        _ = 1 / 0
    with app.testing():
        pass


def test_nothing_opens_a_socket(app: Stoker, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    async def nothing() -> None: ...

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the kit opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    with app.testing():
        nothing.submit().result()


def test_a_test_may_begin_at_any_time_and_settings_are_those_of_a_coordinator(app: Stoker) -> None:
    @app.task(max_attempts=2)
    def fails() -> None:
        raise ValueError

    moment = datetime(2027, 3, 1, 12, tzinfo=UTC)
    with app.testing(now=moment, settings={"retry_backoff_base_sec": 30.0}) as t:
        job = fails.submit()
        t.run_until_idle()
        assert t.now == moment
        assert job.refresh().run_at == moment + timedelta(seconds=30)
        t.advance_to(moment + timedelta(minutes=1))
        assert job.status() == "failed"
        with pytest.raises(StokerError, match="cannot go back"):
            t.advance(seconds=-1)
    with pytest.raises(StokerError, match="time zone"):
        Kit(app, now=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the mistake


def test_the_fixture_opens_a_kit_for_the_rest_of_the_test(app: Stoker, stoker_test: Any) -> None:
    @app.task
    def double(x: int) -> int:
        return 2 * x

    t = stoker_test(app)
    job = double.submit(2)
    t.run_until_idle()
    assert job.result() == 4
