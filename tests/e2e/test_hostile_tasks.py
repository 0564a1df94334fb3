"""Tasks that hide processes or write where they should not: nothing of them stays, and no other job notices."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.ids import new_id
from tests.e2e.system import Server, System, eventually, is_alive
from tests.support.portable import PORTABLE, linux_only

HIDE = """
import os, sys
if os.fork() == 0:
    os.setsid()
    pid = os.spawnve(os.P_NOWAIT, sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], ENVIRON)
    fd = os.open(os.environ["E2E_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"hidden {os.environ['STOKER_QUEUE']} {pid}\\n".encode())
    os._exit(0)
os.wait()
"""
SCRIBBLE = """
import os
for fd in range(3, 1024):
    try:
        os.write(fd, b"garbage")
    except OSError:
        pass
print('"done"')
"""
EMPTIED = [
    pytest.param(
        True,
        marks=linux_only("a process is known by its environment alone, which it may empty"),
        id="empty environment",
    ),
    *([pytest.param(False, id="own environment")] if PORTABLE else []),
]
GARBAGE = ["garbage", "\x10\x00\x00\x00", "\x00\x00\x00\x01", "\xff" * 5000]


@pytest.fixture
def queue(town: System) -> Iterator[str]:
    """A queue of the test's own; what it hid is ended at last, if nobody else did."""
    name = f"q-{new_id()[-12:]}"
    yield name
    for pid in town.journal.pids(name, "hidden"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def hidden_by(town: System, queue: str, count: int = 1) -> list[int]:
    pids = eventually(lambda: found if len(found := town.journal.pids(queue, "hidden")) == count else None)
    assert all(map(is_alive, pids))
    return pids


def all_gone(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


@pytest.mark.parametrize("emptied", EMPTIED)
@pytest.mark.parametrize("type", ["hide", "hide_later"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "told to leave"])
def test_a_hidden_process_does_not_survive_its_worker(
    town: System, server: Server, queue: str, number: int, type: str, emptied: bool
) -> None:
    worker = town.worker(server, "--queues", queue, STOKER_SHUTDOWN_GRACE_SEC=0)
    payload = {"tag": queue, "seconds": 60, "emptied": emptied}
    server.submit(type, payload, queue=queue, max_attempts=1)
    pids = hidden_by(town, queue)
    worker.signal(number)
    worker.exit_code()
    eventually(lambda: all_gone(pids), 2, "the hidden process to be gone")


@pytest.mark.parametrize("emptied", EMPTIED)
def test_a_hidden_process_does_not_survive_the_process_of_its_job(
    town: System, server: Server, queue: str, emptied: bool
) -> None:
    worker = town.worker(server, "--queues", queue, threads=2)
    alike = {"queue": queue, "max_attempts": 1}
    neighbour = server.submit("hide", {"tag": f"{queue}-2", "seconds": 5, "emptied": emptied}, **alike)
    server.started(neighbour["id"])
    job = server.submit("hide", {"tag": queue, "seconds": 0.3, "code": 3, "emptied": emptied}, **alike)
    pids = hidden_by(town, queue)
    assert server.ended(job["id"])["error"]["type"] == "crash"
    eventually(lambda: all_gone(pids), 2, "the hidden process to be gone")
    others = hidden_by(town, f"{queue}-2")
    assert server.ended(neighbour["id"])["status"] == "completed", "that of another child was left alone"
    worker.kill()
    eventually(lambda: all_gone(others), 2, "that of the other child to be gone with the worker")


@pytest.mark.parametrize("emptied", EMPTIED)
def test_a_hidden_process_does_not_survive_its_command(
    town: System, server: Server, queue: str, emptied: bool
) -> None:
    type = f"hiding-{queue}"
    program = HIDE.replace("ENVIRON", "{}" if emptied else "dict(os.environ)")
    commands = {type: [sys.executable, "-c", program]}
    worker = town.worker(server, "--queues", queue, app=None, STOKER_COMMANDS=json.dumps(commands))
    job = server.submit(type, None, queue=queue)
    assert server.ended(job["id"])["status"] == "completed"
    (pid,) = town.journal.pids(queue, "hidden")
    eventually(lambda: not is_alive(pid), 2, "the hidden process to be gone")
    worker.kill()


@pytest.mark.parametrize("data", GARBAGE, ids=["text", "short length", "long length", "much"])
def test_garbage_in_every_descriptor_harms_no_other_job(
    town: System, server: Server, queue: str, data: str, tmp_path: Path
) -> None:
    type = f"scribbling-{queue}"
    commands = {type: [sys.executable, "-c", SCRIBBLE]}
    worker = town.worker(server, "--queues", queue, threads=2, STOKER_COMMANDS=json.dumps(commands))
    alike = {"queue": queue, "max_attempts": 1}
    slow = [server.submit("add_later", {"x": n, "y": 1}, **alike) for n in range(3)] + [
        server.submit("nap", {"seconds": 0.5}, **alike)
    ]
    kinds = ("scribble", "scribble_later", type)
    scribblers = [server.submit(kind, {"tag": queue, "data": data}, **alike) for kind in kinds * 3]
    notes = [server.submit("note", {"n": n, "tag": queue}, **alike) for n in range(40)]
    later = [server.submit("add_later", {"x": n, "y": 1}, **alike) for n in range(10)]
    for job in slow + notes + later:
        assert server.ended(job["id"])["status"] == "completed", worker.output
    for job in scribblers:
        server.ended(job["id"])
    assert worker.running
    assert len(town.journal.of(queue, "ran")) == 40, "each ran once"
    worker.kill()
