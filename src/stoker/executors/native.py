"""The native runner, warm: `runner --serve`, length-prefixed binary frames on stdin and stdout
(docs/reference/runner.md)."""

import os
import struct
from pathlib import Path
from typing import Final

from stoker.domain.retry import Kind
from stoker.executors.pipe import ChildJob, ChildResult, Printed, Ready, Unpacker
from stoker.executors.process import Callbacks, Child

_REQUEST: Final = struct.Struct(
    "<QIIHHH"
)  # index, claim_id, attempt, threads, length of the type, length of the id
_RESPONSE: Final = struct.Struct("<QBddQ")  # index, kind, started, finished, CPU microseconds
_KINDS: Final[tuple[Kind, ...]] = ("completed", "error", "invalid", "handed_back")


class NativeChild(Child):
    """One warm runner process."""

    def __init__(self, mark: str, callbacks: Callbacks, *, binary: Path, max_result_bytes: int) -> None:
        super().__init__(mark, callbacks)
        self._max_result_bytes = max_result_bytes
        self._unpacker = Unpacker()
        stdin, self._stdin = os.pipe()
        os.set_blocking(self._stdin, False)
        out, err = self._pipe_from_child(self._said), self._pipe_from_child(self._logged)
        self._out_fd = next(iter(self._readers))
        argv = [str(binary), "--serve", "--board", str(self._board_fd), "--parent", str(os.getpid())]
        argv += ["--max-result", str(max_result_bytes)]
        try:
            self._spawn(argv, stdin=stdin, stdout=out, stderr=err, pass_fds=(self._board_fd,), environ={})
        finally:
            for fd in (stdin, out, err, self._board_fd):
                os.close(fd)

    def send(self, jobs: list[ChildJob]) -> None:
        self.jobs_taken += len(jobs)
        self._write(self._stdin, b"".join(map(request, jobs)))

    def cancel(self, index: int) -> None:
        """It has no hooks to notice a wish: a signal is all it knows."""
        self.terminate()

    def _ends_with(self, fd: int) -> bool:
        return fd == self._out_fd

    def _close(self) -> None:
        os.close(self._stdin)

    def _said(self, data: bytes) -> None:
        results: list[ChildResult] = []
        for message in self._unpacker.feed(data):
            if self.ready:
                results.append(self._result(message))
            else:
                self.ready = True
                self._callbacks.ready(self, Ready(message.decode().split("\n")))
        if results:
            self._callbacks.results(self, results)

    def _result(self, message: bytes) -> ChildResult:
        if len(message) < _RESPONSE.size:
            raise ValueError("a response that is too short")
        index, kind, started, finished, cpu_us = _RESPONSE.unpack_from(message)
        body = message[_RESPONSE.size :]
        if kind == 0:
            return ChildResult(index, "completed", body, None, started, finished, cpu_us)
        if kind >= len(_KINDS):
            raise ValueError(f"a response of unknown kind {kind}")
        return ChildResult(index, _KINDS[kind], None, body or None, started, finished, cpu_us)

    def _logged(self, data: bytes) -> None:
        self._callbacks.printed(self, Printed(self.board.running()[0], "stderr", data))


def request(job: ChildJob) -> bytes:
    type_, id_ = job.type.encode(), job.id.encode()
    head = _REQUEST.pack(
        job.index, job.claim_id & 0xFFFFFFFF, job.attempt, min(job.threads, 0xFFFF), len(type_), len(id_)
    )
    size = len(head) + len(type_) + len(id_) + len(job.payload)
    return size.to_bytes(4, "little") + head + type_ + id_ + job.payload
