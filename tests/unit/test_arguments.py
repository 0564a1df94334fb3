"""Arguments to payload and back: what a call becomes, what a payload means, and what is refused."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.client.arguments import (
    argument_schema,
    argument_spec,
    call_of,
    encode_arguments,
    encode_calls,
    return_type,
)
from stoker.client.errors import ArgumentError, StokerError, TaskError
from stoker.domain.json_values import from_json

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


@dataclass
class Point:
    x: int
    y: int = 0


class Opaque:
    """Something that JSON cannot carry."""


def add(x: int, y: int = 3) -> int:
    return x + y


def greet(text: str) -> str:
    return text


def configure(options: dict[str, Any]) -> None: ...


def configure_maybe(options: dict[str, Any] | None = None) -> None: ...


def anything(value):  # type: ignore[no-untyped-def]
    return value


def nothing() -> None: ...


def open_ended(x: int, **rest: int) -> None: ...


def rich(point: Point, when: dt.datetime, sizes: tuple[int, ...], ratio: float = 1.0) -> None: ...


def partly_known(a: Missing, b: int) -> None: ...


def bounded(n: Annotated[int, msgspec.Meta(ge=0)] = 0) -> None: ...


def opaque_default(thing: Opaque | None = None) -> None: ...


def decode(function: Callable[..., Any], payload: bytes) -> dict[str, Any]:
    positional, named = call_of(argument_spec(function), payload)
    return {**dict(zip(inspect.signature(function).parameters, positional, strict=False)), **named}


def encode(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    return encode_arguments(argument_spec(function), args, kwargs)


def refusal(call: Callable[[], object]) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    ("payload", "arguments"),
    [
        (b'{"x":1}', {"x": 1}),
        (b'{"x":1,"y":2}', {"x": 1, "y": 2}),
        (b' { "y" : 2 , "x" : 1 } ', {"x": 1, "y": 2}),
    ],
)
def test_objects_are_arguments_by_name_and_defaults_are_left_to_the_function(
    payload: bytes, arguments: dict[str, Any]
) -> None:
    assert decode(add, payload) == arguments


def test_positional_and_named_arguments_are_sent_by_name() -> None:
    assert encode(add, 1) == b'{"x":1}'
    assert encode(add, 1, y=2) == encode(add, y=2, x=1) == b'{"x":1,"y":2}'


@pytest.mark.parametrize(
    ("function", "payload", "arguments"),
    [
        (greet, b'"hi"', {"text": "hi"}),
        (greet, b'{"text":"hi"}', {"text": "hi"}),
        (configure, b'{"a":1}', {"options": {"a": 1}}),
        (configure, b"{}", {"options": {}}),
        (configure, b'{"options":{"a":1}}', {"options": {"a": 1}}),
        (configure, b'{"options":1,"b":2}', {"options": {"options": 1, "b": 2}}),
        (configure_maybe, b"null", {}),
        (configure_maybe, b"{}", {}),
        (anything, b"[1,2]", {"value": [1, 2]}),
        (anything, b'{"a":1}', {"value": {"a": 1}}),
        (anything, b'{"value":1}', {"value": 1}),
        (anything, b"null", {"value": None}),
        (anything, b"", {"value": None}),
        (nothing, b"null", {}),
        (nothing, b"{}", {}),
        (nothing, b"", {}),
        (bounded, b"null", {}),
        (bounded, b"7", {"n": 7}),
    ],
)
def test_the_short_forms(function: Callable[..., Any], payload: bytes, arguments: dict[str, Any]) -> None:
    assert decode(function, payload) == arguments


@pytest.mark.parametrize(
    ("function", "payload", "parameter", "says"),
    [
        (add, b'{"x":"one"}', "x", "argument 'x': expected `int`, got `str`"),
        (add, b'{"x":1.5}', "x", "expected `int`, got `float`"),
        (add, b"{}", "x", "argument 'x' is missing"),
        (add, b"null", "x", "argument 'x' is missing"),
        (add, b'{"x":1,"z":2}', "z", "no parameter 'z'; it takes x, y"),
        (add, b"[1]", None, "must be an object of arguments by name"),
        (add, b'{"x":', None, "cannot be read"),
        (anything, b"[" * 100_000, None, "cannot be read"),
        (greet, b"3", "text", "expected `str`, got `int`"),
        (greet, b'"\xff"', None, "cannot be read"),
        (nothing, b"3", None, "must be an object"),
        (nothing, b'{"a":1}', "a", "takes no arguments"),
        (bounded, b"-1", "n", ">= 0"),
        (rich, b'{"point":{"x":"a"},"when":"2026-01-01T00:00:00Z","sizes":[]}', "point", "'point.x'"),
        (open_ended, b'{"x":1,"more":"text"}', "more", "argument 'more'"),
    ],
)
def test_refusals_name_the_task_and_the_parameter(
    function: Callable[..., Any], payload: bytes, parameter: str | None, says: str
) -> None:
    error = refusal(lambda: decode(function, payload))
    assert error.parameter == parameter
    assert says in str(error)
    assert str(error).startswith(f"task '{function.__name__}': ")


def test_wrong_calls_are_refused_at_submit() -> None:
    assert "missing a required argument: 'x'" in str(refusal(lambda: encode(add)))
    assert "too many positional arguments" in str(refusal(lambda: encode(add, 1, 2, 3)))
    assert "unexpected keyword argument 'z'" in str(refusal(lambda: encode(add, 1, z=2)))
    assert "task.options(priority=...).submit(...)" in str(refusal(lambda: encode(add, 1, priority=2)))
    assert "task.options" not in str(refusal(lambda: encode(add, 1, z=2)))
    assert refusal(lambda: encode(add, "one")).parameter == "x"
    assert refusal(lambda: encode(add, 1, Opaque())).parameter == "y"
    assert (
        refusal(lambda: encode(rich, Point(1), dt.datetime.now(dt.UTC), (1,), float("nan"))).parameter
        == "ratio"
    )


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), [None, float("-inf")], {"deep": [float("nan")]}]
)
def test_floats_that_json_does_not_have_are_refused_at_submit(value: Any) -> None:
    error = refusal(lambda: encode(anything, value))
    assert error.parameter == "value"
    assert "cannot be sent as JSON: JSON has no NaN and no infinity" in str(error)


def test_rich_types_arrive_as_annotated() -> None:
    when = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    payload = encode(rich, Point(1), when, sizes=(1, 2))
    assert decode(rich, payload) == {"point": Point(1, 0), "when": when, "sizes": (1, 2)}


def test_extra_members_go_to_the_open_end() -> None:
    assert encode(open_ended, 1, a=2) == b'{"x":1,"a":2}'
    assert decode(open_ended, b'{"x":1,"a":2,"b":3}') == {"x": 1, "a": 2, "b": 3}


def test_an_annotation_that_cannot_be_resolved_accepts_anything_and_its_neighbours_do_not() -> None:
    assert decode(partly_known, b'{"a":[1],"b":2}') == {"a": [1], "b": 2}
    assert refusal(lambda: decode(partly_known, b'{"a":1,"b":"x"}')).parameter == "b"


def test_a_type_of_our_own_may_have_a_default() -> None:
    assert encode(opaque_default) == b"{}"
    assert decode(opaque_default, b"{}") == {}


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    name: str
    when: dt.datetime
    count: int = pydantic.Field(default=1, gt=0, alias="number")
    parent: Model | None = None


@dataclass
class Box:
    path: Path
    model: Model | None = None
    lock: Opaque | None = None


def modelled(model: Model, boxes: list[Box], paths: dict[str, PurePosixPath]) -> None: ...


def test_paths_and_models_arrive_as_annotated() -> None:
    model = Model(name="a", when=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), number=2)
    boxes = [Box(Path("a/b"), Model(name="b", when=model.when, parent=model))]
    payload = encode(modelled, model, boxes, {"x": PurePosixPath("/y")})
    assert decode(modelled, payload) == {"model": model, "boxes": boxes, "paths": {"x": PurePosixPath("/y")}}
    assert json.loads(payload)["model"] == {
        "name": "a",
        "when": "2026-01-02T00:00:00Z",
        "number": 2,
        "parent": None,
    }


def test_what_a_model_refuses_is_told_with_its_place() -> None:
    error = refusal(lambda: decode(modelled, b'{"model":{"name":1,"when":"x"},"boxes":[],"paths":{}}'))
    assert error.parameter == "model"
    assert "name: Input should be a valid string; when: " in str(error)
    assert refusal(lambda: encode(modelled, {"name": "a"}, [], {})).parameter == "model"
    error = refusal(lambda: decode(modelled, b'{"model":null,"boxes":[{"path":5}],"paths":{}}'))
    assert error.parameter == "model"


def test_a_model_is_described_with_all_that_it_refers_to() -> None:
    schema = argument_schema(argument_spec(modelled))
    assert schema is not None
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid
    model = {
        "name": "a",
        "when": "2026-01-02T00:00:00Z",
        "parent": {"name": "b", "when": "2026-01-02T00:00:00Z"},
    }
    assert valid({"model": model, "boxes": [{"path": "a", "model": model}], "paths": {"x": "y"}})
    assert not valid({"model": {**model, "parent": {"name": "b"}}, "boxes": [], "paths": {}})
    assert not valid({"model": model, "boxes": [{"path": 1}], "paths": {}})


class Cat(pydantic.BaseModel):
    lives: int


class Dog(pydantic.BaseModel):
    barks: bool


def pet(one: Cat | Dog, many: list[Cat | Path] | None = None) -> Cat | Dog:
    return one


def test_a_union_of_models_is_read_by_pydantic() -> None:
    spec = argument_spec(pet)
    payload = encode_arguments(spec, (Dog(barks=True),), {"many": [Cat(lives=9), Path("x")]})
    assert decode(pet, payload) == {"one": Dog(barks=True), "many": [Cat(lives=9), Path("x")]}
    assert decode(pet, b'{"one":{"lives":9},"many":null}') == {"one": Cat(lives=9), "many": None}
    assert "Dog.barks: Field required" in str(refusal(lambda: decode(pet, b'{"one":{"x":1}}')))
    assert msgspec.convert({"barks": True}, return_type(pet, "pet"), dec_hook=from_json) == Dog(barks=True)
    schema = argument_schema(spec)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid({"one": {"lives": 1}, "many": ["x"]})
    assert not jsonschema.Draft202012Validator(schema).is_valid({"one": {"lives": "1"}})


def test_types_that_json_values_are_of_already_are_left_alone() -> None:
    def f(a: object, b: Iterable[int], c: Sequence[int], d: Hashable) -> Iterable[int]:
        return b

    given = {"a": {"x": 1}, "b": [1], "c": [2], "d": "e"}
    assert decode(f, json.dumps(given).encode()) == given
    assert return_type(f, "f") == Iterable[int]


def test_a_type_without_a_form_in_json_is_refused_at_decoration() -> None:
    def needs(thing: Opaque) -> None: ...
    def needs_some(things: dict[str, list[Opaque]]) -> None: ...
    def needs_call(call: Callable[[], int]) -> None: ...

    for function in (needs, needs_some):
        with pytest.raises(TaskError, match="cannot be read from JSON: Opaque has no form in JSON"):
            argument_spec(function)
    with pytest.raises(TaskError, match="Callable has no form in JSON"):
        argument_spec(needs_call)


def test_what_a_function_returns_is_read_from_its_annotation() -> None:
    def opaque() -> Opaque:
        return Opaque()

    def opaque_inside() -> list[Box]:
        return []

    def stream() -> Iterator[int]:
        return iter(())

    def never() -> NoReturn:
        raise NotImplementedError

    def unknown() -> Missing:
        raise NotImplementedError

    for function in (opaque, opaque_inside, stream):
        with pytest.raises(TaskError, match=r"annotated to return cannot be a result.* has no form in JSON"):
            return_type(function, "f")
    assert return_type(add, "add") is int
    assert [return_type(function, "f") for function in (anything, never, unknown)] == [Any, Any, Any]


def test_big_integers_and_nul_survive() -> None:
    assert decode(anything, encode(anything, {"n": 2**80, "s": "a\0b"})) == {
        "value": {"n": 2**80, "s": "a\0b"}
    }


def test_a_signature_that_no_payload_can_call_is_refused_at_decoration() -> None:
    def ambiguous(it: Point | Other) -> None: ...
    def many(*things: Opaque) -> None: ...

    with pytest.raises(TaskError, match="annotation of 'things' cannot be read from JSON: Opaque"):
        argument_spec(many)
    with pytest.raises(TaskError, match="annotation of 'it' cannot be read from JSON"):
        argument_spec(ambiguous)


@dataclass
class Other:
    x: int


def every_kind(a: int, b: int = 2, /, c: int = 3, *rest: int, d: str = "x", **others: float) -> Any:
    return a, b, c, rest, d, others


@pytest.mark.parametrize(
    ("args", "kwargs", "payload"),
    [
        ((1,), {}, {"a": 1}),
        ((1,), {"c": 9}, {"a": 1, "c": 9}),
        ((1, 5), {"d": "y"}, {"a": 1, "b": 5, "d": "y"}),
        ((1, 5, 6, 7, 8), {"z": 1.5}, {"a": 1, "b": 5, "c": 6, "rest": [7, 8], "z": 1.5}),
    ],
)
def test_every_kind_of_parameter_is_sent_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], payload: dict[str, Any]
) -> None:
    spec = argument_spec(every_kind)
    sent = encode_arguments(spec, args, kwargs)
    assert json.loads(sent) == payload
    given_args, given_kwargs = call_of(spec, sent)
    assert every_kind(*given_args, **given_kwargs) == every_kind(*args, **kwargs)


@pytest.mark.parametrize("it", [2, None])
def test_many_calls_are_sent_as_each_of_them_would_be(it: int | None) -> None:
    def take(x: Any, y: Any = 3, z: Any = 4) -> None: ...

    calls = [(1,), (1, it), (it, 2, 3), {"x": it}, {"z": 1, "x": it}, it]
    assert encode_calls(argument_spec(take), iter(calls)) == [
        encode(take, 1),
        encode(take, 1, it),
        encode(take, it, 2, 3),
        encode(take, x=it),
        encode(take, z=1, x=it),
        encode(take, it),
    ]
    assert json.loads(encode(take, z=1, x=it)) == {"x": it, "z": 1}
    assert encode_calls(argument_spec(every_kind), [(1, 2, 3, 4), 5]) == [
        encode(every_kind, 1, 2, 3, 4),
        encode(every_kind, 5),
    ]


@pytest.mark.parametrize(
    ("wrong", "parameter", "reason"),
    [
        (("one",), "x", "expected `int`"),
        ((1, None), "y", "expected `float`"),
        ((1, float("nan")), "y", "JSON has no NaN"),
        ((1, 2.0, 3), None, "too many positional arguments"),
        ({"y": 1}, None, "missing a required argument: 'x'"),
        ({"x": 1, "w": 1}, None, "unexpected keyword argument 'w'"),
        ((object(),), "x", "cannot be sent as JSON"),
    ],
)
def test_the_error_of_many_calls_says_which_one_it_is(wrong: Any, parameter: str | None, reason: str) -> None:
    def take(x: int, y: float = 0.0) -> None: ...

    error = refusal(lambda: encode_calls(argument_spec(take), [(1,), {"x": 2}, wrong, ("later",)]))
    assert (error.parameter, str(error).startswith("calls[2]: ")) == (parameter, True)
    assert reason in str(error)


def test_what_stands_before_the_variadic_part_gets_its_default() -> None:
    spec = argument_spec(every_kind)
    args, kwargs = call_of(spec, b'{"a":1,"rest":[4,5]}')
    assert every_kind(*args, **kwargs) == (1, 2, 3, (4, 5), "x", {})


def test_a_variadic_function_takes_a_bare_list_and_names_the_place() -> None:
    def join(*parts: int) -> None: ...

    spec = argument_spec(join)
    assert call_of(spec, b"[1,2]") == call_of(spec, b'{"parts":[1,2]}') == ((1, 2), {})
    assert call_of(spec, b"null") == ((), {})
    error = refusal(lambda: encode_arguments(spec, (1, "two"), {}))
    assert (error.parameter, "'parts[1]': expected `int`" in str(error)) == ("parts", True)


def test_an_argument_for_the_open_end_cannot_have_the_name_of_a_parameter() -> None:
    assert "'a' cannot go to **others" in str(refusal(lambda: encode(every_kind, 1, a=2)))


class Service:
    def method(self, x: int) -> None: ...

    @staticmethod
    def static(x: int) -> None: ...


def test_a_method_is_refused_and_a_static_one_is_not() -> None:
    with pytest.raises(TaskError, match=r"'method' is a method of Service.*make it a function"):
        argument_spec(Service.method)
    assert decode(Service.static, b"1") == {"x": 1}


def test_the_errors_are_type_errors_too() -> None:
    assert issubclass(ArgumentError, StokerError)
    assert issubclass(ArgumentError, TypeError)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_any_json_value_makes_the_round_trip_through_one_untyped_parameter(value: Any) -> None:
    assert decode(anything, encode(anything, value)) == {"value": value}


@given(st.integers(-(2**63), 2**63), st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_typed_arguments_make_the_round_trip(number: int, text: str, numbers: list[float]) -> None:
    def task(number: int, text: str, numbers: typing.List[float]) -> None: ...  # noqa: UP006

    assert decode(task, encode(task, number, text, numbers=numbers)) == {
        "number": number,
        "text": text,
        "numbers": numbers,
    }


@given(st.binary())
def test_no_payload_raises_anything_but_an_argument_error(payload: bytes) -> None:
    for function in (add, greet, anything, nothing, open_ended):
        try:
            decode(function, payload)
        except ArgumentError:
            pass
