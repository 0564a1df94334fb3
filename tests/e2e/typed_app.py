"""A task for every supported type: it returns what it was given."""

from typing import Any

from stoker import Stoker
from stoker.client.task import Task
from tests.support.typed_values import TYPES

app = Stoker()


def echo_of(name: str, kind: Any) -> Task[..., Any]:
    def echo(value):  # type: ignore[no-untyped-def]
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    task: Task[..., Any] = app.task(name=name.replace(" ", "_"))(echo)
    return task


ECHOES = {name: echo_of(name, kind) for name, (kind, _) in TYPES.items()}
