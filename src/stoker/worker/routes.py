"""Which type of job runs where in this worker. Pure: made once, from the settings and from what the children said
they can do.

A task of the user's app goes first, because the user wrote it; then a command that the operator bound to the type;
then the native runner; then the same type in Python. A configured runner (`EXECUTION_BINARY`) that lists its types takes the
native runner's place for those; one that does not list them takes every type that neither the app nor a command has, the
built-in ones included.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

import msgspec
import structlog

from stoker.wire.frames import MAX_FRAME_BYTES, TypeNote
from stoker.wire.schedules import DeclaredSchedule

log = structlog.get_logger()

Executor = Literal["python", "async", "native", "runner", "command"]
"""`python`: warm children. `async`: one child for many tasks. `native`: warm runners. `runner`: a foreign runner, one
process per job. `command`: an argv of the operator's, one process per job."""


MAX_NOTES_BYTES: Final = MAX_FRAME_BYTES // 4


class Routes(msgspec.Struct, frozen=True):
    by_type: dict[str, Executor]
    commands: dict[str, tuple[str, ...]]
    rest: Executor = "python"
    """The executor of all types that are not in `by_type`."""

    def executor(self, type: str) -> Executor:
        return self.by_type.get(type, self.rest)

    @property
    def any_type(self) -> bool:
        """Whether this worker takes types that it does not name."""
        return self.rest == "runner"

    @property
    def types(self) -> list[str]:
        return sorted(self.by_type)

    @property
    def async_types(self) -> list[str]:
        return sorted(type for type, executor in self.by_type.items() if executor == "async")


def notes(about: Mapping[str, object], routes: Routes) -> dict[str, TypeNote]:
    """Return what the hello says of the types of the user's app, within what a frame has room for. Where not all fits, the
    defaults of the jobs still do. What cannot be read is left out: a job runs without it."""
    told = {type: note for type, item in about.items() if (note := _note(item)) is not None}
    found = {
        type: TypeNote(defaults=note.defaults)
        for type, note in told.items()
        if routes.executor(type) in ("python", "async")
    }
    room = MAX_NOTES_BYTES - len(msgspec.json.encode(found))
    for type in found:
        room -= len(msgspec.json.encode(told[type]))
        if room >= 0:
            found[type] = told[type]
    return found


def _note(told: object) -> TypeNote | None:
    try:
        note = msgspec.convert(told, TypeNote)
        msgspec.json.encode(note)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return note


def routes(
    *,
    python_types: Collection[str],
    builtin_types: Collection[str],
    async_types: Collection[str],
    native_types: Collection[str],
    runner_types: Collection[str],
    commands: Mapping[str, tuple[str, ...]],
    any_type: bool = False,
) -> Routes:
    """Return which executor runs which type. `python_types` are all that a Python child can run, `builtin_types` those of
    them that are not the user's. With `any_type` the runner takes every type that no other executor has."""
    chosen: dict[str, Executor] = {}
    own = set(python_types) - set(builtin_types)
    for type in own if any_type else python_types:
        chosen[type] = "async" if type in async_types else "python"
    for executor, types in (("native", native_types), ("runner", runner_types), ("command", commands)):
        for type in types:
            if type not in own:
                chosen[type] = executor  # type: ignore[assignment]  # the literals above are executors
    return Routes(chosen, dict(commands), "runner" if any_type else "python")


def declared(told: Iterable[object]) -> list[DeclaredSchedule]:
    """Return the schedules that an app declares, as a child told them; one that cannot be read is left out."""
    found: list[DeclaredSchedule] = []
    for item in told:
        try:
            found.append(msgspec.convert(item, DeclaredSchedule))
        except msgspec.ValidationError as error:
            log.warning("schedule_unreadable", detail=str(error))
    return found
