"""The native runner: warm against one process per job, and one thread against two."""

import struct
import subprocess
import time
from pathlib import Path
from typing import Final

from bench.context import Context
from bench.processes import BenchFailed
from bench.results import Line, at_least, median_line, ratio_line
from stoker.context import JobContext
from stoker.executors.native import request
from stoker.executors.native_binary import find_runner
from stoker.executors.pipe import Unpacker

WARM_OF_COLD: Final = at_least(20.0)
_PAYLOAD: Final = b'{"x": 1, "y": 2}'
_NUMBERS: Final = 2_000_000


def run(context: Context) -> list[Line]:
    binary = find_runner()
    if binary is None:
        return [Line("native runner", None, note="not built here: no compiler was at hand on install")]
    warm: list[float] = []
    cold: list[float] = []
    for _ in range(context.sizes.rounds):
        warm.append(_warm_rate(binary, context.sizes.warm_jobs))
        cold.append(_cold_rate(binary, context.sizes.cold_jobs))
    numbers = b'{"numbers": [' + b",".join(b"%d" % n for n in range(_NUMBERS)) + b"]}"
    one: list[float] = []
    two: list[float] = []
    for _ in range(context.sizes.rounds):
        one.append(_sum_seconds(binary, numbers, 1))
        two.append(_sum_seconds(binary, numbers, 2))
    return [
        median_line("warm runner, add_numbers", warm, "jobs/s"),
        median_line("one process per job, add_numbers", cold, "jobs/s"),
        ratio_line("warm / one process per job", warm, cold, WARM_OF_COLD),
        median_line(f"large_array_sum of {_NUMBERS:,}, 1 thread", [s * 1e3 for s in one], "ms"),
        median_line(f"large_array_sum of {_NUMBERS:,}, 2 threads", [s * 1e3 for s in two], "ms"),
        Line("1 thread / 2 threads", min(one) / min(two), note="best of the rounds"),
    ]


def _job(index: int, type: str, payload: bytes, threads: int) -> JobContext:
    return JobContext(f"job-{index}", 1, type, 1, 1, threads, "default", None, {}, index, payload=payload)


def _warm_rate(binary: Path, count: int) -> float:
    """Jobs a second through one warm process, with a few in its pipe, as a worker feeds it."""
    with subprocess.Popen([binary, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        answers = _Answers(runner)
        answers.take(1)
        batch = 32
        started = time.perf_counter()
        for first in range(0, count, batch):
            requests = [request(_job(first + n, "add_numbers", _PAYLOAD, 1)) for n in range(batch)]
            answers.ask(b"".join(requests))
            answers.take(batch)
        seconds = time.perf_counter() - started
        answers.close()
    return count / seconds


def _cold_rate(binary: Path, count: int) -> float:
    started = time.perf_counter()
    for n in range(count):
        argv = [str(binary), "--job-id", f"job-{n}", "--type", "add_numbers", "--payload", _PAYLOAD.decode()]
        answer = subprocess.run(argv, capture_output=True, check=True)
        if answer.stdout.strip() != b'{"sum":3}':
            raise BenchFailed(f"the runner answered {answer.stdout!r}")
    return count / (time.perf_counter() - started)


def _sum_seconds(binary: Path, payload: bytes, threads: int) -> float:
    """How long a warm runner takes over one large sum, by its own clock."""
    with subprocess.Popen([binary, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        answers = _Answers(runner)
        answers.take(1)
        best = float("inf")
        for n in range(3):
            answers.ask(request(_job(n, "large_array_sum", payload, threads)))
            (message,) = answers.take(1)
            started, finished = _times(message)
            best = min(best, finished - started)
        answers.close()
    return best


def _times(message: bytes) -> tuple[float, float]:
    _, kind, started, finished, _ = struct.unpack_from("<QBddQ", message)
    if kind != 0:
        raise BenchFailed(f"the runner failed: {message[33:]!r}")
    return started, finished


class _Answers:
    """The two pipes of a warm runner."""

    def __init__(self, runner: subprocess.Popen[bytes]) -> None:
        if runner.stdin is None or runner.stdout is None:
            raise BenchFailed("the runner has no pipes")
        self._stdin = runner.stdin
        self._stdout = runner.stdout
        self._unpacker = Unpacker()
        self._waiting: list[bytes] = []

    def ask(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def take(self, count: int) -> list[bytes]:
        while len(self._waiting) < count:
            data = self._stdout.read1(1 << 18)  # type: ignore[attr-defined]  # a buffered pipe has it
            if not data:
                raise BenchFailed("the runner ended by itself")
            self._waiting += self._unpacker.feed(data)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def close(self) -> None:
        self._stdin.close()
