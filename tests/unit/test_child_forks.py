"""A task that forks: the copy has no say in its child, whatever it does; and no thread keeps a child from leaving."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from stoker.executors.leaving import TERMINATED
from stoker.executors.pipe import ChildBatch, WorkOutcome
from stoker.executors.process import PythonChild
from stoker.ids import new_id
from stoker.wire.frames import Assignment
from tests.unit.test_python_child import Ear

APP = """
    import asyncio, atexit, ctypes, multiprocessing, os, sys, threading, time
    from stoker import Stoker, cancelled, progress
    app = Stoker()

    def note(path, *words):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
        os.close(fd)

    def square(n):
        print("squaring", n)
        progress(n)
        return n * n + int(cancelled())

    @app.task
    def returns(number: int) -> list[int]:
        os.fork()
        return [number, os.getpid()]

    @app.task
    def raises(number: int) -> list[int]:
        if os.fork() == 0:
            raise ValueError("only in the copy")
        return [number, os.getpid()]

    @app.task
    def plain(number: int) -> list[int]:
        return [number, os.getpid()]

    @app.task
    def waits(code: int | None) -> int:
        pid = os.fork()
        if pid == 0:
            print("the copy at work")
            progress(1)
            if code is None:
                return 1
            sys.exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @app.task
    def inherits() -> list[str]:
        reading, writing = os.pipe()
        if os.fork() == 0:
            names = []
            for fd in range(100):
                if os.path.lexists(f"/proc/self/fd/{fd}"):
                    names.append(os.readlink(f"/proc/self/fd/{fd}"))
            with open("/proc/self/maps") as maps:
                names += [line for line in maps if "rw-s" in line]
            os.write(writing, "\\n".join(names).encode())
            os._exit(0)
        os.wait()
        return os.read(reading, 100_000).decode().splitlines()

    @app.task
    def pools() -> list[int]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(square, range(50))

    @app.task
    def is_held(seconds: float) -> None:
        if ctypes.CDLL(None).fork() == 0:  # Python is not told
            os.setsid()
            time.sleep(seconds)
            os._exit(0)
        os._exit(5)

    @app.task
    def exits(code: int) -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()
        sys.exit(code)

    @app.task
    def lingers(path: str) -> None:
        atexit.register(note, path, "at exit")
        threading.Thread(target=time.sleep, args=(600,)).start()
        print("lingering")
        try:
            time.sleep(600)
        finally:
            note(path, "finally")

    @app.task
    async def lingers_soon(path: str) -> None:
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
        print("lingering")
        try:
            await asyncio.sleep(600)
        finally:
            note(path, "finally")

    @app.task
    async def returns_soon(number: int) -> list[int]:
        os.fork()
        return [number, os.getpid()]

    @app.task
    async def awaits_soon(path: str, number: int) -> list[int]:
        pid = os.fork()
        await asyncio.sleep(0.05)
        note(path, "after", os.getpid())
        return [number, os.getpid()]

    @app.task
    async def neighbour(path: str, number: int) -> list[int]:
        for _ in range(20):
            await asyncio.sleep(0.01)
        note(path, "neighbour", number)
        return [number, os.getpid()]

    async def leaves():
        sys.exit(3)

    @app.task
    async def exits_beside() -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()
        await asyncio.create_task(leaves())
"""


class Running:
    """A child of the app, and its jobs in the order in which they were sent."""

    def __init__(self, child: PythonChild, ear: Ear) -> None:
        self.child, self.ear = child, ear
        self._sent = 0

    def send(self, type: str, *payloads: dict[str, Any]) -> None:
        encoded = [msgspec.json.encode(payload) for payload in payloads]
        batch = ChildBatch(self._sent, Assignment("", 1, type, b""), [new_id() for _ in payloads], encoded)
        self._sent += len(payloads)
        self.child.send([batch])

    async def ended(self, count: int) -> list[WorkOutcome]:
        """That many results, by index; and no more of them come."""
        async with asyncio.timeout(20):
            while len(self.ear.results) < count:
                self.ear.ended.clear()
                await self.ear.ended.wait()
        await asyncio.sleep(0.1)
        found = sorted(self.ear.results, key=lambda result: result.index)
        assert [result.index for result in found] == list(range(count))
        return found

    async def values(self, count: int) -> list[Any]:
        results = await self.ended(count)
        assert [result.kind for result in results] == ["completed"] * count, results
        return [msgspec.json.decode(result.result or b"") for result in results]

    async def gone(self, within: float) -> None:
        async with asyncio.timeout(within):
            while not self.ear.gone.is_set():
                self.child.poll()
                await asyncio.sleep(0.01)

    def copies(self) -> list[int]:
        """Processes that the child started and that still run."""
        path = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children")
        return [
            int(pid)
            for pid in path.read_text(encoding="ascii").split()
            if ") Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        ]


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, concurrency: int = 0
) -> AsyncIterator[Running]:
    (tmp_path / "forking.py").write_text(dedent(APP))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ear = Ear()
    child = PythonChild(
        "test", ear.callbacks(), app="forking:app", max_result_bytes=100_000, concurrency=concurrency
    )
    try:
        await asyncio.wait_for(ear.ready.wait(), 20)
        yield Running(child, ear)
    finally:
        child.end()


@pytest.mark.parametrize("type", ["returns", "raises"])
async def test_a_copy_that_comes_back_leaves_and_its_child_goes_on(
    type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as it:
        it.send(type, *[{"number": number} for number in range(4)])
        await it.values(4)
        it.send("plain", *[{"number": number} for number in range(4, 40)])
        values = await it.values(40)
        assert values == [[number, it.child.pid] for number in range(40)], "all by the child itself"
        assert it.copies() == []


@pytest.mark.parametrize(("code", "seen"), [(None, 0), (0, 0), (7, 7)])
async def test_a_task_can_wait_for_its_copy_and_sees_how_it_left(
    code: int | None, seen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as it:
        it.send("waits", {"code": code})
        assert await it.values(1) == [seen]
        assert ("stdout", 0, "the copy at work\n") in it.ear.heard


async def test_a_copy_has_neither_the_pipe_nor_the_shared_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as it:
        it.send("inherits", {})
        ((*names,),) = await it.values(1)
    assert not [name for name in names if name.startswith("socket:") or "rw-s" in name]


async def test_a_pool_of_forked_processes_works_and_what_it_prints_is_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as it:
        it.send("pools", {})
        assert await it.values(1) == [[n * n for n in range(50)]]
        said = "".join(text for stream, index, text in it.ear.heard if (stream, index) == ("stdout", 0))
    assert sorted(said.split("\n")) == sorted([*[f"squaring {n}" for n in range(50)], ""])


async def test_a_child_whose_pipe_is_held_after_its_death_is_seen_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as it:
        it.send("is_held", {"seconds": 5})
        began = time.monotonic()
        await it.gone(4)
        assert time.monotonic() - began < 4
        assert it.child.returncode == 5


async def test_exit_in_a_task_fails_the_job_whatever_its_code_and_whatever_threads_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as it:
        it.send("exits", {"code": 0}, {"code": 3}, {"code": TERMINATED})
        it.send("plain", {"number": 3})
        results = await it.ended(4)
    assert [result.kind for result in results] == ["error", "error", "error", "completed"]


async def test_exit_beside_an_async_task_fails_that_task_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    async with running(tmp_path, monkeypatch, concurrency=10) as it:
        it.send("neighbour", {"path": str(journal), "number": 0})
        it.send("exits_beside", {})
        results = await it.ended(2)
        assert [result.kind for result in results] == ["completed", "error"]
        assert not it.ear.gone.is_set()


@pytest.mark.parametrize(("type", "concurrency"), [("lingers", 0), ("lingers_soon", 10)])
async def test_a_child_that_is_told_to_end_waits_for_no_thread(
    type: str, concurrency: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    async with running(tmp_path, monkeypatch, concurrency) as it:
        it.send(type, {"path": str(journal)})
        await asyncio.wait_for(it.ear.spoken.wait(), 20)
        it.child.terminate()
        await it.gone(5)
        assert it.child.returncode == TERMINATED
    expected = ["finally", "at exit"] if type == "lingers" else ["finally"]
    assert journal.read_text(encoding="utf-8").splitlines() == expected


async def test_a_copy_of_an_async_child_leaves_and_runs_no_neighbour_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    where = {"path": str(journal)}
    async with running(tmp_path, monkeypatch, concurrency=10) as it:
        it.send("neighbour", {**where, "number": 0})
        it.send("returns_soon", {"number": 1}, {"number": 2})
        it.send("awaits_soon", {**where, "number": 3})
        it.send("neighbour", {**where, "number": 4})
        values = await it.values(5)
        assert values == [[number, it.child.pid] for number in range(5)]
        assert it.copies() == []
    lines = journal.read_text(encoding="utf-8").splitlines()
    assert sorted(lines) == sorted([f"after {it.child.pid}", "neighbour 0", "neighbour 4"])
