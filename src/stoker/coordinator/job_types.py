"""What can be submitted: every type that somebody serves or has described, and the built-in ones. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from stoker.domain.builtin_types import BUILTIN_TYPES
from stoker.store.base import Session
from stoker.wire.frames import TypeNote

MAX_NOTE_BYTES: Final = 64 * 1024
MAX_NOTES: Final = 1_000

_notes: Final = msgspec.json.Decoder(TypeNote)


class TypeState(msgspec.Struct, frozen=True):
    type: str
    description: str | None
    workers: int
    """Live ones that serve it: those that name it or, if none does, those that take any type."""
    built_in: bool
    schema: Mapping[str, Any] | None
    example: Any
    run_p50_us: int | None


def notes_to_store(schemas: Mapping[str, TypeNote]) -> dict[str, bytes]:
    """What a worker says of its types, as it is kept. What is too large is left out: it only helps to fill in a form."""
    kept: dict[str, bytes] = {}
    for type, note in list(schemas.items())[:MAX_NOTES]:
        text = _encoded(note)
        if text is not None and len(text) <= MAX_NOTE_BYTES:
            kept[type] = text
    return kept


def _encoded(note: TypeNote) -> bytes | None:
    try:
        return msgspec.json.encode(note)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def type_states(
    sessions: Iterable[Session], notes: Mapping[str, bytes], run_p50_us: Callable[[str], int | None]
) -> list[TypeState]:
    """Every type, in the order of names. A task of somebody's app goes before a built-in type of the same name."""
    live = [row for row in sessions if row.status == "live"]
    serving = Counter(type for row in live for type in row.types)
    any_type = sum(row.any_type for row in live)
    names = sorted({*serving, *notes, *BUILTIN_TYPES})
    return [_state(name, serving[name] or any_type, notes.get(name), run_p50_us(name)) for name in names]


def _state(name: str, workers: int, noted: bytes | None, run_p50_us: int | None) -> TypeState:
    if noted is not None:
        note = _notes.decode(noted)
        return TypeState(name, note.description, workers, False, note.schema, None, run_p50_us)
    built_in = BUILTIN_TYPES.get(name)
    if built_in is None:
        return TypeState(name, None, workers, False, None, None, run_p50_us)
    return TypeState(name, built_in.description, workers, True, built_in.schema, built_in.example, run_p50_us)
