"""What an app refuses, and what it is made of: options, tasks of several modules, context variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from stoker import Stoker
from stoker.client.errors import ArgumentError, TaskError
from stoker.context import JobContext
from tests.unit.fake_api import FakeApi, fake_api

tenant: ContextVar[Any] = ContextVar("tenant")


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as api:
        yield api


UNTYPED: Any = Stoker
"""Type checkers refuse most of this too; see `tests/typing`."""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: UNTYPED(lifspan=None), "Stoker has no option 'lifspan'; did you mean lifespan?"),
        (
            lambda: UNTYPED(retries=3),
            "Stoker has no option 'retries'; there are url, token, name, version, lifespan, context",
        ),
        (
            lambda: UNTYPED().task(max_atempts=3),
            "@app.task has no option 'max_atempts'; did you mean max_attempts?",
        ),
        (
            lambda: UNTYPED().submit("x", prioritty=1),
            "app.submit has no option 'prioritty'; did you mean priority?",
        ),
        (lambda: UNTYPED(lifespan=3), "give a function that takes the app and is a context manager"),
        (lambda: UNTYPED(context=["tenant"]), "takes variables, contextvars.ContextVar, not 'tenant'"),
        (lambda: UNTYPED(context=[ContextVar("two words")]), "'two words' cannot travel under this name"),
        (lambda: UNTYPED(context=[tenant, ContextVar("tenant")]), "two context variables named 'tenant'"),
        (lambda: UNTYPED().middleware(lambda job: 1), "must take two arguments"),
        (lambda: UNTYPED().on_failure(3), "@app.on_failure decorates a function, not 3"),
        (lambda: UNTYPED().task(classmethod(print)), "is a class method, which a worker cannot call"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(call: Callable[[], object], says: str) -> None:
    with pytest.raises((TaskError, ArgumentError)) as caught:
        call()
    assert says in str(caught.value)


def test_two_tasks_of_one_name_are_shown_with_both_places() -> None:
    app, other = Stoker(), Stoker()

    @app.task
    def send() -> None: ...

    @other.task(name="send")
    def another() -> None: ...

    for define in (lambda: app.include(other), lambda: app.task(name="send")(lambda: None)):
        with pytest.raises(TaskError) as caught:
            define()
        first, _, second = str(caught.value).partition(" and at ")
        assert f"two tasks named 'send', at {__file__}:{send.function.__code__.co_firstlineno}" in first
        assert second.startswith(f"{__file__}:")
    assert other._parent is None, "a refused app is not included"


def test_an_included_app_submits_through_the_outer_one_also_tasks_that_come_later(api: FakeApi) -> None:
    app, inner = Stoker(api.url), Stoker()
    app.include(inner)

    @inner.task
    def later(x: int) -> int:
        return x

    urgent = later.options(priority=0)
    assert app.tasks["later"] is later
    with app:
        assert urgent.submit(1).info.priority == 0
    with pytest.raises(TaskError, match="cannot include itself"):
        inner.include(app)
    with pytest.raises(TaskError, match="included already"):
        Stoker().include(inner)


def test_context_variables_are_captured_into_metadata(api: FakeApi) -> None:
    with Stoker(api.url, context=[tenant]) as app:

        @app.task(metadata={"team": "a"})
        def work() -> None: ...

        work.submit()
        token = tenant.set({"id": 7})
        work.submit_many([{}, {}])
        app.submit("other")
        with pytest.raises(ArgumentError, match="is for context variables"):
            work.options(metadata={"stoker.context.tenant": "me"})
        for value, says in ((object(), "is not JSON"), ("x" * 300, "302 characters as JSON, and 256")):
            tenant.set(value)
            with pytest.raises(ArgumentError, match=says) as caught:
                work.submit()
            assert caught.value.parameter == "tenant"
        tenant.reset(token)
    sent = [job.get("metadata") for job in api.jobs.values()]
    context = {"stoker.context.tenant": '{"id":7}'}
    assert sent == [{"team": "a"}, {**context, "team": "a"}, {**context, "team": "a"}, context]


def test_a_job_sees_its_context_by_name() -> None:
    metadata = {"stoker.context.tenant": '{"id":7}', "stoker.context.by_hand": "text", "team": "a"}
    job = JobContext("id", 1, "t", 1, 1, 1, "default", None, metadata)
    assert job.context == {"tenant": {"id": 7}, "by_hand": "text"}
