"""What can be submitted: every type that somebody serves or has described, and the built-in ones. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from stoker.domain.builtin_types import ALIASES, BUILTIN_TYPES, is_built_in
from stoker.store.base import NO_NOTE, Session
from stoker.wire.frames import TypeNote

MAX_NOTE_BYTES: Final = 64 * 1024
MAX_NOTES: Final = 1_000

_notes: Final = msgspec.json.Decoder(TypeNote)


class TypeState(msgspec.Struct, frozen=True):
    type: str
    description: str | None
    workers: int
    """Live ones that serve it."""
    built_in: bool
    schema: Mapping[str, Any] | None
    example: Any
    run_p50_us: int | None


def notes_to_store(types: Iterable[str], schemas: Mapping[str, TypeNote]) -> dict[str, bytes]:
    """What a worker says of its types, as it is kept: that there are such, whoever serves them later, and a note of each. A
    note that is too large is left out: it only helps to fill in a form."""
    kept = dict.fromkeys(islice((type for type in types if not is_built_in(type)), MAX_NOTES), NO_NOTE)
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
    """Every type, in the order of names, second names of built-in ones aside. A task of somebody's app goes before a
    built-in type of the same name."""
    serving = Counter(type for row in sessions if row.status == "live" for type in row.types)
    names = sorted(({*serving, *BUILTIN_TYPES} - ALIASES.keys()) | notes.keys())
    return [_state(name, serving[name], notes.get(name), run_p50_us(name)) for name in names]


def _state(name: str, workers: int, noted: bytes | None, run_p50_us: int | None) -> TypeState:
    if noted is not None:
        note = _notes.decode(noted)
        return TypeState(name, note.description, workers, False, note.schema, None, run_p50_us)
    built_in = BUILTIN_TYPES.get(name)
    if built_in is None:
        return TypeState(name, None, workers, False, None, None, run_p50_us)
    return TypeState(name, built_in.description, workers, True, built_in.schema, built_in.example, run_p50_us)
