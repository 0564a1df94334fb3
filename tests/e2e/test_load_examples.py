"""The scripts in `examples/load` and the README's example, against a real system."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker import Stoker
from tests.docs.test_howto import read_commands, run_commands
from tests.e2e.system import Server, System, free_port

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
README_BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)

TYPED_BY_A_READER = """
import ast, asyncio, inspect, sys

code = compile(sys.stdin.read(), "README.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {}
waiting = eval(code, names)
if inspect.iscoroutine(waiting):
    asyncio.run(waiting)
print(names["job"].result(timeout=30))
"""


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("mill")) as mill:
        yield mill


@pytest.fixture(scope="module")
def up(mill: System) -> Server:
    first, _, _, more = README_BLOCKS
    (mill.folder / "tasks.py").write_text(first + more, encoding="utf-8")
    return mill.up("--threads", 4, "--app", "tasks:app", STOKER_RETRY_BACKOFF_BASE_SEC=1)


def run(mill: System, script: str, *args: object, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / script), *map(str, args)],
        env=mill.environ(settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def tag_of(done: subprocess.CompletedProcess[str]) -> str:
    found = re.search(r"named (load-[a-z-]+-[0-9a-f]{8})", done.stdout)
    assert found, done.stdout + done.stderr
    return found[1]


def test_high_volume_in_waves(mill: System, up: Server) -> None:
    done = run(mill, "load/high_volume.py", "--jobs", 60, "--wave", 25, "--url", up.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 completed; 0 after a retry" in done.stdout
    assert re.search(r"[\d.]+ s, [\d.]+ jobs/s", done.stdout)
    assert len(re.findall(r"p50 [\d.]+ ms, p95 [\d.]+ ms", done.stdout)) == 2
    assert "60/60" in done.stdout
    results = [job["result"]["number"] for job in up.jobs(name=tag_of(done))]
    assert sorted(results) == list(range(60))


def test_failing_ends_as_planned_and_leaves_dead_letters(mill: System, up: Server) -> None:
    done = run(mill, "load/failing.py", "--jobs", 12, STOKER_API_URL=up.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 completed, 4 failed; 4 after a retry" in done.stdout
    assert up.get("/dlq", name=tag_of(done))["total"] == 4


@pytest.mark.parametrize("script", ["cpu", "io", "network"])
def test_the_others_run(mill: System, up: Server, script: str) -> None:
    done = run(mill, f"load/{script}.py", "--jobs", 4, "--wave", 2, "--size", 3, "--url", up.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 completed; 0 after a retry" in done.stdout


def test_what_is_not_done_in_time_is_told(mill: System, up: Server) -> None:
    """A job that waits for its retry is neither lost nor done."""
    done = run(mill, "load/failing.py", "--jobs", 3, "--timeout", 0.5, "--url", up.url)
    assert done.returncode == 1
    assert "not done within 0.5 s" in done.stdout


def test_without_a_coordinator_it_says_so(mill: System) -> None:
    done = run(mill, "load/cpu.py", "--url", f"http://127.0.0.1:{free_port()}")
    assert (done.returncode, "is it running" in done.stdout) == (3, True), done.stdout + done.stderr


def test_the_app_of_the_readme_runs(mill: System, up: Server) -> None:
    done = run(mill, "tasks.py", STOKER_API_URL=up.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == ["3", "hello", "you"]


def typed(mill: System, up: Server, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TYPED_BY_A_READER],
        input=code,
        cwd=mill.folder,
        env=mill.environ({"STOKER_API_URL": up.url}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_first_screen_of_the_readme_has_the_promise_the_picture_the_command_and_the_code() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    screen = "\n".join(readme.splitlines()[:45])
    code = README_BLOCKS[0]
    assert "Nothing that was acknowledged is ever lost" in screen
    assert "── submit ──►" in screen
    assert code in screen
    assert len([line for line in code.splitlines() if line]) == 12
    (command,) = re.findall(r"^\$ (make .*?) *#", screen, re.MULTILINE)
    done = subprocess.run(
        [*command.split(), "-n"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert ".venv/bin/stoker up --app tasks:app" in done.stdout.splitlines()


def test_the_first_code_of_the_readme_runs_as_a_script(mill: System, up: Server) -> None:
    done = subprocess.run(
        [sys.executable, "tasks.py"],
        cwd=mill.folder,
        env=mill.environ({"STOKER_API_URL": up.url}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[1:]) == (0, ["3"]), done.stderr


def test_the_python_of_the_readme_runs_as_it_stands(mill: System, up: Server) -> None:
    tasks, calls, many, _ = README_BLOCKS
    assert "from tasks import" in calls
    done = typed(mill, up, calls)
    assert (done.returncode, done.stdout.split()) == (0, ["3"]), done.stderr
    done = typed(mill, up, f"from tasks import add\n{many}")
    results = {int(line.split()[-1]) for line in done.stdout.splitlines()}
    assert (done.returncode, results) == (0, set(range(0, 20_000, 2))), done.stderr
    assert tasks in (EXAMPLES / "tasks.py").read_text("utf-8").replace('"""\n\n', "# tasks.py\n", 1)
    with Stoker(up.url) as client:
        resized = client.submit("resize_all", {"paths": ["a.png", "b.png"]})
        assert resized.result(timeout=30) == 1
        assert (resized.info.thread_demand, resized.info.memory_mb) == (4, 2_000)
        said = "".join(entry.text for entry in resized.logs(follow=True))
        assert said == "resizing a.png\nresizing b.png\n"


def test_the_commands_of_the_readme_run(mill: System, up: Server) -> None:
    """Those with curl and `stoker`, but for those that start servers. Ids are a reader's own."""
    typed = read_commands((ROOT / "README.md").read_text("utf-8").replace(".venv/bin/", ""))
    ours = [line for line in typed if re.match(r"curl |stoker (?!serve)", line)]
    assert len(ours) > 10
    job = up.submit("echo", "hello")["id"]
    named = [line.replace("/jobs/ID", f"/jobs/{job}").replace(" 6b8f2a11", f" {job}") for line in ours]
    run_commands(mill, named, up.url)
