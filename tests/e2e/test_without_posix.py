"""A system without `fcntl`, `resource`, `pwd`, `uvloop`, fork and much else, as Windows is: clients and coordinators work,
and a worker says where it can run instead."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.system import Program, Server, System
from tests.support import no_posix

SDK = """
import os, sys
from stoker import Stoker

app = Stoker(sys.argv[1])

@app.task
def add(x: int, y: int) -> int:
    return x + y

job = add.submit(1, y=2)
assert job.result(timeout=30) == 3, "a worker on another system ran it"
assert [job.result(timeout=30) for job in add.submit_many([(n, n) for n in range(5)])] == [0, 2, 4, 6, 8]
assert not hasattr(os, "fork"), "it is hidden"
print("all well")
"""
COMMANDS = """
import os, sys
from stoker.cli.main import app

url, job, held = sys.argv[1:]
assert not hasattr(os, "fork"), "it is hidden"
for words in (
    ["jobs"], ["job", job], ["attempts", job], ["logs", job], ["why", held], ["cancel", held], ["stats"], ["workers"],
    ["queues"], ["types"], ["dlq"], ["doctor"],
):
    code = app([*words, "--url", url], prog_name="stoker", standalone_mode=False)
    assert not code, (words, code)
print("all well")
"""


class Bare:
    """A coordinator without these modules, a way to run commands like it, and a worker on a whole Python."""

    def __init__(self, folder: Path) -> None:
        self.system = System(folder)
        self.path = str(no_posix.write(folder / "site"))
        self.server: Server = self.system.serve(PYTHONPATH=self.path)

    def run(self, *args: object, url: bool = True, **settings: object) -> str:
        """A client command to its end; what it printed."""
        where = ("--url", self.server.url) if url else ()
        done = self.system.run(*args, *where, PYTHONPATH=self.path, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    def python(self, program: str, *args: object) -> str:
        """A program to its end; what it wrote."""
        folder = self.system.folder
        env = self.system.environ({"PYTHONPATH": self.path})
        argv = [sys.executable, "-c", program, *args]
        done = Program(argv, folder=folder, env=env, log=self.system._log("client"))
        assert done.exit_code(60) == 0, done.output
        return done.output


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    bare = Bare(tmp_path_factory.mktemp("bare"))
    with bare.system:
        bare.system.worker(bare.server)
        yield bare


def test_client_commands_work_without_posix(bare: Bare) -> None:
    assert bare.run("submit", "echo", '"hello"', "--wait").strip() == '"hello"'
    job = bare.server.ended(bare.server.submit("echo", 1)["id"])["id"]
    held = bare.server.submit("nobody-runs-this")["id"]
    said = bare.python(COMMANDS, bare.server.url, job, held)
    assert "all well" in said
    assert said.count(job) >= 2, "in the list, and by itself"
    assert bare.server.status(held) == "cancelled"


def test_what_a_terminal_cannot_show_does_not_break_a_command(bare: Bare) -> None:
    bare.server.ended(bare.server.submit("echo", 1, name="→ ✓ 日本")["id"])
    assert bare.run("jobs", PYTHONIOENCODING="cp1252")


def test_the_sdk_works_without_posix(bare: Bare) -> None:
    assert "all well" in bare.python(SDK, bare.server.url)


def test_a_coordinator_without_posix_owns_its_file_and_leaves_when_told(bare: Bare) -> None:
    with System(bare.system.folder / "other") as system:
        server = system.serve(PYTHONPATH=bare.path)
        job = server.submit("echo", 1)
        second = system.start("serve", "--port", 0, "--database", system.database, PYTHONPATH=bare.path)
        assert second.exit_code(30) == 1
        assert "is in use by another coordinator" in second.output
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert "coordinator_stopped" in server.output
        again = system.serve(PYTHONPATH=bare.path)
        assert again.status(job["id"]) == "queued"
        exported = system.folder / "all.jsonl"
        again.kill()
        done = system.run("export", "--database", system.database, "--output", exported, PYTHONPATH=bare.path)
        assert done.returncode == 0, done.stderr
        assert job["id"].encode() in exported.read_bytes()


@pytest.mark.parametrize(
    "words", [["worker"], ["up"], ["autoscale", "--mode", "process"]], ids=lambda words: words[0]
)
def test_a_worker_says_where_it_can_run_instead(bare: Bare, words: list[str]) -> None:
    done = bare.system.run(*words, PYTHONPATH=bare.path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WSL or in a container" in done.stderr
    assert "Traceback" not in done.stderr
