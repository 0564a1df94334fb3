"""What is said of job types: by the table of the built-in ones, by tasks of themselves, and to whom who asks."""

import asyncio
import json
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from stoker import Stoker, context
from stoker.client.task import Task
from stoker.context import JobContext
from stoker.coordinator.job_types import (
    MAX_NOTE_BYTES,
    MAX_NOTES,
    defaults_in,
    notes_to_store,
    type_states,
)
from stoker.coordinator.run_times import RunTimes
from stoker.domain.builtin_types import ALIASES, BUILTIN_TYPES
from stoker.domain.job import JobDefaults
from stoker.executors.builtin import BUILTINS, PayloadRefused
from stoker.store.sessions import NO_NOTE, Session
from stoker.wire.frames import MAX_FRAME_BYTES, TypeNote
from stoker.worker.routes import notes, routes
from tests.support.clock import START_US
from tests.unit.test_api_service import FakeService, ask

# ── the built-in ones ────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_built_in_type_is_described_and_nothing_else() -> None:
    assert BUILTIN_TYPES.keys() | ALIASES.keys() == BUILTINS.keys()


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_a_second_name_runs_the_same(alias: str) -> None:
    assert BUILTINS[alias] is BUILTINS[ALIASES[alias]]


@pytest.mark.parametrize("name", sorted(BUILTIN_TYPES))
def test_examples_fit_their_schema_and_their_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = BUILTIN_TYPES[name]
    jsonschema.Draft202012Validator.check_schema(known.schema)
    jsonschema.validate(known.example, known.schema)
    if name != "fail":  # which does what it says
        monkeypatch.setattr(context, "_only", JobContext("j", 1, name, 1, 1, 1, "default", None, {}))
        assert msgspec.json.decode(BUILTINS[name](msgspec.json.encode(known.example)))


@pytest.mark.parametrize("name", sorted(BUILTIN_TYPES.keys() - {"echo"}))
def test_schemas_name_the_fields_that_the_type_knows(name: str) -> None:
    with pytest.raises(PayloadRefused, match="known are: ") as refused:
        BUILTINS[name](b'{"no such field": 1}')
    known = str(refused.value).partition("known are: ")[2].split(", ")
    assert sorted(BUILTIN_TYPES[name].schema["properties"]) == sorted(known)


@pytest.mark.parametrize("name", sorted(BUILTIN_TYPES.keys() - {"echo"}))
def test_bounds_are_those_of_the_type(name: str) -> None:
    for field, schema in BUILTIN_TYPES[name].schema["properties"].items():
        for bound, step in (("minimum", -1), ("maximum", 1)):
            if bound in schema:
                payload = {**_required(name), field: schema[bound] + step}
                with pytest.raises(PayloadRefused, match=field):
                    BUILTINS[name](msgspec.json.encode(payload))


def _required(name: str) -> dict[str, Any]:
    schema, example = BUILTIN_TYPES[name].schema, BUILTIN_TYPES[name].example
    return {field: example[field] for field in schema.get("required", [])}


# ── tasks of an app ──────────────────────────────────────────────────────────────────────────────────────────────────

app = Stoker()


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


@app.task
def paint(where: Point, colour: Colour = Colour.RED, layers: Annotated[int, msgspec.Meta(ge=1)] = 1) -> None:
    """Paints a point.

    Twice, if need be.
    """


@app.task
def anything(value, *, other=None, odd=object()):  # type: ignore[no-untyped-def]  # noqa: B008
    pass


@app.task
def with_rest(a: int, **rest: int) -> None:
    pass


@app.task
def nothing() -> None:
    pass


@app.task
async def later(items: list[str] | None = None) -> None:
    pass


def schema_of(task: Task[..., Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = task.about()["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def test_a_task_says_what_it_takes() -> None:
    about = paint.about()
    assert about["description"] == "Paints a point.\n\nTwice, if need be."
    schema = schema_of(paint)
    assert schema["required"] == ["where"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["layers"] == {"type": "integer", "minimum": 1, "default": 1}
    assert schema["properties"]["colour"]["default"] == "red"
    assert schema["$defs"]["Colour"]["enum"] == ["blue", "red"]
    assert schema_of(nothing) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert schema_of(anything)["properties"] == {"value": {}, "other": {"default": None}, "odd": {}}
    assert schema_of(with_rest)["additionalProperties"] is True
    assert later.about()["description"] is None


@pytest.mark.parametrize(
    ("task", "payload", "fits"),
    [
        (paint, {"where": {"x": 1}}, True),
        (paint, {"where": {"x": 1}, "colour": "blue", "layers": 3}, True),
        (paint, {"where": {"x": "1"}}, False),
        (paint, {"where": {"x": 1}, "layers": 0}, False),
        (paint, {"where": {"x": 1}, "colour": "green"}, False),
        (paint, {}, False),
        (paint, {"where": {"x": 1}, "more": 1}, False),
        (anything, {"value": [1, {}]}, True),
        (with_rest, {"a": 1, "b": 2}, True),
        (nothing, {}, True),
        (later, {"items": ["a"]}, True),
        (later, {"items": None}, True),
        (later, {"items": [1]}, False),
    ],
)
def test_a_schema_lets_through_what_the_worker_would_take(
    task: Task[..., Any], payload: dict[str, Any], fits: bool
) -> None:
    assert jsonschema.Draft202012Validator(schema_of(task)).is_valid(payload) is fits
    try:
        task.bind(json.dumps(payload).encode())
        taken = True
    except Exception:  # noqa: BLE001 - whatever it is, it is a no
        taken = False
    assert taken is fits


def test_what_a_call_sends_fits_the_schema() -> None:
    from stoker.client.arguments import encode_arguments

    payload = encode_arguments(paint.arguments, (Point(1, 2),), {"layers": 2})
    jsonschema.validate(json.loads(payload), schema_of(paint))


# ── on the way ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hello_has_what_fits_and_can_be_read() -> None:
    made = routes(
        python_types=["a", "b", "bound", "echo"],
        builtin_types=["echo"],
        async_types=["b"],
        native_types=["echo"],
        runner_types=[],
        commands={},
    )
    about = {
        "a": {"description": "A", "schema": {"type": "object"}},
        "b": {"description": None, "schema": None},
        "echo": {"description": "not the user's"},
        "bound": {"description": 5},
        "large": {
            "description": None,
            "schema": {"x": "y" * MAX_FRAME_BYTES},
            "defaults": {"queue": "mail"},
        },
    }
    assert notes(about, made) == {
        "a": TypeNote("A", {"type": "object"}),
        "b": TypeNote(),
        "large": TypeNote(defaults=JobDefaults(queue="mail")),
    }


def test_of_a_note_that_is_too_large_the_defaults_are_kept() -> None:
    large = TypeNote(schema={"x": "y" * MAX_NOTE_BYTES}, defaults=JobDefaults(priority=0))
    types = ["a", "b", "plain", "echo", "AddNumbers"]
    assert notes_to_store(types, {"a": TypeNote("A"), "b": large}) == {
        "a": b'{"description":"A"}',
        "b": b'{"defaults":{"priority":0}}',
        "plain": NO_NOTE,
    }
    many = {f"t{n}": TypeNote() for n in range(MAX_NOTES + 1)}
    kept = notes_to_store([], {**many, "last": large})
    assert len(kept) == len(notes_to_store(many, {})) == MAX_NOTES
    assert "last" in kept


def test_a_task_says_which_options_its_jobs_have() -> None:
    @app.task(
        queue="mail", priority=1, timeout_sec=30, memory_mb=None, labels={"gpu": "yes"}, on_oversize="wait"
    )
    def with_options() -> None: ...

    assert with_options.about()["defaults"] == {
        "queue": "mail",
        "timeout_sec": 30.0,
        "labels": {"gpu": "yes"},
        "on_oversize": "wait",
    }
    assert nothing.about()["defaults"] == {}
    assert with_options.options(priority=0, delay_sec=5, name="n").about()["defaults"]["priority"] == 0


def test_what_was_announced_is_found_in_the_notes_that_are_kept() -> None:
    stored = {
        "mail": b'{"description":"defaults","defaults":{"queue":"mail","of_a_later_release":1}}',
        "plain": b'{"schema":{"properties":{"defaults":{}}}}',
        "strange": b'{"defaults":{"priority":1000}}',
        "broken": b'{"defaults":',
    }
    assert defaults_in(stored) == {"mail": JobDefaults(queue="mail")}
    states = {state.type: state for state in type_states([], stored, lambda _: None)}
    assert states["mail"].defaults == JobDefaults(queue="mail")
    assert states["strange"].defaults == states["broken"].defaults == JobDefaults()


def a_session(id: str, *types: str, status: str = "live") -> Session:
    return Session(id, id, 1, types, None, {}, status, START_US, START_US)


def test_types_are_listed_with_who_serves_them() -> None:
    sessions = [
        a_session("1", "echo", "mine", "AddNumbers"),
        a_session("2", "mine"),
        a_session("3", "mine", status="lost"),
    ]
    noted = msgspec.json.encode({"description": "Mine.", "schema": {"type": "object"}})
    found = {
        state.type: state for state in type_states(sessions, {"mine": noted, "gone": b"{}"}, lambda _: None)
    }
    assert list(found) == sorted({*BUILTIN_TYPES, "mine", "gone"})
    mine = found["mine"]
    assert (mine.workers, mine.built_in, mine.description) == (2, False, "Mine.")
    assert (found["gone"].workers, found["gone"].schema) == (0, None)
    assert (found["echo"].workers, found["echo"].built_in) == (1, True)
    assert found["sleep"].workers == 0


def test_who_takes_any_type_serves_what_nobody_names() -> None:
    sessions = [a_session("1", "mine"), a_session("2", "other")]
    sessions[1] = msgspec.structs.replace(sessions[1], any_type=True)
    found = {state.type: state.workers for state in type_states(sessions, {"gone": b"{}"}, lambda _: None)}
    assert (found["mine"], found["other"], found["gone"], found["echo"]) == (1, 1, 1, 1)


def test_a_task_goes_before_a_built_in_type_of_its_name() -> None:
    (echo,) = [
        s for s in type_states([], {"echo": b'{"description":"Mine."}'}, lambda _: None) if s.type == "echo"
    ]
    assert (echo.built_in, echo.description, echo.example) == (False, "Mine.", None)


def test_the_answer_has_the_promised_shape() -> None:
    service = FakeService()
    service.notes = {
        "mine": b'{"description":"Mine.","schema":{"type":"object"},"defaults":{"queue":"mail"}}'
    }
    types = {row["type"]: row for row in ask(service, "GET", "/types").json()["types"]}
    assert types["mine"] == {
        "type": "mine",
        "description": "Mine.",
        "workers": 0,
        "built_in": False,
        "schema": {"type": "object"},
        "example": None,
        "run_p50_sec": None,
        "defaults": {"queue": "mail"},
    }
    assert types["echo"]["run_p50_sec"] == 1.5
    assert types["echo"]["defaults"] == {}
    assert types["add_numbers"]["example"] == {"x": 1, "y": 2.5}


def test_the_median_is_of_the_latest_runs() -> None:
    seen = RunTimes()
    assert seen.p50_us("echo") is None
    seen.observe([("echo", [us]) for us in (100, 300, 200)])
    assert seen.p50_us("echo") == 300
    for us in range(1, 60):
        seen.observe([("echo", [us])])
    assert seen.p50_us("echo") == 34


def test_async_tasks_are_told_like_others() -> None:
    assert asyncio.iscoroutinefunction(later.function)
    assert schema_of(later)["properties"]["items"]["default"] is None
