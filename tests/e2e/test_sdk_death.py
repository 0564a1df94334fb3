"""`kill -9` of the coordinator under submits of the SDK: each call returns a job that exists, or raises; none exists twice.

`make sdk-death` is the long version: 10,000 jobs a test, with a kill about every 1,000.
"""

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from stoker import JobHandle, Stoker, errors, new_id
from tests.e2e.system import Server, System, eventually

JOBS = int(os.environ.get("SDK_DEATH_JOBS", "1000"))
KILLS = max(2, JOBS // 1_000)
THREADS = 8


class Submitters:
    """Threads that submit numbered jobs through one app, and remember what each call returned or raised."""

    def __init__(self, app: Stoker) -> None:
        self._app = app
        self._numbers = iter(range(JOBS))
        self._lock = threading.Lock()
        self.returned: dict[int, str] = {}
        self.raised: dict[int, errors.StokerError] = {}
        self._threads = [threading.Thread(target=self._submit_all) for _ in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _submit_all(self) -> None:
        while (n := self._next()) is not None:
            try:
                self.returned[n] = self._app.submit("nobody", {"n": n}).id
            except errors.StokerError as error:
                self.raised[n] = error

    @property
    def done(self) -> int:
        return len(self.returned) + len(self.raised)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def killed_at(system: System, server: Server, done: Callable[[], int], points: Iterator[int]) -> Server:
    for point in points:
        eventually(partial(_reached, done, point), 120, f"{point} submits")
        server.kill()
        server = system.serve(port=server.port)
    return server


def _reached(done: Callable[[], int], point: int) -> bool:
    return done() >= point


def stored(server: Server) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for job in server.jobs(type="nobody"):
        found.setdefault(job["payload"]["n"], []).append(job["id"])
    return found


def points() -> Iterator[int]:
    return iter([JOBS * (kill + 1) // (KILLS + 1) for kill in range(KILLS)])


def check(
    returned: dict[int, str], raised: dict[int, errors.StokerError], found: dict[int, list[str]]
) -> None:
    assert len(returned) + len(raised) == JOBS
    assert {n: id for n, id in returned.items() if found.get(n) != [id]} == {}, "returned, and not there once"
    assert [n for n, ids in found.items() if len(ids) != 1] == [], "there twice"
    for n, error in raised.items():
        if isinstance(error, errors.ConnectionFailed) and n in found:
            assert found[n] == [error.job_id], "an error names the id that the job has if it was stored"


def test_a_kill_under_submits_of_many_threads_loses_and_doubles_nothing(system: System) -> None:
    server = system.serve()
    with Stoker(server.url) as app:
        submitters = Submitters(app)
        server = killed_at(system, server, lambda: submitters.done, points())
        submitters.join()
        check(submitters.returned, submitters.raised, stored(server))
        assert len(submitters.returned) > JOBS // 2
        for n, error in submitters.raised.items():
            assert isinstance(error, (errors.ConnectionFailed, errors.Unavailable))
            mine = getattr(error, "job_id", None) or new_id()
            assert app.submit("nobody", {"n": n}, id=mine).id == mine, "a retry by hand is safe"
        again = stored(server)
        assert sorted(again) == list(range(JOBS))
        assert [n for n, ids in again.items() if len(ids) != 1] == []


def test_a_kill_under_submits_of_many_tasks_loses_and_doubles_nothing(system: System) -> None:
    server = system.serve()
    returned: dict[int, str] = {}
    raised: dict[int, errors.StokerError] = {}

    async def submit_all(app: Stoker, numbers: "itertools.count[int]") -> None:
        while (n := next(numbers)) < JOBS:
            try:
                returned[n] = (await app.submit_async("nobody", {"n": n})).id
            except errors.StokerError as error:
                raised[n] = error

    async def main() -> Server:
        numbers = itertools.count()
        async with Stoker(server.url) as app:
            tasks = [asyncio.create_task(submit_all(app, numbers)) for _ in range(32)]
            last = await asyncio.to_thread(
                killed_at, system, server, lambda: len(returned) + len(raised), points()
            )
            await asyncio.gather(*tasks)
            return last

    check(returned, raised, stored(asyncio.run(main())))


def test_a_kill_under_a_pipeline_loses_and_doubles_nothing(system: System) -> None:
    server = system.serve()
    with Stoker(server.url) as app:

        @app.task
        def nobody(n: int) -> None: ...

        jobs: list[JobHandle[None]] = []
        failures: list[errors.SubmitFailure] = []

        def produce() -> None:
            try:
                with app.pipeline(max_pending=50) as pipeline:
                    jobs.extend(pipeline.submit(nobody, n) for n in range(JOBS))
            except errors.PipelineError as error:
                failures.extend(error.failures)

        producer = threading.Thread(target=produce)
        producer.start()
        server = killed_at(system, server, lambda: len(jobs), points())
        producer.join()
        raised = {failure.index: failure.error for failure in failures}
        returned = {n: job.id for n, job in enumerate(jobs) if n not in raised}
        check(returned, raised, stored(server))


def test_the_same_id_of_many_threads_is_one_job(system: System) -> None:
    server = system.serve()
    with Stoker(server.url) as app:
        mine = [new_id() for _ in range(50)]
        got: list[str] = []

        def submit_all() -> None:
            got.extend(app.submit("nobody", {"n": n}, id=id).id for n, id in enumerate(mine))

        threads = [threading.Thread(target=submit_all) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == sorted(mine * THREADS)
        assert stored(server) == {n: [id] for n, id in enumerate(mine)}
        with pytest.raises(errors.InvalidInput, match="id"):
            app.submit("nobody", {"n": "another"}, id=mine[0])
