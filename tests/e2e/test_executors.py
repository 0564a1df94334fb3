"""Workers that run things: threads that are real, async tasks, commands, foreign runners, limits, output."""

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.system import Server, System, eventually
from tests.support.portable import PORTABLE

RUNNER = """\
#!{python}
import argparse, json, sys
parser = argparse.ArgumentParser()
for name in ("--job-id", "--type", "--payload", "--threads"):
    parser.add_argument(name)
parser.add_argument("--types", action="store_true")
options = parser.parse_args()
if options.types:
    print("stoker-runner 1 threads json\\nshout")
    sys.exit(0)
text = sys.stdin.read() if options.payload == "-" else options.payload
payload = json.loads(text)
if payload is None:
    print(json.dumps({{"type": "no_text", "message": "give me text"}}), file=sys.stderr)
    sys.exit(3)
print(json.dumps({{"shouted": payload.upper()[:20], "length": len(payload), "threads": options.threads}}))
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, Server]]:
    """A coordinator with one worker of 4 threads that knows commands and the tasks of `run_app`."""
    with System(tmp_path_factory.mktemp("shop")) as system:
        (system.folder / "run_app.py").write_text(APP)
        server = system.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=3, STOKER_RETRY_BACKOFF_BASE_SEC=1)
        commands = {
            "count": [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"],
            "greet": [sys.executable, "-c", "import os; print('hello', os.environ['STOKER_THREADS'])"],
            "broken": [sys.executable, "-c", "import sys; print('oh no', file=sys.stderr); sys.exit(7)"],
            "missing": ["/nonexistent/program"],
            "slow": [sys.executable, "-c", "import time; time.sleep(60)"],
        }
        system.worker(server, app="run_app:app", threads=4, STOKER_COMMANDS=json.dumps(commands))
        yield system, server


APP = textwrap.dedent(
    """
    import asyncio, os, subprocess, sys, time
    from stoker import Stoker, cancelled, current_job, progress

    app = Stoker()

    @app.task
    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @app.task
    async def fails_alone() -> None:
        raise ValueError("only me")

    @app.task
    def grab(mb: int, seconds: float = 0) -> int:
        held = bytearray(mb * 1024 * 1024)
        time.sleep(seconds)
        return len(held)

    @app.task
    def listens() -> str:
        done = 0
        while not cancelled():
            done += 1
            progress(done, 1000, "working")
            time.sleep(0.02)
        open(os.environ["E2E_JOURNAL"], "a").write("tidied up\\n")
        return "stopped"

    @app.task
    def talks(lines: int) -> int:
        for n in range(lines):
            print(f"line {n} of many, with some words to fill it up")
        print("to stderr", file=sys.stderr)
        subprocess.run(["echo", "from a subprocess"], check=True)
        return lines

    @app.task
    def occupied(seconds: float, journal: str) -> list[int]:
        job = current_job()
        line = f"{os.getppid()} {job.threads} {time.monotonic()} "
        time.sleep(seconds)
        fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, (line + f"{time.monotonic()}\\n").encode())
        os.close(fd)
        return [job.threads, int(os.environ["STOKER_THREADS"]), int(os.environ["OMP_NUM_THREADS"])]
    """
)


def test_a_command_gets_the_payload_on_stdin_and_its_output_is_the_result(
    shop: tuple[System, Server],
) -> None:
    _, server = shop
    assert server.ended(server.submit("count", "x" * 200_000)["id"])["result"] == 200_002
    assert server.ended(server.submit("greet", thread_demand=3)["id"])["result"] == "hello 3"


def test_commands_and_labels_of_the_command_line_reach_the_worker(shop: tuple[System, Server]) -> None:
    system, server = shop
    options = (
        "--command",
        "upper=tr a-z A-Z",
        "--command",
        "second=cut '-d,' -f2",
        "--label",
        "zone=eu,west",
    )
    system.worker(server, *options, app=None)
    upper = server.submit("upper", "hello", labels={"zone": "eu,west"})
    second = server.submit("second", "one,two,three")
    assert server.ended(upper["id"])["result"] == "HELLO"
    assert server.ended(second["id"])["result"] == "two"


def test_a_command_that_fails_shows_its_exit_code_and_what_it_said(shop: tuple[System, Server]) -> None:
    _, server = shop
    job = server.ended(server.submit("broken", max_attempts=1)["id"])
    assert job["status"] == "failed"
    assert job["error"]["exit_code"] == 7
    assert "oh no" in job["error"]["output"]
    missing = server.ended(server.submit("missing", max_attempts=1)["id"])
    assert missing["error"]["type"] == "cannot_start"


def test_a_command_is_killed_at_its_timeout_and_on_cancel(shop: tuple[System, Server]) -> None:
    _, server = shop
    late = server.ended(server.submit("slow", timeout_sec=1, max_attempts=1)["id"])
    assert late["error"]["type"] == "timeout"
    job = server.submit("slow")
    server.started(job["id"])
    server.post(f"/jobs/{job['id']}/cancel")
    assert server.ended(job["id"], within=4)["status"] == "cancelled"


PLAIN_RUNNER = Path(__file__).parents[2] / "examples" / "source-systems" / "runner.sh"


def test_a_strict_runner_of_the_plain_contract_runs_every_type_that_no_task_has(system: System) -> None:
    (system.folder / "run_app.py").write_text(APP)
    server = system.serve()
    worker = system.worker(server, app="run_app:app", EXECUTION_BINARY=str(PLAIN_RUNNER))
    (row,) = server.live_workers()
    assert (row["any_type"], "nap" in row["types"], "echo" in row["types"]) == (True, True, False)
    (said,) = worker.events("runner_configured")
    assert (said["takes"], said["threads"]) == ("every other type", "STOKER_THREADS")
    assert "nap" in said["not_given"]

    submitted = {
        server.post("/jobs", {"payload": "hello"})["id"]: "OK:hello",
        server.submit("nobody_knows_it", {"a": [1, "é"]})["id"]: 'OK:{"a":[1,"é"]}',
        server.submit("add_numbers", 'it\'s "quoted"\n in  two lines ')[
            "id"
        ]: 'OK:it\'s "quoted"\n in  two lines ',
        server.submit("echo", "-")["id"]: "OK:-",
        server.submit("echo", "")["id"]: "OK:",
        server.submit("echo", None)["id"]: "OK:null",
        server.submit("echo", "y" * 300_000)["id"]: "OK:" + "y" * 300_000,
        server.submit("nap", {"seconds": 0.0})["id"]: 0.0,
    }
    for id, result in submitted.items():
        done = server.ended(id)
        assert (done["status"], done["result"]) == ("completed", result)
    assert "warnings" not in server.post("/jobs", {"type": "another"})


def test_a_type_is_kept_for_a_worker_that_named_it_also_over_a_restart(system: System) -> None:
    server = system.serve()
    server.post("/workers", {"name": "own", "threads": 1, "types": ["mine"]})
    server.kill()
    server = system.serve(port=server.port)
    system.worker(server, app=None, EXECUTION_BINARY=str(PLAIN_RUNNER))
    mine = server.submit("mine", "for another", priority=0)
    assert server.ended(server.submit("odd", "for me")["id"])["result"] == "OK:for me"
    assert server.status(mine["id"]) == "queued"


def test_a_runner_that_answers_anything_to_types_is_not_taken_at_its_word(system: System) -> None:
    runner = system.folder / "runner.sh"
    runner.write_text("#!/bin/sh\necho done\nexit ${STOKER_THREADS:-0}\n")
    runner.chmod(0o755)
    server = system.serve(STOKER_RETRY_BACKOFF_BASE_SEC=1)
    system.worker(server, app=None, EXECUTION_BINARY=str(runner), threads=3)
    failed = server.ended(server.submit("echo", "x", thread_demand=3, max_attempts=2)["id"])
    assert (failed["status"], failed["attempt"], failed["error"]["exit_code"]) == ("failed", 2, 3)
    assert failed["error"]["output"] == "done\n"


def test_a_foreign_runner_runs_one_process_per_job(system: System) -> None:
    runner = system.folder / "runner.py"
    runner.write_text(RUNNER.format(python=sys.executable))
    runner.chmod(0o755)
    server = system.serve()
    system.worker(server, app=None, EXECUTION_BINARY=str(runner))
    assert server.ended(server.submit("shout", "hey", thread_demand=1)["id"])["result"] == {
        "shouted": "HEY",
        "length": 3,
        "threads": "1",
    }
    large = server.ended(server.submit("shout", "y" * 300_000)["id"])
    assert large["result"]["length"] == 300_000
    refused = server.ended(server.submit("shout", None)["id"])
    assert (refused["status"], refused["attempt"], refused["error"]["type"]) == ("failed", 1, "no_text")


def test_a_thousand_async_tasks_run_side_by_side_on_one_thread(shop: tuple[System, Server]) -> None:
    _, server = shop
    batch = [{"type": "nap", "payload": {"seconds": 1.0}}] * 1000
    ids = [job["id"] for job in server.post("/jobs/batch", {"jobs": batch})["jobs"]]
    jobs = [server.ended(id, within=30) for id in ids]
    assert {job["status"] for job in jobs} == {"completed"}
    # One after the other on four threads they would take 250 s; a wide bound that only a queue would break.
    assert max(job["total_time_sec"] for job in jobs) < 25


def test_an_async_task_can_fail_time_out_and_be_cancelled_alone(shop: tuple[System, Server]) -> None:
    _, server = shop
    neighbour = server.submit("nap", {"seconds": 3.0})
    server.started(neighbour["id"])
    failed = server.ended(server.submit("fails_alone", {}, max_attempts=1)["id"])
    assert failed["error"]["message"] == "only me"
    late = server.ended(
        server.submit("nap", {"seconds": 60}, timeout_sec=0.5, max_attempts=1)["id"], within=4
    )
    assert (late["status"], late["error"]["type"]) == ("failed", "timeout")
    long_job = server.submit("nap", {"seconds": 60})
    server.started(long_job["id"])
    server.post(f"/jobs/{long_job['id']}/cancel")
    assert server.ended(long_job["id"], within=4)["status"] == "cancelled"
    done = server.ended(neighbour["id"])
    assert (done["status"], done["attempt"], done["claim_id"]) == ("completed", 1, 1)


@pytest.mark.parametrize("executable", [False, True])
def test_a_worker_whose_runner_cannot_be_started_says_so_and_leaves(
    shop: tuple[System, Server], tmp_path: Path, executable: bool
) -> None:
    system, server = shop
    runner = tmp_path / "runner"
    if executable:
        runner.write_text("#!/no/such/interpreter\n")
        runner.chmod(0o755)
    worker = system.start_worker(server, app=None, EXECUTION_BINARY=runner)
    assert worker.exit_code() == 1
    assert f"error: EXECUTION_BINARY={runner} cannot be started: No such file or directory" in worker.output


def test_a_job_over_its_memory_limit_ends_for_that_reason_and_its_usage_is_told(
    shop: tuple[System, Server],
) -> None:
    _, server = shop
    # Where the system has no such limit the job is watched from outside, which takes a moment.
    payload = {"mb": 300, "seconds": 30 if PORTABLE else 0}
    limited = server.ended(server.submit("grab", payload, memory_mb=100, max_attempts=1)["id"])
    assert (limited["status"], limited["error"]["type"]) == ("failed", "memory_limit")
    free = server.ended(server.submit("grab", {"mb": 80})["id"])
    assert free["result"] == 80 * 1024 * 1024
    assert free["peak_memory_kb"] > 80 * 1024
    assert free["cpu_seconds"] > 0


def test_a_job_that_listens_tidies_up_when_it_is_cancelled(shop: tuple[System, Server]) -> None:
    system, server = shop
    job = server.submit("listens", {})
    server.started(job["id"])
    eventually(lambda: server.job(job["id"])["progress"] is not None, 5, lambda: "progress to be told")
    assert server.job(job["id"])["progress"]["total"] == 1000
    server.post(f"/jobs/{job['id']}/cancel")
    ended = server.ended(job["id"], within=3)
    assert ended["status"] == "cancelled"
    assert "tidied up" in system.journal.path.read_text()


def test_everything_that_a_job_writes_is_in_its_log(shop: tuple[System, Server]) -> None:
    _, server = shop
    job = server.ended(server.submit("talks", {"lines": 3})["id"])
    entries = server.get(f"/jobs/{job['id']}/logs", format="json")["entries"]
    text = "".join(entry["text"] for entry in entries)
    assert "line 0 of many" in text
    assert "line 2 of many" in text
    assert "to stderr" in text
    assert "from a subprocess" in text
    assert {entry["stream"] for entry in entries} >= {"stdout", "stderr"}


def test_a_hundred_thousand_lines_are_bounded_and_the_cut_is_marked(shop: tuple[System, Server]) -> None:
    _, server = shop
    job = server.ended(server.submit("talks", {"lines": 100_000})["id"], within=60)
    assert job["status"] == "completed"
    answer = server.get(f"/jobs/{job['id']}/logs", format="json")
    size = sum(len(entry["text"]) for entry in answer["entries"])
    assert answer["cut"] is True
    assert 900_000 < size < 1_100_000


def most_threads_at_once(journal: Path) -> dict[str, int]:
    """By worker, the largest sum of threads of jobs that ran at the same moment, as the jobs themselves tell it."""
    moments: list[tuple[float, int, str, int]] = []
    for line in journal.read_text().splitlines():
        worker, threads, start, end = line.split()
        moments.append((float(start), 1, worker, int(threads)))
        moments.append((float(end), 0, worker, -int(threads)))
    used: dict[str, int] = {}
    most: dict[str, int] = {}
    for _, _, worker, change in sorted(moments):
        used[worker] = used.get(worker, 0) + change
        most[worker] = max(most.get(worker, 0), used[worker])
    return most


def test_the_threads_in_use_never_exceed_what_a_worker_has(system: System, tmp_path: Path) -> None:
    (system.folder / "run_app.py").write_text(APP)
    journal = tmp_path / "threads.txt"
    server = system.serve()
    sizes = {4: system.start_worker(server, app="run_app:app", threads=4)}
    sizes[8] = system.start_worker(server, app="run_app:app", threads=8)
    eventually(lambda: len(server.live_workers()) == 2, 30, lambda: "both workers")
    payload = {"seconds": 0.02, "journal": str(journal)}
    jobs: list[dict[str, Any]] = [
        {"type": "occupied", "payload": payload, "thread_demand": 1 + n % 8} for n in range(300)
    ]
    ids = [job["id"] for job in server.post("/jobs/batch", {"jobs": jobs})["jobs"]]
    ended = [server.ended(id, within=60) for id in ids]
    assert {job["status"] for job in ended} == {"completed"}
    assert all(job["result"] == [job["thread_demand"]] * 3 for job in ended)
    most = most_threads_at_once(journal)
    for size, worker in sizes.items():
        assert most.get(str(worker.pid), 0) <= size


def test_a_large_job_is_not_starved_and_an_impossible_one_runs_degraded(shop: tuple[System, Server]) -> None:
    system, server = shop
    payload = {"seconds": 0.3, "journal": str(system.folder / "starve.txt")}
    small = [{"type": "occupied", "payload": payload}] * 150
    server.post("/jobs/batch", {"jobs": small})
    large = server.submit("occupied", payload, thread_demand=4)
    server.post("/jobs/batch", {"jobs": small})
    impossible = server.submit("occupied", payload, thread_demand=64, priority=0)
    done = server.ended(large["id"], within=30)
    assert done["threads_granted"] == 4
    assert done["queue_time_sec"] < 15  # behind all the small ones it would be more than 20 s
    degraded = server.ended(impossible["id"], within=40)
    assert (degraded["thread_demand"], degraded["threads_granted"]) == (64, 1)


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8Dwn4GBgYGJAQoAHxcCAr7cGDsAAAAASUVORK5CYII="
)
BUILT_IN: dict[str, Any] = {
    "echo": {"a": [1, None, "ü"]},
    "add_numbers": {"x": 2, "y": 3.5},
    "reverse_string": {"text": "añb👩‍🚀c"},
    "large_array_sum": {"numbers": [*range(1000), 0.1, 0.2]},
    "cpu_intensive": {"iterations": 1000},
    "io_intensive": {"files": 2, "size_kb": 4},
    "mixed_workload": {},
    "network_task": {"requests": 3},
    "sleep": {"seconds": 0.01},
    "fail": {"times": 0},
    "resize_image": {"image": PIXEL, "width": 4, "height": 3},
}


def test_built_in_types_give_equal_results_in_both_runners(system: System) -> None:
    server = system.serve()
    system.worker(server, "--queues", "native", app=None)
    system.worker(server, "--queues", "python", app=None, STOKER_NATIVE_RUNNER="off")
    submitted = {
        type: [server.submit(type, payload, queue=queue, max_attempts=1) for queue in ("native", "python")]
        for type, payload in BUILT_IN.items()
    }
    for type, pair in submitted.items():
        native, python = (server.ended(job["id"]) for job in pair)
        assert (native["status"], python["status"]) == ("completed", "completed"), type
        assert native["result"] == python["result"], type
