"""The native runner, warm: `runner --serve`, length-prefixed binary frames on stdin and stdout
(docs/reference/runner.md)."""

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from stoker.context import JobContext
from stoker.domain.retry import Kind
from stoker.executors.pipe import (
    ChildBatch,
    OutcomeBatch,
    Printed,
    Ready,
    Unpacker,
    WorkOutcome,
)
from stoker.executors.process import Callbacks, Child
from stoker.wire.frames import Assignment

_OWN: Final = struct.Struct("<IQ")  # length of what follows, index
_SHARED: Final = struct.Struct("<IIHHH")  # claim_id, attempt, threads, length of the type, length of the id
_INDEX_BYTES: Final = 8
_RESPONSE: Final = struct.Struct("<QBddQ")  # index, kind, started, finished, CPU microseconds
_KINDS: Final[tuple[Kind, ...]] = ("completed", "error", "invalid", "handed_back")
COMPLETED: Final = 0


class NativeChild(Child):
    """One warm runner process."""

    def __init__(self, mark: str, callbacks: Callbacks, *, binary: Path, max_result_bytes: int) -> None:
        super().__init__(mark, callbacks)
        self._max_result_bytes = max_result_bytes
        self._unpacker = Unpacker(mark=b"")
        self._stdin = -1
        argv = [str(binary), "--serve", "--board", str(self._shared_state_fd), "--parent", str(os.getpid())]
        argv += ["--max-result", str(max_result_bytes)]
        with self._starting() as stack:
            stdin, self._stdin = os.pipe()
            stack.callback(os.close, stdin)
            os.set_blocking(self._stdin, False)
            out = self._pipe_from_child(self._said, stack)
            err = self._pipe_from_child(self._logged, stack)
            self._out_fd = next(iter(self._readers))
            self._spawn(
                argv, stdin=stdin, stdout=out, stderr=err, pass_fds=(self._shared_state_fd,), environ={}
            )

    def send(self, batches: list[ChildBatch]) -> None:
        self.jobs_taken += sum(len(batch.ids) for batch in batches)
        data = b"".join(
            [requests(batch.template, batch.first, batch.ids, batch.payloads) for batch in batches]
        )
        self._write(self._stdin, data)

    def cancel(self, index: int) -> None:
        """It has no hooks to notice a wish: a signal is all it knows."""
        self.terminate()

    def _ends_with(self, fd: int) -> bool:
        return fd == self._out_fd

    def _close(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)

    def _said(self, data: bytes) -> None:
        messages = self._unpacker.feed(data)
        if not self.ready:
            for message in messages:
                self.ready = True
                self._callbacks.ready(self, Ready(message.decode().split("\n")))
                break
        outcomes = answers(messages)
        if outcomes:
            self._callbacks.results(self, outcomes)

    def _logged(self, data: bytes) -> None:
        self._callbacks.printed(self, Printed(self.shared_state.running()[0], "stderr", data))


def answers(messages: Iterable[bytes]) -> OutcomeBatch:
    rows: list[tuple[Any, ...]] = []
    bodies: list[bytes] = []
    others: list[WorkOutcome] = []
    for message in messages:
        if len(message) < _RESPONSE.size:
            raise ValueError("a response that is too short")
        row = _RESPONSE.unpack_from(message)
        body = message[_RESPONSE.size :]
        if row[1] == COMPLETED:
            rows.append(row)
            bodies.append(body)
        else:
            others.append(_other(row, body))
    if not rows:
        return OutcomeBatch(others=others)
    indexes, _, started, finished, cpu_us = map(list, zip(*rows, strict=True))
    return OutcomeBatch(indexes, bodies, started, finished, cpu_us, [None] * len(rows), others=others)


def _other(row: tuple[Any, ...], body: bytes) -> WorkOutcome:
    index, kind, started, finished, cpu_us = row
    if kind >= len(_KINDS):
        raise ValueError(f"a response of unknown kind {kind}")
    return WorkOutcome(index, _KINDS[kind], None, body or None, started, finished, cpu_us)


def request(job: JobContext) -> bytes:
    return requests(job, job.index, [job.id], [job.payload])


def requests(
    template: Assignment | JobContext, first: int, ids: Sequence[str], payloads: Sequence[bytes]
) -> bytes:
    """Jobs of one kind, with indexes from `first` on."""
    type_ = template.type.encode()
    found: list[bytes] = []
    shared, id_size, fixed = b"", -1, 0
    for index, id, payload in zip(range(first, first + len(ids)), ids, payloads, strict=True):
        id_ = id.encode()
        if len(id_) != id_size:
            id_size = len(id_)
            threads = min(template.threads, 0xFFFF)
            shared = (
                _SHARED.pack(template.claim_id & 0xFFFFFFFF, template.attempt, threads, len(type_), id_size)
                + type_
            )
            fixed = _INDEX_BYTES + len(shared) + id_size
        found += (_OWN.pack(fixed + len(payload), index), shared, id_, payload)
    return b"".join(found)
