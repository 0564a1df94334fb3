"""A client of `runner --serve`, as small as can be: it is also the proof that docs/reference/runner.md is enough."""

import contextlib
import struct
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

KINDS: Final = ("completed", "error", "invalid", "handed_back")
_REQUEST: Final = struct.Struct("<QIIHHH")
_ANSWER: Final = struct.Struct("<QBddQ")


class Answer(msgspec.Struct, frozen=True):
    index: int
    kind: str
    started: float
    finished: float
    cpu_us: int
    body: bytes


def request(index: int, type: str, payload: bytes, *, claim_id: int = 1, threads: int = 1) -> bytes:
    name, id = type.encode(), b"job-1"
    body = _REQUEST.pack(index, claim_id, 1, threads, len(name), len(id)) + name + id + payload
    return len(body).to_bytes(4, "little") + body


class Serving:
    """A warm runner."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._stdin: IO[bytes] = process.stdin
        self._stdout: IO[bytes] = process.stdout
        self.types = self._frame().decode().split("\n")

    def send(self, frames: bytes) -> None:
        self._stdin.write(frames)
        self._stdin.flush()

    def answer(self) -> Answer:
        frame = self._frame()
        index, kind, started, finished, cpu_us = _ANSWER.unpack_from(frame)
        return Answer(index, KINDS[kind], started, finished, cpu_us, frame[_ANSWER.size :])

    def finish(self) -> int:
        """Close its input; its exit code."""
        self._stdin.close()
        return self.process.wait(timeout=10)

    def _frame(self) -> bytes:
        size = int.from_bytes(self._stdout.read(4), "little")
        return self._stdout.read(size)


@contextlib.contextmanager
def serving(binary: Path, *options: str, pass_fds: Iterable[int] = ()) -> Iterator[Serving]:
    process = subprocess.Popen(
        [binary, "--serve", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=tuple(pass_fds),
    )
    with process:
        try:
            yield Serving(process)
        finally:
            process.kill()
