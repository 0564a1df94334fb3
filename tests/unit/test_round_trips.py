"""Every supported type, from the SDK to a worker and back, and by hand over REST: the same value arrives."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker import Stoker
from stoker.client.arguments import encode_arguments
from stoker.client.requests import JobInfo
from stoker.client.task import Task
from stoker.executors.results import result_encoder
from tests.support.typed_values import TYPES

app = Stoker(url="http://127.0.0.1:1")


def task_of(name: str) -> Task[..., Any]:
    """A task that takes and returns values of this type."""
    known = app.tasks.get(name.replace(" ", "_"))
    if known is not None:
        return known
    kind = TYPES[name][0]

    def echo(value, *more, key=None, **others):  # type: ignore[no-untyped-def]
        return value

    echo.__annotations__ = {"value": kind, "more": kind, "key": kind | None if kind else None, "return": kind}
    if name in ("union of models", "any", "none", "literal"):
        echo.__annotations__["key"] = kind
    task: Task[..., Any] = app.task(name=name.replace(" ", "_"))(echo)
    return task


def received(value: Any, *more: Any, key: Any) -> tuple[Any, ...]:
    return value, more, key


def as_stored(task: Task[..., Any], value: Any) -> Any:
    """What REST shows of a result that the worker stored."""
    return json.loads(result_encoder(task.returns)(value))


@pytest.mark.parametrize("name", TYPES)
def test_arguments_and_results_arrive_as_they_were_sent(name: str) -> None:
    task = task_of(name)

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        value, more = data.draw(TYPES[name][1]), data.draw(st.lists(TYPES[name][1], max_size=2))
        payload = encode_arguments(task.arguments, (value, *more), {"key": value})
        args, kwargs = task.bind(payload)
        assert received(*args, **kwargs) == (value, tuple(more), value)
        by_hand = json.dumps(json.loads(payload), ensure_ascii=False).encode()
        assert task.bind(by_hand) == (args, kwargs), "REST carries plain JSON"
        plain = as_stored(task, value)
        answer = json.dumps({"id": "x", "type": task.name, "status": "completed", "result": plain})
        result = task.result_of(msgspec.json.decode(answer, type=JobInfo))
        assert result == value
        assert type(result) is type(value)

    check()


@settings(max_examples=5, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(values=st.fixed_dictionaries({name: strategy for name, (_, strategy) in TYPES.items()}))
def test_the_kit_carries_values_of_every_type(values: dict[str, Any]) -> None:
    tasks = {name: task_of(name) for name in values}
    with app.testing() as t:
        jobs = {name: tasks[name].submit(value, value, key=value) for name, value in values.items()}
        for name, value in values.items():
            (enqueued,) = t.enqueued(tasks[name])
            assert enqueued.arguments == {"value": value, "more": (value,), "key": value}, name
        t.run_until_idle()
        for name, value in values.items():
            result = jobs[name].result()
            assert result == value, name
            assert type(result) is type(value), name


def test_what_a_model_of_another_kind_says_names_the_field() -> None:
    task = task_of("nested")
    with pytest.raises(
        TypeError, match=r"argument 'value\[\.\.\.\]\[0\]\[0\]\.points\[0\]\.x': expected `int`, got `str`"
    ):
        task.bind(json.dumps({"value": {"a": [[{"name": "n", "points": [{"x": "1"}]}, None]]}}).encode())
