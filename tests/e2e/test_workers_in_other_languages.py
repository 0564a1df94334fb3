"""The workers of `examples/workers`, in Node and in Bash, run jobs of a real system."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.system import Server, eventually

EXAMPLES = Path(__file__).parents[2] / "examples" / "workers"
MAX_LINES = 100


class Language:
    """How one of the workers is started, and what it can do."""

    def __init__(self, command: list[str], needs: list[str], type: str, payload: Any, result: Any) -> None:
        self.command = command
        self.needs = needs
        self.type = type
        self.payload = payload
        self.result = result


NODE = Language(["node", str(EXAMPLES / "worker.mjs")], ["node"], "shout", "hello", "HELLO")
BASH = Language([str(EXAMPLES / "worker.sh")], ["bash", "curl", "jq"], "count_words", "three small words", 3)
LANGUAGES = pytest.mark.parametrize("language", [NODE, BASH], ids=["node", "bash"])


@contextmanager
def started(language: Language, server: Server, queue: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of this language that serves the queue, until the end of the block."""
    missing = [program for program in language.needs if shutil.which(program) is None]
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"needs {', '.join(missing)}")
    assert not missing
    environ = {**os.environ, "STOKER_API_URL": server.url, "QUEUES": queue}
    with subprocess.Popen(language.command, env=environ, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ended(server: Server, id: str) -> dict[str, Any]:
    return eventually(lambda: job if (job := server.job(id))["status"] in ("completed", "failed") else None)


@LANGUAGES
def test_it_runs_jobs_and_reports_their_results(language: Language, server: Server) -> None:
    with started(language, server, language.type):
        jobs = [server.submit(language.type, language.payload, queue=language.type) for _ in range(5)]
        for job in jobs:
            assert ended(server, job["id"])["result"] == language.result


def test_an_error_in_node_fails_the_job_with_its_message(server: Server) -> None:
    with started(NODE, server, "node-errors"):
        job = server.submit("pause", None, queue="node-errors", max_attempts=1)
        error = ended(server, job["id"])["error"]
        assert error["type"] == "TypeError"
        assert "worker.mjs" in error["traceback"]


def test_an_error_in_bash_fails_the_job_with_its_message(server: Server) -> None:
    with started(BASH, server, "bash-errors"):
        job = server.submit("count_words", {"no": "text"}, queue="bash-errors", max_attempts=1)
        assert "the payload must be text" in ended(server, job["id"])["error"]["message"]


def test_a_job_in_node_ends_at_its_time_limit(server: Server) -> None:
    with started(NODE, server, "node-limits"):
        job = server.submit("pause", {"seconds": 60}, queue="node-limits", max_attempts=1, timeout_sec=0.2)
        assert ended(server, job["id"])["status"] == "failed"


@LANGUAGES
def test_it_leaves_when_it_is_told_to(language: Language, server: Server) -> None:
    with started(language, server, "leaving") as process:
        job = server.submit(language.type, language.payload, queue="leaving")
        ended(server, job["id"])
        process.terminate()
        process.wait(timeout=20)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("worker.*")), ids=lambda path: path.name)
def test_an_example_is_short_enough_to_read_at_once(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < MAX_LINES
