"""A Python child and what comes out of it, read by a supervisor that is late."""

import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import TextIO

import msgspec
import pytest
from msgspec.structs import astuple

from stoker.executors.leaving import TERMINATED
from stoker.executors.pipe import ChildBatch, OutcomeBatch, Printed, WorkOutcome
from stoker.executors.process import Callbacks, Child, PythonChild
from stoker.ids import new_id
from stoker.wire.frames import Assignment

APP = """
    import asyncio
    import subprocess
    from stoker import Stoker
    app = Stoker()

    @app.task
    def says(text: str) -> str:
        subprocess.run(["echo", text], check=True)
        return text

    @app.task
    def measures(text: str) -> list[float | None]:
        return [None, float(text)]

    @app.task
    async def measures_soon(text: str) -> list[float | None]:
        return [None, float(text)]

    @app.task
    async def trips() -> None:
        helper = asyncio.ensure_future(asyncio.sleep(60))
        helper.cancel()
        await helper

    HEAVY = {"httpx", "httptools", "starlette", "uvicorn", "asyncpg", "apsw", "typer", "rich"}

    def http_modules() -> list[str]:
        import sys
        ours = {name for name in sys.modules if name.startswith("stoker.client.") and "http" in name}
        return sorted(ours | HEAVY & set(sys.modules) | {"stoker.client.transport"} & set(sys.modules))

    @app.task
    def imports() -> list[str]:
        return http_modules()

    @app.task
    async def imports_soon() -> list[str]:
        return http_modules()

    @app.task
    async def naps() -> None:
        print("napping", flush=True)
        await asyncio.sleep(60)
"""


class Ear:
    """Notes what a child says, in the order in which it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, str]] = []
        self.ready = asyncio.Event()
        self.spoken = asyncio.Event()
        self.ended = asyncio.Event()
        self.gone = asyncio.Event()
        self.results: list[WorkOutcome] = []

    def callbacks(self) -> Callbacks:
        return Callbacks(
            ready=lambda child, ready: self.ready.set(),
            results=self._on_results,
            printed=self._on_printed,
            progressed=lambda child, progressed: None,
            exited=lambda child: self.gone.set(),
        )

    def _on_results(self, child: Child, told: OutcomeBatch) -> None:
        completed = [
            WorkOutcome(index, "completed", result, None, *rest)
            for index, result, *rest in zip(*astuple(told)[:6], strict=True)
        ]
        self.results += completed + told.others
        self.ended.set()
        self.heard += [("ended", result.index, "") for result in completed + told.others]

    def _on_printed(self, child: Child, printed: Printed) -> None:
        self.heard.append((printed.stream, printed.index, printed.data.decode()))
        self.spoken.set()


def batch(type: str, *payloads: bytes) -> ChildBatch:
    return ChildBatch(0, Assignment("", 1, type, b""), [new_id() for _ in payloads], list(payloads))


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "saying.py").write_text(dedent(APP))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "saying:app"


@pytest.fixture
def full() -> Iterator[TextIO]:
    """A disk without room."""
    with contextlib.suppress(OSError), Path("/dev/full").open("w", encoding="utf-8") as full:
        yield full


async def test_what_a_subprocess_wrote_is_its_jobs_also_when_it_is_read_after_the_job_ended(app: str) -> None:
    ear = Ear()
    child = PythonChild("test", ear.callbacks(), app=app, max_result_bytes=1000)
    try:
        await asyncio.wait_for(ear.ready.wait(), 20)
        child.send([batch("says", b'{"text":"one"}')])
        while child.shared_state.running()[:2] != (0, False):
            time.sleep(0.01)  # noqa: ASYNC251 - nobody reads meanwhile
        time.sleep(0.1)  # noqa: ASYNC251
        await asyncio.wait_for(ear.ended.wait(), 20)
    finally:
        child.end()
    assert ear.results[0].result == b'"one"'
    assert ear.heard == [("stdout", 0, "one\n"), ("ended", 0, "")]


async def result_of(app: str, type: str, payload: bytes, concurrency: int = 0) -> WorkOutcome:
    """How a child says that one job ended."""
    ear = Ear()
    child = PythonChild("test", ear.callbacks(), app=app, max_result_bytes=1000, concurrency=concurrency)
    try:
        await asyncio.wait_for(ear.ready.wait(), 20)
        child.send([batch(type, payload)])
        await asyncio.wait_for(ear.ended.wait(), 20)
    finally:
        child.end()
    return ear.results[0]


@pytest.mark.parametrize(("type", "concurrency"), [("measures", 0), ("measures_soon", 10)])
@pytest.mark.parametrize("text", ["nan", "-inf"])
async def test_a_result_with_a_float_that_json_does_not_have_is_no_result(
    app: str, type: str, concurrency: int, text: str
) -> None:
    ended = await result_of(app, type, msgspec.json.encode({"text": text}), concurrency)
    assert (ended.kind, ended.result) == ("invalid", None)
    assert ended.error is not None
    told = msgspec.json.decode(ended.error)
    assert told["type"] == "result_not_json"
    assert "JSON has no NaN and no infinity" in told["message"]


@pytest.mark.parametrize(("type", "concurrency"), [("imports", 0), ("imports_soon", 10)])
async def test_a_child_that_runs_a_job_has_imported_no_http_client(
    app: str, type: str, concurrency: int
) -> None:
    ended = await result_of(app, type, b"{}", concurrency)
    assert (ended.kind, ended.result) == ("completed", b"[]")


async def test_a_task_that_trips_over_its_own_cancel_has_failed_and_was_not_cancelled(app: str) -> None:
    ended = await result_of(app, "trips", b"{}", concurrency=10)
    assert ended.kind == "error"
    assert ended.error is not None
    assert msgspec.json.decode(ended.error)["type"] == "CancelledError"


async def test_a_batch_is_run_in_order_and_each_job_is_told_apart(app: str) -> None:
    ear = Ear()
    child = PythonChild("test", ear.callbacks(), app=app, max_result_bytes=1000)
    texts = ["1", "nan", "2", "3"]
    try:
        await asyncio.wait_for(ear.ready.wait(), 20)
        child.send([batch("measures", *[msgspec.json.encode({"text": text}) for text in texts])])
        while len(ear.results) < len(texts):
            ear.ended.clear()
            await asyncio.wait_for(ear.ended.wait(), 20)
    finally:
        child.end()
    found = sorted(ear.results, key=lambda result: result.index)
    assert [(result.kind, result.result) for result in found] == [
        ("completed", b"[null,1.0]"),
        ("invalid", None),
        ("completed", b"[null,2.0]"),
        ("completed", b"[null,3.0]"),
    ]
    assert all(b.started is not None and a.finished <= b.started for a, b in pairwise(found))
    assert child.jobs_taken == len(texts)


@contextlib.asynccontextmanager
async def napping(app: str) -> AsyncIterator[tuple[PythonChild, Ear]]:
    """An async child with a task that has begun to nap."""
    ear = Ear()
    child = PythonChild("test", ear.callbacks(), app=app, max_result_bytes=1000, concurrency=10)
    try:
        await asyncio.wait_for(ear.ready.wait(), 20)
        child.send([batch("naps", b"{}")])
        await asyncio.wait_for(ear.spoken.wait(), 20)
        yield child, ear
    finally:
        child.end()


async def test_an_async_task_that_is_cancelled_ends_as_cancelled(app: str) -> None:
    async with napping(app) as (child, ear):
        child.cancel(0)
        await asyncio.wait_for(ear.ended.wait(), 20)
    assert ear.results[0].kind == "cancelled"


async def test_what_runs_in_an_async_child_that_is_told_to_end_has_no_end_of_its_own(app: str) -> None:
    async with napping(app) as (child, ear):
        child.terminate()
        await asyncio.wait_for(ear.gone.wait(), 20)
    assert ear.results == []
    assert child.returncode == TERMINATED


async def test_somebody_who_never_stops_talking_does_not_stop_the_supervisor(
    app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear()
    child = PythonChild("test", ear.callbacks(), app=app, max_result_bytes=1000)
    try:
        await asyncio.wait_for(ear.ready.wait(), 20)
        read = child._read
        strays = Counter[int]()

        def always_more(fd: int) -> int | None:
            if fd == child._fd:
                return read(fd)
            read(fd)
            strays[fd] += 1
            assert strays[fd] < 100, "it reads on and on"
            return 2

        monkeypatch.setattr(child, "_read", always_more)
        child.send([batch("says", b'{"text":"one"}')])
        await asyncio.wait_for(ear.ended.wait(), 20)
    finally:
        child.end()
    assert ear.heard[-1] == ("ended", 0, "")


async def test_what_belongs_to_no_job_is_lost_when_the_workers_log_is_full_and_nothing_else(
    app: str, tmp_path: Path, full: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "saying.py").write_text(dedent(APP) + "import os\nos.write(2, b'imported\\n')\n")
    monkeypatch.setattr(sys, "stderr", full)
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    ear = Ear()
    child = PythonChild("test", ear.callbacks(), app=app, max_result_bytes=1000)
    try:
        await asyncio.wait_for(ear.ready.wait(), 20)
        child.send([batch("says", b'{"text":"one"}')])
        await asyncio.wait_for(ear.ended.wait(), 20)
    finally:
        child.end()
    assert ear.results[0].result == b'"one"'
    assert errors == []
