"""What both runners promise to whoever starts them: options, exit codes, frames, the shared state, and how they end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoker.executors.builtin import BUILTINS
from stoker.executors.runner_contract import read_types
from stoker.executors.shared_state import SharedState
from tests.runner.serving import Serving, request, serving

PYTHON = [sys.executable, "-m", "stoker.executors.runner"]


@pytest.fixture(params=["c++", "python"])
def runner(request: pytest.FixtureRequest) -> list[str]:
    return PYTHON if request.param == "python" else [str(request.getfixturevalue("binary"))]


def run(
    runner: list[str], *options: str, stdin: bytes = b"", **environ: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*runner, *options], input=stdin, capture_output=True, check=False, env=environ)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--job-id", "1"],
        ["--type", "echo"],
        ["--job-id", "1", "--type", "echo", "--threads", "0"],
        ["--job-id", "1", "--type", "echo", "--threads", "many"],
        ["--job-id", "1", "--type", "echo", "--payload"],
        ["--job-id", "1", "--type", "echo", "--colour", "red"],
        ["--job-id", "1", "--type", "echo", "more"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(runner: list[str], options: list[str]) -> None:
    ended = run(runner, *options)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"usage" in ended.stderr


def test_an_unknown_type_is_exit_code_4(runner: list[str]) -> None:
    ended = run(runner, "--job-id", "1", "--type", "nope", "--payload", "{broken")
    assert (ended.returncode, ended.stdout) == (4, b"")
    assert b'"unknown_type"' in ended.stderr.splitlines()[-1]


def test_without_a_payload_it_is_null(runner: list[str]) -> None:
    assert run(runner, "--job-id=1", "--type=echo").stdout == b"null\n"


@pytest.mark.parametrize("payload", ["-5", "-1e5", '"--type"'])
def test_a_payload_may_look_like_an_option(runner: list[str], payload: str) -> None:
    ended = run(runner, "--job-id", "1", "--payload", payload, "--type", "echo")
    assert (ended.returncode, ended.stdout) == (0, payload.encode() + b"\n")


def test_a_large_payload_comes_on_standard_input(runner: list[str]) -> None:
    text = b'"' + b"x" * 300_000 + b'"'
    ended = run(runner, "--job-id", "1", "--type", "echo", "--payload", "-", stdin=text)
    assert (ended.returncode, ended.stdout) == (0, text + b"\n")


def test_it_says_what_it_can_do(runner: list[str]) -> None:
    said = read_types(run(runner, "--types").stdout.decode())
    assert (said.threads, said.json, said.codes) == (True, True, True)
    assert set(BUILTINS) - set(said.types) <= {"resize_image", "ResizeImage"}
    assert run(runner, "--version").stdout.startswith(b"stoker-runner ")


def test_it_opens_with_its_types(warm: Serving) -> None:
    assert set(warm.types) == set(BUILTINS) - {"resize_image", "ResizeImage"}


def test_many_at_once_are_answered_in_order(warm: Serving) -> None:
    warm.send(b"".join(request(i, "add_numbers", b'{"x":1,"y":%d}' % i) for i in range(1000)))
    for i in range(1000):
        answer = warm.answer()
        assert (answer.index, answer.body) == (i, b'{"sum":%d}' % (i + 1))


def test_an_unknown_type_can_be_retried_elsewhere(warm: Serving) -> None:
    warm.send(request(1, "resize_image", b"null"))
    answer = warm.answer()
    assert answer.kind == "error"
    assert b'"unknown_type"' in answer.body


def test_cpu_time_is_that_of_the_job(warm: Serving) -> None:
    warm.send(request(1, "sleep", b'{"seconds": 0.05}') + request(2, "cpu_intensive", b"null", threads=2))
    asleep, busy = warm.answer(), warm.answer()
    assert asleep.finished - asleep.started >= 0.05
    assert busy.cpu_us > asleep.cpu_us


def test_no_answer_waits_for_the_job_behind_it(warm: Serving) -> None:
    warm.send(request(1, "sleep", b'{"seconds": 0}') + request(2, "echo", b"1"))
    warm.answer(), warm.answer()
    asked = time.monotonic()
    warm.send(request(3, "echo", b"1") + request(4, "sleep", b'{"seconds": 1}'))
    assert warm.answer().index == 3
    assert time.monotonic() - asked < 0.7
    warm.answer()


def test_a_result_that_is_too_large_is_refused(binary: Path) -> None:
    with serving(binary, "--max-result", "100") as runner:
        runner.send(request(1, "echo", b'"%s"' % (b"x" * 100)) + request(2, "echo", b"1"))
        first, second = runner.answer(), runner.answer()
        assert first.kind == "invalid"
        assert b'"result_too_large"' in first.body
        assert second.body == b"1"


def test_it_ends_with_its_input(binary: Path) -> None:
    with serving(binary) as runner:
        runner.send(request(1, "echo", b"1"))
        assert runner.finish() == 0


@pytest.mark.parametrize(
    "frame", [b"\xff\xff\xff\xff", b"\x01\0\0\0x", b"\x16\0\0\0" + bytes(20) + b"\xff\xff"]
)
def test_nonsense_ends_it(binary: Path, frame: bytes) -> None:
    process = subprocess.run([binary, "--serve"], input=frame, capture_output=True, check=False)
    assert process.returncode == 5
    assert process.stderr


def test_sigterm_ends_it_at_once(binary: Path) -> None:
    with serving(binary) as runner:
        runner.send(request(1, "echo", b"1") + request(2, "sleep", b'{"seconds": 60}'))
        runner.answer()
        runner.process.send_signal(signal.SIGTERM)
        assert runner.process.wait(timeout=5) == -signal.SIGTERM


def test_the_shared_state_shows_what_runs(binary: Path) -> None:
    shared_state, fd = SharedState.create()
    with serving(binary, "--board", str(fd), pass_fds=[fd]) as runner:
        os.close(fd)
        runner.send(request(41, "echo", b"1") + request(42, "sleep", b'{"seconds": 60}'))
        runner.answer()
        _wait_until_running(shared_state, 42)
        _, busy, started = shared_state.running()
        assert busy
        assert 0 <= time.monotonic() - started < 5
    shared_state.close()


def test_what_was_taken_back_is_handed_back(binary: Path) -> None:
    shared_state, fd = SharedState.create()
    shared_state.skip(2, 4)
    with serving(binary, "--board", str(fd), pass_fds=[fd]) as runner:
        os.close(fd)
        runner.send(b"".join(request(i, "echo", b"1") for i in range(1, 6)))
        answers = [runner.answer() for _ in range(5)]
        assert [answer.kind for answer in answers] == [
            "completed",
            "handed_back",
            "handed_back",
            "completed",
            "completed",
        ]
        assert [answer.body for answer in answers] == [b"1", b"", b"", b"1", b"1"]
        assert runner.finish() == 0  # the last `busy` is written after the last answer
        assert shared_state.running()[:2] == (5, False)
    shared_state.close()


def test_it_does_not_start_under_a_stranger(binary: Path) -> None:
    process = subprocess.run(
        [binary, "--serve", "--parent", "1"], input=b"", capture_output=True, check=False
    )
    assert (process.returncode, process.stdout) == (1, b"")


PARENT = """
import os, subprocess, sys
argv = [sys.argv[1], "--serve", "--parent", str(os.getpid())]
runner = subprocess.Popen(argv, stdin=int(sys.argv[2]), stdout=subprocess.DEVNULL)
print(runner.pid, flush=True)
runner.wait()
"""


def test_it_dies_with_its_parent(binary: Path) -> None:
    read_end, write_end = os.pipe()  # its input stays open, so that is not what ends it
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, binary, str(read_end)], stdout=subprocess.PIPE, pass_fds=[read_end]
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        parent.kill()
    _wait_until_gone(pid)
    os.close(read_end)
    os.close(write_end)


def _wait_until_running(shared_state: SharedState, index: int) -> None:
    deadline = time.monotonic() + 10
    while shared_state.running()[:2] != (index, True):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _wait_until_gone(pid: int) -> None:
    """Gone, or dead and waiting for somebody to ask how it ended."""
    deadline = time.monotonic() + 10
    while _alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
