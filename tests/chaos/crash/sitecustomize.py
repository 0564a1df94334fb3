"""Kills this process at a named point of the code, without a line in the code itself.

A folder with a file of this name on `PYTHONPATH` is all it takes: Python imports it before anything else.
`STOKER_CRASH_AT=name` names the point (`tests/chaos/points.py` has them all), `STOKER_CRASH_COUNT=n` the time it is reached
for. The point is a function, before or after which the process ends as if by `kill -9`. The functions around a commit are
told which verbs are in the transaction.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

Wanted = tuple[str, str, str, str]
"""Module, function in it, `before` or `after`, and what must be under way (a verb, an argument), or nothing."""

verbs: ContextVar[frozenset[str]] = ContextVar("verbs", default=frozenset())
"""Of the transaction under way, in the task that runs it: two may be under way at once."""
left = int(os.environ.get("STOKER_CRASH_COUNT", "1"))


def reached() -> None:
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def is_meant(condition: str, arguments: Sequence[Any]) -> bool:
    """`verb:insert`: the transaction has such a command. `kind:Ack`: an argument is of this type."""
    kind, _, value = condition.rpartition(":")
    if kind == "verb" and value not in verbs.get():
        return False
    if kind == "kind":
        return any(type(argument).__name__ == value for argument in arguments)
    return True


def wrapped(function: Callable[..., Any], when: str, conditions: list[str]) -> Callable[..., Any]:
    def crash(moment: str, arguments: Sequence[Any]) -> None:
        if when == moment and all(is_meant(condition, arguments) for condition in conditions):
            reached()

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*arguments: Any, **more: Any) -> Any:
            crash("before", arguments)
            result = await function(*arguments, **more)
            crash("after", arguments)
            return result

        return later

    @functools.wraps(function)
    def now(*arguments: Any, **more: Any) -> Any:
        crash("before", arguments)
        result = function(*arguments, **more)
        crash("after", arguments)
        return result

    return now


def noting_verbs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Around `transact(self, commands, alone)`: what is in the transaction."""

    @functools.wraps(function)
    async def noted(self: Any, commands: Sequence[Any], alone: bool) -> Any:
        verbs.set(frozenset(command.step.__name__ for command in commands))
        return await function(self, commands, alone)

    return noted


def change(module: ModuleType, path: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    *owners, name = path.split(".")
    owner: Any = functools.reduce(getattr, owners, module)
    setattr(owner, name, wrap(getattr(owner, name)))


class Hook(importlib.abc.MetaPathFinder):
    """Changes functions of a module as soon as it is imported."""

    def __init__(self, changes: dict[str, list[tuple[str, Callable[[Any], Any]]]]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._changes:
            return None
        changes = self._changes.pop(name)
        spec = importlib.util.find_spec(name)  # asks everybody else, for this one does not answer twice
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def then_change(module: ModuleType) -> None:
            execute(module)
            for place, wrap in changes:
                change(module, place, wrap)

        spec.loader.exec_module = then_change  # type: ignore[method-assign]
        return spec


def install(text: str) -> None:
    """`text` is `module|function|before or after|condition|condition …`."""
    module, function, when, *conditions = text.split("|")
    changes: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
        "stoker.store.sqlite.store": [("SqliteStore._transact", noting_verbs)],
        "stoker.store.postgres.writer": [("PostgresWriter.transact", noting_verbs)],
    }
    changes.setdefault(module, []).append(
        (function, lambda found: wrapped(found, when, [c for c in conditions if c]))
    )
    sys.meta_path.insert(0, Hook(changes))


if os.environ.get("STOKER_CRASH_AT"):
    install(os.environ["STOKER_CRASH_AT"])
