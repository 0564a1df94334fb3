"""What workers say of their attempts and what they are told, heard on the lines that lead through a run's own proxies.

The frames are written down where they pass: a report before it is handed on, so whatever reached a coordinator is here, and
an acknowledgement as soon as a coordinator has sent it, whether its worker hears it or not.
"""

import time
from collections.abc import Callable, Generator
from typing import Final

from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from stoker.wire import codec, frames
from stoker.worker.connection import PATH
from tests.checkers.history import Ack, Told
from tests.support.frames import reported

LONGEST_LINE: Final = 64 * 1024
_TO_CONNECT: Final = f"GET {PATH} ".encode()


class Ears:
    """Everything that was heard, on all lines."""

    def __init__(self) -> None:
        self.reports: list[Told] = []
        self.acks: list[Ack] = []
        self.misheard: list[str] = []
        """What could not be read. The lists above are complete only when this is empty."""
        self.sent: dict[tuple[str, int], list[frames.Report]] = {}
        """By session and number: what was sent on one line may be acknowledged on the next."""

    def listen(self) -> "Tap":
        return Tap(self)


class Tap:
    """Listens to one connection through a proxy; what is no worker's is left alone."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._worker = self._session = ""
        self._streams: dict[str, Stream] = {}
        self._is_new = True

    def up(self, data: bytes) -> None:
        """To the coordinator."""
        if self._is_new and data.startswith(_TO_CONNECT):
            self._streams = {"up": Stream(self._said, masked=True), "down": Stream(self._told, masked=False)}
        self._is_new = False
        self._feed("up", data)

    def down(self, data: bytes) -> None:
        """To the worker."""
        self._feed("down", data)

    def _feed(self, way: str, data: bytes) -> None:
        if way not in self._streams:
            return
        try:
            self._streams[way].feed(data)
        except Exception as error:  # noqa: BLE001 - the line must go on, and the run must know
            self._streams = {}
            self._ears.misheard.append(f"{way}, {self._worker}: {type(error).__name__}: {error}")

    def _said(self, data: bytes) -> None:
        frame = codec.decode_from_worker(data)
        if isinstance(frame, frames.Hello):
            self._worker, self._session = frame.name, frame.session
        elif isinstance(frame, frames.Reports):
            reports = self._ears.sent[self._session, frame.number] = reported(frame)
            now = time.monotonic()
            self._ears.reports += [Told(now, self._worker, r.id, r.claim_id, r.kind) for r in reports]

    def _told(self, data: bytes) -> None:
        frame = codec.decode_to_worker(data)
        if not isinstance(frame, frames.Ack):
            return
        stale = {(ref.id, ref.claim_id) for ref in frame.stale}
        now = time.monotonic()
        self._ears.acks += [
            Ack(now, self._worker, r.id, r.claim_id, r.kind, (r.id, r.claim_id) in stale)
            for r in self._ears.sent[self._session, frame.number]
        ]


class Stream:
    """One direction of a WebSocket: the lines of the handshake, and then frames."""

    def __init__(self, hear: Callable[[bytes], None], *, masked: bool) -> None:
        self._hear = hear
        self._masked = masked
        self._reader = StreamReader()
        self._reading = self._read()

    def feed(self, data: bytes) -> None:
        self._reader.feed_data(data)
        next(self._reading, None)

    def _read(self) -> Generator[None, None, None]:
        first = yield from self._reader.read_line(LONGEST_LINE)
        while (yield from self._reader.read_line(LONGEST_LINE)).strip():
            pass
        if not (self._masked or b" 101 " in first):
            return  # the coordinator has refused; what follows is no frame
        while True:
            frame = yield from Frame.parse(self._reader.read_exact, mask=self._masked)
            if frame.opcode is Opcode.BINARY and frame.fin:
                self._hear(bytes(frame.data))
            elif frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
                raise ValueError("a frame in pieces, or of text, which no part of this run sends")
