"""The tap hears reports and acknowledgements as they pass, however the bytes are cut up."""

from websockets.frames import Frame, Opcode

from stoker.wire import codec, frames
from tests.chaos.tap import Ears, Tap

HELLO = frames.Hello(1, "s0", "w0", 5, ["mark"])
DONE = frames.Done(["a"], [1], [b"1"], [2], [1], [None], [None])
REPORTS = frames.Reports(7, [frames.Report("b", 2, "error")], DONE)


def sent(*told: frames.Frame, masked: bool) -> bytes:
    return b"".join(Frame(Opcode.BINARY, codec.encode(frame)).serialize(mask=masked) for frame in told)


def asked(path: str = "/workers/connect") -> bytes:
    return f"GET {path} HTTP/1.1\r\nUpgrade: websocket\r\n\r\n".encode()


def answered(status: str = "101 Switching Protocols") -> bytes:
    return f"HTTP/1.1 {status}\r\nUpgrade: websocket\r\n\r\n".encode()


def connect(tap: Tap, *told: frames.Frame) -> None:
    tap.up(asked())
    tap.down(answered())
    tap.up(sent(*told, masked=True))


def test_reports_and_acknowledgements_are_heard_with_the_name_of_the_worker() -> None:
    ears = Ears()
    tap = ears.listen()
    connect(tap, HELLO, REPORTS)
    tap.down(sent(frames.Renewed(1), frames.Ack(7, [frames.ClaimRef("b", 2)]), masked=False))
    assert [(r.worker, r.job, r.claim, r.kind) for r in ears.reports] == [
        ("w0", "a", 1, "completed"),
        ("w0", "b", 2, "error"),
    ]
    assert [(a.job, a.claim, a.kind, a.stale) for a in ears.acks] == [
        ("a", 1, "completed", False),
        ("b", 2, "error", True),
    ]
    assert ears.misheard == []


def test_a_frame_may_come_byte_by_byte() -> None:
    ears = Ears()
    tap = ears.listen()
    connect(tap)
    for byte in sent(HELLO, REPORTS, masked=True):
        tap.up(bytes([byte]))
    assert len(ears.reports) == 2
    assert ears.misheard == []


def test_what_was_sent_on_one_line_may_be_acknowledged_on_the_next() -> None:
    ears = Ears()
    connect(ears.listen(), HELLO, REPORTS)
    second = ears.listen()
    connect(second, HELLO)
    second.down(sent(frames.Ack(7), masked=False))
    assert [ack.job for ack in ears.acks] == ["a", "b"]


def test_clients_and_refusals_are_left_alone() -> None:
    ears = Ears()
    client = ears.listen()
    client.up(b'POST /jobs HTTP/1.1\r\n\r\n{"type": "mark"}')
    client.down(b"HTTP/1.1 202 Accepted\r\n\r\n{}")
    refused = ears.listen()
    refused.up(asked())
    refused.down(answered("503 Service Unavailable") + b'{"detail": "try again"}')
    refused.down(b"more")
    assert (ears.reports, ears.acks, ears.misheard) == ([], [], [])


def test_what_cannot_be_read_is_not_passed_over_in_silence() -> None:
    ears = Ears()
    tap = ears.listen()
    connect(tap, HELLO)
    tap.up(Frame(Opcode.BINARY, b"\xc1 no frame").serialize(mask=True))
    assert len(ears.misheard) == 1
