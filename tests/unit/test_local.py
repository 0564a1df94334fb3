"""`Stoker.local()` in this process: what its tasks can do, and what is left after the block."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

import stoker
from stoker import Stoker, cancelled, context, current_job, progress
from stoker.client.errors import JobCancelled, JobFailed, StokerError
from stoker.local.app import LocalStoker
from stoker.local.children import LocalRouter
from stoker.soft_timeout import SoftTimeout
from stoker.system import SYSTEM
from stoker.system.interrupt import Interrupt, raise_in_thread
from tests.e2e.system import eventually


@pytest.fixture(scope="module")
def app() -> Iterator[LocalStoker]:
    with Stoker.local(threads=2, settings={"retry_backoff_base_sec": 1}) as app:
        yield app


def test_a_task_that_is_defined_inside_the_block_runs(app: LocalStoker) -> None:
    here = threading.get_ident()

    @app.task
    def where(x: int) -> list[int]:
        return [x, threading.get_ident()]

    x, thread = where.submit(3).result(timeout=10)
    assert x == 3
    assert thread != here


def test_a_task_that_is_defined_again_replaces_the_earlier_one(app: LocalStoker) -> None:
    for value in (1, 2):

        @app.task(name="again")
        def again(value: int = value) -> int:
            return value

        assert again.submit().result(timeout=10) == value


def test_tasks_of_an_app_that_is_included_later_run(app: LocalStoker) -> None:
    other = Stoker()

    @other.task
    def before_it() -> str:
        return "before"

    app.include(other)

    @other.task
    def after_it() -> str:
        return "after"

    assert [before_it.submit().result(timeout=10), after_it.submit().result(timeout=10)] == [
        "before",
        "after",
    ]


def test_tasks_that_come_while_jobs_run_cost_no_job_an_attempt(app: LocalStoker) -> None:
    jobs: list[stoker.JobHandle[int]] = []
    for number in range(20):

        @app.task(name=f"late-{number}")
        def late(number: int = number) -> int:
            return number

        jobs += late.submit_many([(number,)] * 10)
    assert [job.result(timeout=30) for job in jobs] == [number for number in range(20) for _ in range(10)]
    assert {job.refresh().attempt for job in jobs} == {1}


def test_failures_are_retried_and_the_last_is_raised(app: LocalStoker) -> None:
    @app.task(max_attempts=2)
    def second_time() -> int:
        if current_job().attempt == 1:
            raise ValueError("not yet")
        return current_job().attempt

    @app.task(max_attempts=1)
    def never() -> None:
        raise ValueError("no")

    first, last = second_time.submit(), never.submit()
    assert first.result(timeout=20) == 2
    with pytest.raises(JobFailed, match="ValueError: no") as raised:
        last.result(timeout=10)
    error = raised.value.job.error
    assert error is not None
    assert 'raise ValueError("no")' in str(error.traceback)


def test_two_jobs_at_once_know_who_they_are(app: LocalStoker) -> None:
    both = threading.Barrier(2)
    seen = threading.Event()

    @app.task
    def who() -> str:
        both.wait(10)
        progress(1, 2, current_job().id)
        seen.wait(10)
        return current_job().id

    jobs = who.submit_many([(), ()])
    for job in jobs:
        said = eventually(lambda job=job: job.refresh().progress, 10, "progress to be told")  # type: ignore[misc]
        assert said.message == job.id
    assert context.running_job() is None
    seen.set()
    assert jobs.results(timeout=10) == [job.id for job in jobs]


def test_async_tasks_run_side_by_side(app: LocalStoker) -> None:
    together: list[asyncio.Event] = []

    @app.task
    async def meet(n: int) -> str:
        together.append(asyncio.Event())
        if len(together) == 5:
            for event in together:
                event.set()
        async with asyncio.timeout(10):
            await together[-1].wait() if len(together) < 5 else None
        return current_job().id

    jobs = meet.submit_many(range(5))
    assert jobs.results(timeout=15) == [job.id for job in jobs]


def test_a_timeout_ends_the_attempt_although_the_thread_lives_on(app: LocalStoker) -> None:
    release = threading.Event()

    @app.task(timeout_sec=0.1, max_attempts=1)
    def blocked() -> str:
        release.wait(30)
        return "too late"

    job = blocked.submit()
    with pytest.raises(JobFailed, match="timeout"):
        job.result(timeout=15)
    release.set()
    assert app.submit("echo", "next").result(timeout=10) == "next"
    assert job.refresh().status == "failed"


def test_a_timeout_stops_a_task_that_runs_python_code(app: LocalStoker) -> None:
    ended = threading.Event()

    @app.task(timeout_sec=0.1, max_attempts=1)
    def spins() -> None:
        try:
            while True:
                time.sleep(0.001)
        finally:
            ended.set()

    with pytest.raises(JobFailed, match="timeout"):
        spins.submit().result(timeout=15)
    assert ended.wait(10)


def test_a_soft_timeout_is_raised_in_the_task(app: LocalStoker) -> None:
    @app.task(soft_timeout_sec=0.1)
    def tidy() -> str:
        try:
            while True:
                time.sleep(0.001)
        except SoftTimeout:
            return "tidied"

    assert tidy.submit().result(timeout=10) == "tidied"


def test_a_task_notices_that_it_was_cancelled(app: LocalStoker) -> None:
    runs = threading.Event()

    @app.task
    def until_cancelled() -> None:
        runs.set()
        while not cancelled():
            time.sleep(0.001)

    job = until_cancelled.submit()
    assert runs.wait(10)
    job.cancel()
    with pytest.raises(JobCancelled):
        job.result(timeout=10)


def test_a_task_submits_and_waits_for_another(app: LocalStoker) -> None:
    @app.task
    def inner(n: int) -> int:
        return n + 1

    @app.task
    def outer(n: int) -> int:
        return inner.submit(n).result(timeout=10) * 10

    assert outer.submit(1).result(timeout=15) == 20


def test_the_block_quiets_the_worker_and_leaves_the_scripts_logs_alone(app: LocalStoker) -> None:
    with structlog.testing.capture_logs() as logs:
        structlog.get_logger().info("of the script")
    assert [entry["event"] for entry in logs] == ["of the script"]


def test_data_with_a_path_is_there_the_next_time(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "data"
    with Stoker.local(place, threads=1) as app:
        job_id = app.submit("echo", "kept", delay_sec=0).id
        app.job(job_id).result(timeout=10)
        queued = app.submit("echo", "later", queue="later", delay_sec=3600).id
    with Stoker.local(str(place), threads=1) as app:
        assert app.job(job_id).result(timeout=10) == "kept"
        assert app.job(queued).refresh().status == "scheduled"
        with pytest.raises(StokerError, match="cannot start"):
            Stoker.local(place).start()


def test_async_with_enters_and_leaves_the_lifespan_once() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        seen.append("in")
        yield {"loop": asyncio.get_running_loop()}
        seen.append("out")

    async def main() -> Path:
        async with Stoker.local(threads=1, lifespan=lifespan) as app:

            @app.task
            async def same_loop() -> bool:
                return asyncio.get_running_loop() is app.state.loop

            assert await (await same_loop.submit_async())
            return app.folder

    folder = asyncio.run(main())
    assert seen == ["in", "out"]
    assert not folder.exists()


def test_a_lifespan_that_fails_is_told_and_leaves_nothing_behind() -> None:
    def lifespan(app: Any) -> Any:
        raise ValueError("no database")

    app = Stoker.local(lifespan=lifespan)
    with pytest.raises(ValueError, match="no database"):
        app.start()
    eventually(lambda: not _threads(), 5, "the threads to end")


def test_an_exception_ends_everything_and_what_runs_does_not_hold_it_up() -> None:
    release = threading.Event()
    runs = threading.Event()
    folders: list[Path] = []
    app = Stoker.local(threads=1)

    @app.task
    def blocked() -> None:
        runs.set()
        release.wait(30)

    def script() -> None:
        with app:
            blocked.submit()
            assert runs.wait(10)
            folders.append(app.folder)
            raise KeyError("of the script")

    with pytest.raises(KeyError, match="of the script"):
        script()
    assert not folders[0].exists()
    release.set()
    eventually(lambda: not _threads(), 5, "the threads to end")
    with pytest.raises(StokerError, match="not running"):
        blocked.submit()


def _threads() -> list[str]:
    """Threads of local Stokers, but for those of the module's own."""
    return [one.name for one in threading.enumerate() if one.name.startswith("stoker-") and one not in BEFORE]


BEFORE: list[threading.Thread] = []


@pytest.fixture(autouse=True)
def _note_threads(app: LocalStoker) -> None:
    app.submit("echo", 1).result(timeout=10)
    BEFORE[:] = [one for one in threading.enumerate() if one.name.startswith("stoker-")]


def test_windows_is_told_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(SYSTEM), "worker_problem", "no fork here")
    with pytest.raises(StokerError, match="WSL"):
        Stoker.local().start()


def test_wrong_settings_are_told() -> None:
    with pytest.raises(StokerError, match=r"(?i)max_attempts"):
        Stoker.local(settings={"max_attempts": 0}).start()


def test_the_package_does_not_load_local_mode_until_it_is_used() -> None:
    assert "local" in dir(stoker.Stoker)
    code = (
        "import sys, stoker; stoker.Stoker; sys.exit(any(m.startswith('stoker.local') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_interrupt_reaches_a_thread_that_is_not_the_main_one() -> None:
    seen: list[str] = []

    def work() -> None:
        try:
            with Interrupt(0.01, SoftTimeout):
                while True:
                    time.sleep(0.001)
        except SoftTimeout:
            seen.append("raised")
        with Interrupt(60, SoftTimeout):
            seen.append("in time")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen == ["raised", "in time"]


def test_an_exception_for_a_thread_can_be_taken_back() -> None:
    here = threading.get_ident()

    def both() -> None:
        raise_in_thread(here, SoftTimeout)
        raise_in_thread(here, None)

    other = threading.Thread(target=both)
    other.start()
    other.join()


def test_what_belongs_to_no_job_here_goes_to_the_line_that_was_there_before() -> None:
    said: list[float] = []

    class Outer:
        def progress(self, index: int, done: float, total: float | None, message: str | None) -> None:
            said.append(done)

        def cancelled(self, index: int) -> bool:
            return True

    router = LocalRouter(Outer())
    router.progress(0, 5, None, None)
    assert said == [5]
    assert router.cancelled(0)
    assert not LocalRouter(None).cancelled(0)
