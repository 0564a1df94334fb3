"""Frames to bytes and back. A frame that cannot be read raises `BadFrame` with the reason, and nothing else."""

from typing import Any, Final, TypeVar

import msgspec

from stoker.wire.frames import Frame, FromWorker, ToWorker

T = TypeVar("T", bound=Frame)

_BINARY: Final = msgspec.msgpack.Encoder()
_FROM_WORKER: Final[msgspec.msgpack.Decoder[FromWorker]] = msgspec.msgpack.Decoder(FromWorker)
_TO_WORKER: Final[msgspec.msgpack.Decoder[ToWorker]] = msgspec.msgpack.Decoder(ToWorker)
# The fields that hold JSON: bytes in MessagePack, inline in JSON.
_INLINE: Final = ("payload", "result", "error")
_LISTS: Final = ("jobs", "reports")


class BadFrame(Exception):
    """Raised for a message that is not a frame of this protocol. The connection that sent it is closed."""


def encode(frame: Frame) -> bytes:
    return _BINARY.encode(frame)


def encode_text(frame: Frame) -> str:
    """Return the frame as JSON text, for workers written in languages where that is easier."""
    plain: dict[str, Any] = msgspec.to_builtins(frame, builtin_types=(bytes,))
    for items in (plain.get(name, ()) for name in _LISTS):
        for item in items:
            for field in _INLINE:
                if item.get(field) is not None:
                    item[field] = msgspec.Raw(item[field])
    return msgspec.json.encode(plain).decode()


def decode_from_worker(data: bytes | str) -> FromWorker:
    try:
        if isinstance(data, str):
            frame: FromWorker = msgspec.convert(_inlined(data), FromWorker)
            return frame
        return _FROM_WORKER.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise BadFrame(f"not a frame that a worker may send: {error}") from error


def decode_to_worker(data: bytes | str) -> ToWorker:
    try:
        if isinstance(data, str):
            frame: ToWorker = msgspec.convert(_inlined(data), ToWorker)
            return frame
        return _TO_WORKER.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise BadFrame(f"not a frame that a coordinator may send: {error}") from error


def _inlined(text: str) -> dict[str, Any]:
    """Return a JSON frame with its inline values turned back into bytes."""
    frame = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    plain: dict[str, Any] = {}
    for key, raw in frame.items():
        plain[key] = _items(raw) if key in _LISTS else msgspec.json.decode(raw)
    return plain


def _items(raw: msgspec.Raw) -> list[dict[str, Any]]:
    items = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
    return [{key: _value(key, raw) for key, raw in item.items()} for item in items]


def _value(key: str, raw: msgspec.Raw) -> Any:
    if key not in _INLINE:
        return msgspec.json.decode(raw)
    data = bytes(raw).strip()
    return None if data == b"null" and key != "payload" else data
