"""Lets one parameter of a command stand for a group of options.

A parameter whose type is a dataclass becomes one option for each field of it, in the place of the parameter: commands that
share options name the group, and a command with thirty options has a signature that fits on a screen.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import typer

_Function = TypeVar("_Function", bound=Callable[..., None])


def command(app: typer.Typer, name: str | None = None, **settings: Any) -> Callable[[_Function], _Function]:
    """Add the decorated function to the app as a command; it stays callable as it was written."""
    return _registered(app.command(name, **settings))


def group(app: typer.Typer) -> Callable[[_Function], _Function]:
    """Let the decorated function run before the commands of the app, and also when none is given."""
    return _registered(app.callback(invoke_without_command=True))


def _registered(register: Callable[[Callable[..., None]], object]) -> Callable[[_Function], _Function]:
    def add(function: _Function) -> _Function:
        register(_ungrouped(function))
        return function

    return add


def _ungrouped(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with a parameter for each option, as Typer reads it."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if dataclasses.is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            parameters += _fields(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def call(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        function(**given, **made)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def _fields(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(kind)
    ]
