"""What can be submitted: every type that a worker serves or has announced, and the built-in ones. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from stoker.domain.builtin_types import ALIASES, BUILTIN_TYPES, is_built_in
from stoker.domain.job import NO_DEFAULTS, JobDefaults
from stoker.store.sessions import NO_NOTE, Session
from stoker.wire.frames import TypeNote

MAX_NOTE_BYTES: Final = 64 * 1024
MAX_NOTES: Final = 1_000

_notes: Final = msgspec.json.Decoder(TypeNote)
_NOTHING: Final = TypeNote()
_DEFAULTS_KEY: Final = b'"defaults":'


class TypeState(msgspec.Struct, frozen=True):
    """One job type, as `/types` shows it."""

    type: str
    description: str | None
    workers: int
    """Live ones that serve it: those that name it or, if none does, those that take any type."""
    built_in: bool
    schema: Mapping[str, Any] | None
    example: Any
    run_p50_us: int | None
    defaults: JobDefaults = NO_DEFAULTS


def notes_to_store(types: Iterable[str], schemas: Mapping[str, TypeNote]) -> dict[str, bytes]:
    """Return the notes to store of a worker's types: one for each type, so that it stays known when its worker has left.
    Of a note that is too large only the defaults are kept: the rest only helps to fill in a form."""
    kept = dict.fromkeys(islice((type for type in types if not is_built_in(type)), MAX_NOTES), NO_NOTE)
    for type, note in _first_those_with_defaults(schemas)[:MAX_NOTES]:
        text = _encoded(note)
        fits = text is not None and len(text) <= MAX_NOTE_BYTES
        kept[type] = text if text and fits else msgspec.json.encode(TypeNote(defaults=note.defaults))
    return kept


def _first_those_with_defaults(schemas: Mapping[str, TypeNote]) -> list[tuple[str, TypeNote]]:
    return sorted(schemas.items(), key=lambda item: item[1].defaults == NO_DEFAULTS)


def defaults_in(notes: Mapping[str, bytes]) -> dict[str, JobDefaults]:
    """Return what is announced for the jobs of types, by the notes that are kept; types without are left out."""
    found = {type: _read(note).defaults for type, note in notes.items() if _DEFAULTS_KEY in note}
    return {type: defaults for type, defaults in found.items() if defaults != NO_DEFAULTS}


def _read(note: bytes) -> TypeNote:
    """A note that another release wrote may say what this one does not understand: then nothing is known of the type."""
    try:
        return _notes.decode(note)
    except msgspec.DecodeError:
        return _NOTHING


def _encoded(note: TypeNote) -> bytes | None:
    try:
        return msgspec.json.encode(note)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def type_states(
    sessions: Iterable[Session], notes: Mapping[str, bytes], run_p50_us: Callable[[str], int | None]
) -> list[TypeState]:
    """Return every type, in the order of names, without the aliases of built-in ones. A type that an application announced
    goes before a built-in type of the same name."""
    live = [row for row in sessions if row.status == "live"]
    serving = Counter(type for row in live for type in row.types)
    any_type = sum(row.any_type for row in live)
    names = sorted(({*serving, *BUILTIN_TYPES} - ALIASES.keys()) | notes.keys())
    return [_state(name, serving[name] or any_type, notes.get(name), run_p50_us(name)) for name in names]


def _state(name: str, workers: int, noted: bytes | None, run_p50_us: int | None) -> TypeState:
    if noted is not None:
        note = _read(noted)
        return TypeState(name, note.description, workers, False, note.schema, None, run_p50_us, note.defaults)
    built_in = BUILTIN_TYPES.get(name)
    if built_in is None:
        return TypeState(name, None, workers, False, None, None, run_p50_us)
    return TypeState(name, built_in.description, workers, True, built_in.schema, built_in.example, run_p50_us)
