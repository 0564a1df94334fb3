"""One process per job: a command of the operator's, or any executable with the runner's contract.

A command gets the payload on stdin and the job in its environment; what it prints on stdout is the result, as JSON if
it is JSON and as text if it is not; exit code 0 means done. A runner gets `--job-id --type --payload`
(`stoker.executors.runner_contract`) and answers in the same way. There is never a shell in between: what runs is an argv.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from stoker.context import JobContext
from stoker.domain.json_text import is_json
from stoker.domain.retry import Kind, problem
from stoker.executors.pipe import ChildBatch, OutcomeBatch, Printed, WorkOutcome
from stoker.executors.process import SCARCE, Callbacks, Child, advice
from stoker.executors.runner_contract import RunnerContract, payload_argument
from stoker.system import SYSTEM

TAIL_BYTES: Final = 4_000
UNUSABLE_PAYLOAD: Final = 3
"""The exit code with which a runner that knows Stoker says that no retry can help."""

log = structlog.get_logger()

Argv = Callable[[JobContext], tuple[Sequence[str], bytes]]
"""What to run for a job, and what to give it on stdin."""


def command_argv(command: Sequence[str]) -> Argv:
    return lambda job: (command, job.payload)


def runner_argv(binary: str, contract: RunnerContract) -> Argv:
    """Return a function that builds the command line of a job for this contract."""

    def argv(job: JobContext) -> tuple[Sequence[str], bytes]:
        payload, given = payload_argument(job.payload, json=contract.json)
        words = [binary, "--job-id", job.id, "--type", job.type, "--payload", payload]
        return [*words, "--threads", str(job.threads)] if contract.threads else words, given

    return argv


class OneShot(Child):
    """A process that runs one job and ends. `runner` is None for a command."""

    warm = False

    def __init__(
        self,
        mark: str,
        callbacks: Callbacks,
        *,
        argv: Argv,
        runner: RunnerContract | None = None,
        max_result_bytes: int,
    ) -> None:
        super().__init__(mark, callbacks)
        os.close(self._shared_state_fd)
        self._argv = argv
        self._runner = runner
        self._max_result_bytes = max_result_bytes
        self._stdin: int | None = None
        self._result = bytearray()
        self._tail = bytearray()
        self._started = 0.0
        self._index = -1
        self.ready = True

    def send(self, batches: list[ChildBatch]) -> None:
        (job,) = (job for batch in batches for job in batch.jobs())
        self.jobs_taken = 1
        self._index = job.index
        words, given = self._argv(job)
        self._started = time.monotonic()
        try:
            self._start(words, job)
        except OSError as error:
            self._fail_to_start(error)
            return
        self.shared_state.start(job.index, self._started)
        self._limit_memory(job.memory_mb)
        if self._stdin is not None:
            self._write(self._stdin, given)
            if not self._outgoing:
                self._written()

    def _start(self, words: Sequence[str], job: JobContext) -> None:
        with contextlib.ExitStack() as stack:
            stdin, self._stdin = os.pipe()
            stack.callback(os.close, stdin)
            os.set_blocking(self._stdin, False)
            out = self._pipe_from_child(self._printed_result, stack)
            err = self._pipe_from_child(self._logged, stack)
            self._spawn(words, stdin=stdin, stdout=out, stderr=err, pass_fds=(), environ=job_environ(job))

    def cancel(self, index: int) -> None:
        self.terminate()

    def _fail_to_start(self, error: OSError) -> None:
        """The operator's mistake, not the job's; it is tried again, since it may be mended meanwhile. Where the system has
        no room for another process the job has not started: it waits for another one."""
        if error.errno in SCARCE:
            log.error("child_cannot_start", executor="command", detail=advice(error))
            self.ready = False
            self.returncode = 127
            self._loop.call_soon(self._gone)
            return
        self.shared_state.start(self._index, self._started)
        message = problem("cannot_start", f"the command cannot be started: {error}")
        self._loop.call_soon(self._finish, "error", None, message)
        self.returncode = 127
        self._loop.call_soon(self._gone)

    def _limit_memory(self, memory_mb: int | None) -> None:
        if memory_mb is not None:
            SYSTEM.limit_memory(self.pid, memory_mb * 1024 * 1024)

    def _written(self) -> None:
        if self._stdin is not None:
            self._writing_fd = None
            os.close(self._stdin)
            self._stdin = None

    def _printed_result(self, data: bytes) -> None:
        if len(self._result) <= self._max_result_bytes:
            self._result += data

    def _logged(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._callbacks.printed(self, Printed(self._index, "stderr", data))

    def _ends_with(self, fd: int) -> bool:
        # Both of its pipes are closed: it ended, or closed them to go on in silence; then `poll` sees its end.
        return False

    def _gone(self) -> None:
        if (
            not self.ended
            and self.returncode is not None
            and self.returncode >= 0
            and self._process is not None
        ):
            self._finish(*self._judge(self.returncode))
        super()._gone()

    def _readable(self, fd: int) -> None:
        super()._readable(fd)
        if not self._readers and not self.ended and self._reap(block=False):
            self._gone()

    def _judge(self, code: int) -> tuple[Kind, bytes | None, bytes | None]:
        if code != 0:
            return self._failure(code)
        if len(self._result) > self._max_result_bytes:
            return (
                "invalid",
                None,
                problem("result_too_large", "the command printed more than a result may have"),
            )
        text = bytes(self._result).strip()
        if not text:
            return "completed", b"null", None
        if is_json(text):
            return "completed", text, None
        if self._runner is not None:  # its text is as it was printed, but for the end of the last line
            text = bytes(self._result).removesuffix(b"\n").removesuffix(b"\r")
        return "completed", msgspec.json.encode(text.decode("utf-8", "replace")), None

    def _failure(self, code: int) -> tuple[Kind, bytes | None, bytes | None]:
        runner = self._runner
        kind = kind_of_failure(code, runner)
        told = None if runner is None else _told(self._tail)
        if told is not None:
            return kind, None, told
        said = self._tail or self._result[-TAIL_BYTES:]
        tail = bytes(said).decode("utf-8", "replace")
        return kind, None, problem("exit_code", f"exit code {code}", exit_code=code, output=tail)

    def _finish(self, kind: Kind, result: bytes | None, error: bytes | None) -> None:
        usage = self.usage
        cpu_us = None if usage is None else usage.cpu_us
        peak = None if usage is None else usage.peak_kb
        finished = time.monotonic()
        self.shared_state.stop()
        ended = WorkOutcome(self._index, kind, result, error, self._started, finished, cpu_us, peak)
        self._callbacks.results(self, OutcomeBatch.of(ended))

    def _close(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None


def kind_of_failure(code: int, runner: RunnerContract | None) -> Kind:
    """Return how an attempt ended whose process had an exit code other than 0."""
    known = runner is not None and runner.codes
    return "invalid" if known and code == UNUSABLE_PAYLOAD else "error"


def job_environ(job: JobContext) -> dict[str, str]:
    """Return the environment variables that tell a process about its job."""
    return {
        "STOKER_JOB_ID": job.id,
        "STOKER_CLAIM_ID": str(job.claim_id),
        "STOKER_JOB_TYPE": job.type,
        "STOKER_QUEUE": job.queue,
        "STOKER_ATTEMPT": str(job.attempt),
        "STOKER_MAX_ATTEMPTS": str(job.max_attempts),
        "STOKER_THREADS": str(job.threads),
        "OMP_NUM_THREADS": str(job.threads),
    }


def _told(tail: bytearray) -> bytes | None:
    """Return the error that a runner printed as its last line on stderr, or None."""
    lines = bytes(tail).strip().rsplit(b"\n", 1)
    last = lines[-1]
    return last if last.startswith(b"{") and is_json(last) and b'"message"' in last else None
