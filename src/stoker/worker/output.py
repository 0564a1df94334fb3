"""Output and progress of jobs, gathered until they are sent. Bounded per attempt and in all, so that output never costs
a worker its memory."""

from typing import Final

from stoker.wire.frames import Frame, Output, OutputChunk, Progress, ProgressNote, Stream

ATTEMPT_BYTES: Final = 1024 * 1024 + 1
"""One byte more than the coordinator keeps, so that it sees that there was more."""
WAITING_BYTES: Final = 8 * 1024 * 1024
FRAME_BYTES: Final = 256 * 1024


class OutputBuffer:
    def __init__(self) -> None:
        self._chunks: list[OutputChunk] = []
        self._waiting = 0
        self.written: dict[str, tuple[int, int]] = {}
        """For each job that wrote something, its claim and how much it was."""
        self._progress: dict[str, ProgressNote] = {}

    def add(self, id: str, claim_id: int, stream: Stream, data: bytes) -> None:
        """Add what a job wrote. Output beyond the bounds is dropped; the gap in the offsets shows it."""
        claim, written = self.written.get(id, (claim_id, 0))
        if claim != claim_id:
            written = 0
        self.written[id] = (claim_id, written + len(data))
        data = data[: max(0, ATTEMPT_BYTES - written)]
        if data and self._waiting < WAITING_BYTES:
            self._chunks.append(OutputChunk(id, claim_id, stream, written, data))
            self._waiting += len(data)

    def progress(self, id: str, claim_id: int, done: float, total: float | None, message: str | None) -> None:
        self._progress[id] = ProgressNote(id, claim_id, done, total, message)

    def end(self, ids: list[str]) -> None:
        """Forget how much these jobs wrote: they ended, and nothing more comes under their claims."""
        for id in ids:
            self.written.pop(id, None)

    def take(self) -> list[Frame]:
        """Return everything that waits, as frames of bounded size, and forget it."""
        frames: list[Frame] = []
        batch: list[OutputChunk] = []
        size = 0
        for chunk in self._chunks:
            batch.append(chunk)
            size += len(chunk.data)
            if size >= FRAME_BYTES:
                frames.append(Output(batch))
                batch, size = [], 0
        if batch:
            frames.append(Output(batch))
        if self._progress:
            frames.append(Progress(list(self._progress.values())))
        self._chunks, self._waiting, self._progress = [], 0, {}
        return frames
