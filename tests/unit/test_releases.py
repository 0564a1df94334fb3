"""Releases of one protocol version understand each other, in both directions.

`tests/releases/415fc45.json` holds what an earlier release says and which fields it knows, recorded with its own code. That
release refuses every field that it does not know, so nothing new may be said to it unasked.
"""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from stoker.wire import codec, frames
from stoker.wire.frames import FromWorker, Hello, ToWorker, Welcome, older_hello
from stoker.worker.connection import Dialer, NotAllowed

EARLIER = json.loads((Path(__file__).parents[1] / "releases" / "415fc45.json").read_text(encoding="utf-8"))
FIELDS: dict[str, list[str]] = EARLIER["fields"]
SAID = [(side, row) for side in ("from_worker", "to_worker") for row in EARLIER[side]]
DECODE = {"from_worker": codec.decode_from_worker, "to_worker": codec.decode_to_worker}
NAMES = [f"{side}-{row['frame']}" for side, row in SAID]


# ── what an earlier release says ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("side", "row"), SAID, ids=NAMES)
def test_what_an_earlier_release_says_is_understood(side: str, row: dict[str, Any]) -> None:
    frame = DECODE[side](bytes.fromhex(row["binary"]))
    assert type(frame).__name__.lower() == row["frame"]
    said = msgspec.msgpack.decode(bytes.fromhex(row["binary"]))
    understood = msgspec.msgpack.decode(codec.encode(frame))
    assert {key: value for key, value in said.items() if value} == {
        key: value for key, value in understood.items() if value
    }
    if row["text"] is not None:
        assert DECODE[side](row["text"]) == frame


# ── what this release says to an earlier one ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("side", "row"), SAID, ids=NAMES)
def test_nothing_is_said_to_an_earlier_release_that_it_would_refuse(side: str, row: dict[str, Any]) -> None:
    frame = DECODE[side](bytes.fromhex(row["binary"]))
    fields = msgspec.msgpack.decode(codec.encode(frame)).keys() - {"frame"}
    assert fields <= set(FIELDS[type(frame).__name__])


RENAMED = {"AssignmentLot": "AssignmentBatch"}
"""Structs whose name, which is not sent, changed since; the names of their fields on the wire did not."""
STRUCTS = [(getattr(frames, RENAMED.get(name, name)), known) for name, known in FIELDS.items()]


@pytest.mark.parametrize(("struct", "known"), STRUCTS, ids=list(FIELDS))
def test_a_new_field_has_a_default_and_is_left_out_while_it_has_it(struct: Any, known: list[str]) -> None:
    assert list(struct.__struct_encode_fields__[: len(known)]) == known, "fields are added at the end"
    new = [field for field in msgspec.structs.fields(struct) if field.encode_name not in known]
    assert all(not field.required for field in new)
    config = struct.__struct_config__
    assert not new or (config.omit_defaults and not config.array_like)
    assert not config.forbid_unknown_fields


def test_every_kind_of_frame_is_known_to_the_earlier_release() -> None:
    """A new kind may be sent only to a peer that said that it knows it; then it is listed here."""
    assert {kind.__name__ for union in (FromWorker, ToWorker) for kind in get_args(union)} <= FIELDS.keys()


def test_an_older_hello_has_the_fields_of_the_earlier_release() -> None:
    hello = Hello(1, "s-1", "box", 4, ["echo"], batches=True, secret="a secret that is new to it")
    older = msgspec.msgpack.decode(codec.encode(older_hello(hello)))
    assert older.keys() <= {"frame", *FIELDS["Hello"]}
    assert older["lots"] is True


# ── what a later release may say ───────────────────────────────────────────────────────────────────────────────────


def later(value: Any) -> Any:
    """The same with a field more in every map but those whose keys are free."""
    if isinstance(value, dict):
        return {key: later(item) for key, item in value.items()} | {"from_a_later_release": [1]}
    return [later(item) for item in value] if isinstance(value, list) else value


FREE = ("schemas", "labels", "metadata")
"""Maps whose keys mean something."""


@pytest.mark.parametrize(("side", "row"), SAID, ids=NAMES)
def test_fields_of_a_later_release_are_ignored(side: str, row: dict[str, Any]) -> None:
    frame = DECODE[side](bytes.fromhex(row["binary"]))
    said = msgspec.msgpack.decode(bytes.fromhex(row["binary"]))
    free = {name: said[name] for name in FREE if name in said}
    more = {**later({key: value for key, value in said.items() if key not in FREE}), **free}
    if row["frame"] != "assign":  # an assignment has a map of that kind inside
        assert DECODE[side](msgspec.msgpack.encode(more)) == frame
    assert DECODE[side](msgspec.msgpack.encode({**said, "from_a_later_release": {"x": 1}})) == frame


@pytest.mark.parametrize(
    "text",
    [
        '{"frame":"heartbeat","number":"1","threads_used":1,"held":[],"later":1}',
        '{"frame":"heartbeat","threads_used":1,"held":[],"later":1}',
        '{"frame":"hello","protocol":1,"session":"s","name":"n","threads":"many","types":[],"later":1}',
        '{"frame":"hello","protocol":1,"session":"s","name":"n","threads":1,"types":[],"secret":"short"}',
        '{"frame":"of_a_later_release"}',
    ],
)
def test_what_is_of_the_wrong_type_is_refused_all_the_same(text: str) -> None:
    with pytest.raises(codec.BadFrame):
        codec.decode_from_worker(text)


# ── a worker of this release and an earlier coordinator ────────────────────────────────────────────────────────────


class Coordinator:
    """Answers each hello in turn: a close, or a welcome."""

    def __init__(self, *answers: Close | Welcome | frames.Refused) -> None:
        self._answers = list(answers)
        self.heard: list[dict[str, Any]] = []

    async def connect(self, url: str, **_: Any) -> "Coordinator":
        return self

    async def send(self, data: bytes) -> None:
        self.heard.append(msgspec.msgpack.decode(data))

    async def recv(self) -> bytes:
        answer = self._answers.pop(0)
        if isinstance(answer, Close):
            raise ConnectionClosedError(answer, None)
        return codec.encode(answer)

    async def close(self) -> None:
        pass


HELLO = Hello(1, "s-1", "box", 4, ["echo"], batches=True, secret="a secret that is new to it")
WELCOME = Welcome(1, "s-1", 6.0, 30.0, 1_000)
UNKNOWN = Close(1002, "not a frame that a worker may send: Object contains unknown field `secret`")


async def dialled(coordinator: Coordinator) -> Welcome:
    dialer = Dialer(("http://c1",), None, connect=coordinator.connect, spread=lambda: 0.0)
    _, welcome = await dialer.dial(lambda: HELLO)
    return welcome


async def test_a_worker_says_hello_again_without_what_an_earlier_coordinator_does_not_know() -> None:
    coordinator = Coordinator(UNKNOWN, WELCOME)
    assert await dialled(coordinator) == WELCOME
    full, plain = coordinator.heard
    assert ("secret" in full, plain.keys() <= {"frame", *FIELDS["Hello"]}) == (True, True)


async def test_each_dial_begins_with_all_for_the_coordinator_may_have_been_upgraded() -> None:
    coordinator = Coordinator(UNKNOWN, Close(1012, "restarting"), WELCOME)
    await dialled(coordinator)
    assert ["secret" in hello for hello in coordinator.heard] == [True, False, True]


@pytest.mark.parametrize("close", [Close(1002, "no hello"), Close(1011, "unknown field"), Close(1012, "")])
async def test_what_else_ends_a_connection_is_no_reason_to_say_less(close: Close) -> None:
    """Without its secret a session that has one would be refused."""
    coordinator = Coordinator(close, WELCOME)
    await dialled(coordinator)
    assert ["secret" in hello for hello in coordinator.heard] == [True, True]


async def test_a_coordinator_that_refuses_also_the_older_hello_is_tried_again_later() -> None:
    coordinator = Coordinator(UNKNOWN, UNKNOWN, frames.Refused("not here"))
    with pytest.raises(NotAllowed):
        await dialled(coordinator)
    assert len(coordinator.heard) == 3
