"""Counting system calls and CPU time of processes from outside."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from bench.cost.calls import Calls, Counter, KernelCounter, StraceCounter, find_counter, strace_calls
from bench.cost.roles import Role, descendants

CALLS = 500
# Says that it is there, waits for a line, makes calls in a child process of its own, says so, and waits to be ended.
PROGRAM = f"""
import os, sys
print(flush=True)
sys.stdin.readline()
if os.fork() == 0:
    for _ in range({CALLS}):
        os.stat("/")
    for _ in range(50):
        sum(range(100_000))
    os._exit(0)
os.wait()
print(flush=True)
sys.stdin.readline()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def run(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()


@pytest.mark.parametrize("counter", [KernelCounter(), StraceCounter()], ids=["kernel", "strace"])
def test_calls_of_a_process_and_of_those_that_it_starts_are_counted(
    counter: Counter, process: subprocess.Popen[bytes]
) -> None:
    if isinstance(counter, KernelCounter) and not isinstance(find_counter(), KernelCounter):
        pytest.skip("the kernel lets only root count")
    if isinstance(counter, StraceCounter) and shutil.which("strace") is None:
        pytest.skip("strace is not installed (Debian: strace)")
    with counter.counting([Role("it", process.pid)]) as read:
        run(process)
        calls = read()["it"]
    assert CALLS <= calls.working < calls.total < CALLS + 200


def test_cpu_time_of_a_process_that_came_and_went_is_found_with_its_parent(
    process: subprocess.Popen[bytes],
) -> None:
    alone, below = Role("alone", process.pid, below=False), Role("below", process.pid, own=False)
    before = alone.cpu_ns(), below.cpu_ns()
    run(process)
    assert below.cpu_ns() - before[1] >= 20_000_000
    assert 0 < alone.cpu_ns() - before[0] < 20_000_000


def test_own_cpu_time_is_read_to_the_microsecond() -> None:
    role = Role("own", os.getpid(), below=False)
    assert abs(role.cpu_ns() - time.process_time_ns()) < 5_000_000
    assert role.cpu_ns() < role.cpu_ns()


def test_descendants_are_children_and_theirs() -> None:
    command = "sleep 60 & echo; wait"
    with subprocess.Popen(["sh", "-c", f"sh -c '{command}' & wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        below = descendants(process.pid)
        assert len(below) == 2
        for pid in (*below, process.pid):
            os.kill(pid, 9)


def test_the_summary_of_strace_is_added_up_without_its_total() -> None:
    summary = "syscall calls\n------- -----\nfutex 7\nwrite 5\nfdatasync 1\n------- -----\ntotal 13\n"
    assert strace_calls(summary) == Calls(total=13, working=6)
    assert strace_calls("") == Calls(0, 0)
