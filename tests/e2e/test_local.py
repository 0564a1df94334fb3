"""Scripts that use `Stoker.local()`, as processes: whatever ends them, nothing of them is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.system import descendants, eventually, is_alive

SCRIPT = """
import sys, threading
import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it
from stoker import Stoker, current_job

with Stoker.local(threads=2) as app:

    @app.task
    def double(x: int) -> int:
        return 2 * x

    @app.task
    async def name() -> str:
        return current_job().type

    assert double.submit_many(range(50)).results(timeout=20) == [2 * x for x in range(50)]
    assert name.submit().result(timeout=20) == "name"
    print(app.folder, flush=True)
    {then}
print("after the block", flush=True)
"""


class Script:
    """A script that has run its first jobs."""

    def __init__(self, folder: Path, then: str) -> None:
        path = folder / "script.py"
        path.write_text(SCRIPT.replace("{then}", then))
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            cwd=folder,
            env={
                **os.environ,
                "TMPDIR": str(folder),
                "DATABASE_URL": "postgresql://nowhere",
                "API_PORT": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.data = Path(self.process.stdout.readline().strip())
        self.family = descendants(self.process.pid)

    def is_gone(self) -> bool:
        return not self.data.exists() and not any(map(is_alive, self.family))


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[list[Script]]:
    started: list[Script] = []
    yield started
    for script in started:
        script.process.kill()
        script.process.communicate()


def test_a_script_runs_its_own_tasks_and_cleans_up(tmp_path: Path, scripts: list[Script]) -> None:
    script = Script(tmp_path, "pass")
    scripts.append(script)
    out, err = script.process.communicate(timeout=30)
    assert (script.process.returncode, out, err) == (0, "after the block\n", "")
    assert script.is_gone()
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


WAITS = "double.submit(1); threading.Event().wait()"


@pytest.mark.parametrize(
    ("then", "number"),
    [(WAITS, signal.SIGINT), (WAITS, signal.SIGKILL), (WAITS, signal.SIGTERM), ("sys.exit(3)", None)],
    ids=["ctrl-c", "killed", "terminated", "exit"],
)
def test_whatever_ends_a_script_ends_what_it_started(
    tmp_path: Path, scripts: list[Script], then: str, number: signal.Signals | None
) -> None:
    script = Script(tmp_path, then)
    scripts.append(script)
    if number is not None:
        assert script.data.is_dir()
        assert script.family
        script.process.send_signal(number)
    out, err = script.process.communicate(timeout=30)
    assert "after the block" not in out
    if number is signal.SIGINT:
        assert "KeyboardInterrupt" in err
    eventually(script.is_gone, 10, "nothing of the script to be left")


def test_a_notebook_without_a_block_is_cleaned_up_at_the_end_of_its_process(tmp_path: Path) -> None:
    code = (
        "from stoker import Stoker\n"
        "app = Stoker.local(threads=1).start()\n"
        "@app.task\n"
        "def cell(): return 1\n"
        "assert cell.submit().result(timeout=20) == 1\n"
        "@app.task(name='cell')\n"
        "def cell(): return 2\n"
        "assert cell.submit().result(timeout=20) == 2\n"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.iterdir())
