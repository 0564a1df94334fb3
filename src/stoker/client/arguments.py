"""Converts the arguments of a Python function to the payload of a job, and back.

The payload is a JSON object of arguments by name: `add(2, y=3)` is `{"x": 2, "y": 3}`. Payloads that are written by
hand may have three shorter forms:

- a function of one parameter takes a payload that is not an object as that argument: `"hello"`;
- if that parameter is a `dict` or has no annotation, an object is the argument too, unless its only key is the
  parameter's name;
- a function whose parameters all have defaults, or that has none, takes `null` as no arguments.

`*numbers` is a list under its name, and the members of `**options` are beside the other arguments:
`f(1, 2, 3, deep=True)` of `def f(x, *numbers, **options)` is `{"x": 1, "numbers": [2, 3], "deep": true}`.

The submitter checks the encoded arguments with the decoder that the worker will use, so the function gets what was accepted:
a tuple arrives as a list, as JSON has it, unless the annotation says `tuple`.

Worker children import this module, so it must stay light: it needs msgspec, the standard library and the rules of JSON.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import types
import typing
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_origin

import msgspec

from stoker.client.errors import ArgumentError, TaskError
from stoker.domain import json_text
from stoker.domain.json_losses import loss
from stoker.domain.json_values import from_json, readable, schema_of, to_json, unreadable

_ENCODER = msgspec.json.Encoder(enc_hook=to_json)
_NO_ARGUMENTS = (b"", b"null", b"{}")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.(?P<parameter>\w+)(?P<rest>[^`]*)`)?$", re.DOTALL)
_QUOTED_FIELD = re.compile(r"field `(\w+)`$")


class Sole(typing.NamedTuple):
    """The one parameter of a function that has only one, for payloads that are its bare value."""

    name: str
    decoder: msgspec.json.Decoder[Any]
    takes_objects: bool
    required: bool


class ArgumentSpec(typing.NamedTuple):
    """The parameters of a task's function, prepared once. Make it with `argument_spec`."""

    task: str
    signature: inspect.Signature
    decoder: msgspec.json.Decoder[Any]
    """The decoder of a struct with a field for each parameter."""
    names: frozenset[str]
    named: Callable[[Any], dict[str, Any]]
    """Returns the arguments in such a struct by name."""
    sole: Sole | None
    extra: Any
    """The annotation of `**kwargs`, or None if there is no such parameter."""
    in_order: tuple[str, ...] = ()
    """All parameters, if each can be given by position; such calls are bound without `inspect`, which is slow."""
    required: frozenset[str] = frozenset()
    """Parameters without a default."""
    positional: tuple[str, ...] = ()
    """Parameters that cannot be passed by name."""
    variadic: str | None = None
    """The name of `*args`."""


Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments."""


def argument_spec(function: Callable[..., Any], task: str | None = None) -> ArgumentSpec:
    """Read a function's signature. Raises `TaskError` if no payload could call it."""
    task = task or function.__name__
    signature = inspect.signature(function)
    hints = _annotations(function, signature)
    fields: list[Any] = []
    extra = None
    _check_place(function, task, signature)
    for parameter in signature.parameters.values():
        annotation = hints.get(parameter.name, Any)
        _check(task, parameter, annotation)
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = annotation
        elif parameter.kind is parameter.VAR_POSITIONAL:
            hints[parameter.name] = list[annotation]  # type: ignore[valid-type]  # a type that is known at run time
            fields.append((parameter.name, hints[parameter.name], msgspec.field(default_factory=list)))
        else:
            fields.append(_field(parameter, annotation))
    struct = msgspec.defstruct(f"{task} arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return ArgumentSpec(
        task=task,
        signature=signature,
        decoder=msgspec.json.Decoder(struct, dec_hook=from_json),
        names=frozenset(field[0] for field in fields),
        named=_given if any(len(field) == 3 for field in fields) else msgspec.structs.asdict,
        sole=_sole(signature, fields[0], hints) if len(fields) == 1 and extra is None else None,
        extra=extra,
        in_order=_in_order(signature),
        required=frozenset(field[0] for field in fields if len(field) == 2),
        positional=_named_by_kind(signature, inspect.Parameter.POSITIONAL_ONLY),
        variadic=next(iter(_named_by_kind(signature, inspect.Parameter.VAR_POSITIONAL)), None),
    )


def _in_order(signature: inspect.Signature) -> tuple[str, ...]:
    parameters = signature.parameters.values()
    plain = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
    return tuple(signature.parameters) if plain else ()


def _named_by_kind(signature: inspect.Signature, kind: Any) -> tuple[str, ...]:
    return tuple(name for name, parameter in signature.parameters.items() if parameter.kind is kind)


def encode_arguments(spec: ArgumentSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """Return the payload for a call with these arguments, checked. Raises `ArgumentError` naming the parameter."""
    payload = _encode(spec, _by_name(spec, args, kwargs))
    try:
        if spec.extra is None:
            spec.decoder.decode(payload)
        else:
            _decode_with_extra(spec, payload)
    except _UNREADABLE as error:
        raise _explained(spec, error) from None
    return payload


def encode_calls(spec: ArgumentSpec, calls: Iterable[Any]) -> list[bytes]:
    """Return the payloads of many calls, each as `submit_many` takes it. Raises `ArgumentError` naming the call.

    The steps take all calls at once, which is three times as fast; only when one of them fails do the calls go one by one.
    """
    given = list(map(_call, calls))
    if spec.extra is None:
        with contextlib.suppress(Exception):
            payloads = [_ENCODER.encode(_by_name(spec, args, kwargs)) for args, kwargs in given]
            deque(map(spec.decoder.decode, payloads), maxlen=0)
            if not json_text.may_hide_infinity(b"".join(payloads)):
                return payloads
            return [
                _encode_nth(spec, index, *call) if json_text.may_hide_infinity(payload) else payload
                for index, (call, payload) in enumerate(zip(given, payloads, strict=True))
            ]
    return [_encode_nth(spec, index, *call) for index, call in enumerate(given)]


def _call(item: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(item, dict):
        return (), item
    return (item if isinstance(item, tuple) else (item,)), {}


def _encode_nth(spec: ArgumentSpec, index: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    try:
        return encode_arguments(spec, args, kwargs)
    except ArgumentError as error:
        raise ArgumentError(f"calls[{index}]: {error}", error.parameter) from None


def _by_name(spec: ArgumentSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name. Those that are left out have defaults."""
    names = spec.in_order
    if not kwargs and args and len(spec.required) <= len(args) <= len(names):
        return dict(zip(names, args))  # noqa: B905 - the last parameters may be left out
    if names and not args and spec.required <= kwargs.keys() <= spec.names:
        return {name: kwargs[name] for name in names if name in kwargs}
    try:
        bound = spec.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"task {spec.task!r}: {error}{_option_among(spec, kwargs)}") from None
    arguments = dict(bound.arguments)
    if spec.extra is not None:
        return _with_extra(spec, arguments)
    return arguments


def _with_extra(spec: ArgumentSpec, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the members of `**kwargs` beside them."""
    extra: dict[str, Any] = arguments.pop(_kwargs_name(spec), {})
    for name in extra:
        if name in spec.names:
            raise ArgumentError(
                f"task {spec.task!r}: {name!r} cannot go to **{_kwargs_name(spec)}, because another parameter has this "
                "name, and a payload names its arguments",
                name,
            )
    return arguments | extra


def call_of(spec: ArgumentSpec, payload: bytes) -> Call:
    """Return the arguments to call the function with. Raises `ArgumentError` naming the parameter."""
    try:
        if spec.extra is not None:
            arguments = _decode_with_extra(spec, payload)
        elif spec.sole is not None:
            arguments = _decode_sole(spec, spec.sole, payload)
        else:
            arguments = spec.named(spec.decoder.decode(_object(payload)))
    except _UNREADABLE as error:
        raise _explained(spec, error) from None
    if not spec.positional and spec.variadic is None:
        return (), arguments
    rest = arguments.pop(spec.variadic, []) if spec.variadic is not None else []
    first = _named_by_kind(spec.signature, inspect.Parameter.POSITIONAL_OR_KEYWORD) if rest else ()
    given: list[Any] = []
    for name in (*spec.positional, *first):
        default = spec.signature.parameters[name].default
        given.append(arguments.pop(name) if name in arguments else default)
    return (*given, *rest), arguments


def _option_among(spec: ArgumentSpec, kwargs: Mapping[str, Any]) -> str:
    """Return a hint for an argument that the function does not take but that is an option of a job."""
    from stoker.client.requests import (
        SubmitFields,
    )  # children of workers load this module, and never get here

    options = [
        name
        for name in kwargs
        if name in SubmitFields.__annotations__ and name not in spec.signature.parameters
    ]
    if not options:
        return ""
    given = ", ".join(f"{name}=..." for name in options)
    return f"; options of a job are given as task.options({given}).submit(...)"


def argument_schema(spec: ArgumentSpec) -> dict[str, Any] | None:
    """Return the JSON schema of the payload, an object of arguments by name; None if a type has no schema."""
    try:
        schema = msgspec.json.schema(spec.decoder.type, schema_hook=schema_of)
        return _described(spec, schema)
    except (TypeError, ValueError, RecursionError):  # msgspec reads more types than it can describe
        return None


def _described(spec: ArgumentSpec, schema: dict[str, Any]) -> dict[str, Any]:
    """Add the function's defaults and `**kwargs` to the schema of the struct."""
    definitions = schema.pop("$defs")
    found: dict[str, Any] = definitions.pop(schema["$ref"].removeprefix("#/$defs/"))
    definitions = _gathered((found, definitions), definitions)
    found.pop("title", None)
    for name, field in found["properties"].items():
        default = _json_or_unset(spec.signature.parameters[name].default)
        if default is not msgspec.UNSET:
            found["properties"][name] = {**field, "default": default}
    if spec.extra is not None:
        found["additionalProperties"] = True
    return {**found, "$defs": definitions} if definitions else found


def _gathered(schema: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Move the `$defs` of nested models to the top level, where references find them, and return all definitions."""
    for part in list(schema.values() if isinstance(schema, dict) else schema):
        if isinstance(part, dict):
            for name, definition in part.pop("$defs", {}).items():
                if definitions.setdefault(name, definition) != definition:
                    raise ValueError(f"there are two definitions of {name}")
                _gathered((definition,), definitions)
        if isinstance(part, (dict, list, tuple)):
            _gathered(part, definitions)
    return definitions


def _json_or_unset(default: Any) -> Any:
    """Return a default as decoded JSON; UNSET if there is none, or if it cannot be JSON."""
    if default is inspect.Parameter.empty:
        return msgspec.UNSET
    try:
        return msgspec.json.decode(json_text.encode(default, to_json))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return msgspec.UNSET


# --- reading a signature ---------------------------------------------------------------------------------


def _annotations(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """Return the types of the parameters and of the result. An annotation that cannot be resolved (a name imported for type
    checkers only) is `Any`."""
    return {name: readable(hint) for name, hint in _hints(function, signature).items()}


def _hints(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - evaluating an annotation can raise anything
        given = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        given["return"] = signature.return_annotation
        return {name: _resolved(function, annotation) for name, annotation in given.items()}


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    alone = types.SimpleNamespace(__annotations__={"it": annotation})
    scope = getattr(function, "__globals__", {})
    try:
        return typing.get_type_hints(alone, scope, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - as above
        return Any


def _check_place(function: Callable[..., Any], task: str, signature: inspect.Signature) -> None:
    """Refuse a method: a worker has no object to call it on."""
    where, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    first = next(iter(signature.parameters), None)
    if where and not where.endswith("<locals>") and first in ("self", "cls"):
        raise TaskError(
            f"task {task!r} is a method of {where}, and a worker has no object to call it on; make it a function, or "
            f"a static method (@staticmethod above @app.task), and pass what it needs of {first!r} as arguments"
        )


def _check(task: str, parameter: inspect.Parameter, annotation: Any) -> None:
    required = parameter.default is parameter.empty
    reason = _why_not(annotation, required=required)
    if reason is not None:
        raise TaskError(
            f"task {task!r}: the annotation of {parameter.name!r} cannot be read from JSON: {reason}; "
            "use another type, or none and check the value yourself"
        )


def _why_not(annotation: Any, *, required: bool, also_optional: bool = False) -> str | None:
    """Return why JSON cannot be read as this type; None if it can. A parameter that is not `required` may have a type
    without a JSON form."""
    try:
        msgspec.json.Decoder(annotation)
    except TypeError as error:
        return str(error).splitlines()[0]
    name = unreadable(annotation, also_optional=also_optional) if required else None
    return loss(annotation) if name is None else f"{name} has no form in JSON"


def return_type(function: Callable[..., Any], task: str) -> Any:
    """Return the function's return annotation, or `Any`. Raises `TaskError` if no JSON result can have this type."""
    annotation = _annotations(function, inspect.signature(function)).get("return", Any)
    if annotation in (typing.NoReturn, typing.Never):
        return Any
    reason = _why_not(annotation, required=True, also_optional=True)
    if reason is not None:
        raise TaskError(
            f"task {task!r}: what it is annotated to return cannot be a result, which is JSON: {reason}; "
            "use another type, or none"
        )
    return annotation


def _field(parameter: inspect.Parameter, annotation: Any) -> tuple[Any, ...]:
    """Return a field of the struct. Defaults stay in the function: what the payload leaves out is not passed at all."""
    if parameter.default is parameter.empty:
        return (parameter.name, annotation)
    if annotation is Any:
        return (parameter.name, Any, msgspec.UNSET)
    # Not `|`, which some kinds of annotation do not support.
    optional = typing.Union[annotation, msgspec.UnsetType]  # noqa: UP007
    return (parameter.name, optional, msgspec.UNSET)


def _sole(signature: inspect.Signature, field: tuple[Any, ...], hints: Mapping[str, Any]) -> Sole:
    name = field[0]
    annotation = hints.get(name, Any)
    bare = get_origin(annotation) or annotation
    return Sole(
        name=name,
        decoder=msgspec.json.Decoder(annotation, dec_hook=from_json),
        takes_objects=annotation is Any or bare in (dict, Mapping, typing.Mapping),
        required=len(field) == 2,
    )


def _kwargs_name(spec: ArgumentSpec) -> str:
    return next(
        name
        for name, parameter in spec.signature.parameters.items()
        if parameter.kind is parameter.VAR_KEYWORD
    )


# --- encoding and decoding -------------------------------------------------------------------------------


def _encode(spec: ArgumentSpec, arguments: dict[str, Any]) -> bytes:
    try:
        payload = _ENCODER.encode(arguments)
        return json_text.encode(arguments, to_json) if json_text.may_hide_infinity(payload) else payload
    except (TypeError, ValueError, OverflowError, RecursionError):
        for name, value in arguments.items():
            _encode_one(spec, name, value)
        raise


def _encode_one(spec: ArgumentSpec, name: str, value: Any) -> None:
    try:
        json_text.encode(value, to_json)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(
            f"task {spec.task!r}: argument {name!r} cannot be sent as JSON: {error}", name
        ) from None


def _object(payload: bytes) -> bytes:
    return b"{}" if payload in _NO_ARGUMENTS else payload


def _given(decoded: Any) -> dict[str, Any]:
    """Return the arguments that a payload had, without those that the function's defaults stand for."""
    arguments = msgspec.structs.asdict(decoded)
    return {name: value for name, value in arguments.items() if value is not msgspec.UNSET}


def _decode_sole(spec: ArgumentSpec, sole: Sole, payload: bytes) -> dict[str, Any]:
    if not sole.required and payload in _NO_ARGUMENTS:
        return {}
    is_object = payload.lstrip()[:1] == b"{"
    if is_object and (not sole.takes_objects or _only_key_is(sole.name, payload)):
        return spec.named(spec.decoder.decode(payload))
    return {sole.name: sole.decoder.decode(payload or b"null")}


def _only_key_is(name: str, payload: bytes) -> bool:
    return msgspec.json.decode(payload, type=dict[str, msgspec.Raw]).keys() == {name}


def _decode_with_extra(spec: ArgumentSpec, payload: bytes) -> dict[str, Any]:
    """Decode parameters by the struct; the other members of the object go to `**kwargs`."""
    members = msgspec.json.decode(_object(payload), type=dict[str, msgspec.Raw])
    known = {name: value for name, value in members.items() if name in spec.names}
    arguments = spec.named(spec.decoder.decode(msgspec.json.encode(known)))
    for name, value in members.items():
        if name not in spec.names:
            arguments[name] = _decode_extra(spec, name, value)
    return arguments


def _decode_extra(spec: ArgumentSpec, name: str, value: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(value, type=spec.extra, dec_hook=from_json)
    except _UNREADABLE as error:
        raise ArgumentError(f"task {spec.task!r}: argument {name!r}: {error}", name) from None


def _explained(spec: ArgumentSpec, error: Exception) -> ArgumentError:
    """Turn an error of msgspec into one about a call."""
    if not isinstance(error, msgspec.ValidationError):
        return ArgumentError(f"task {spec.task!r}: the payload cannot be read: {error}")
    text = str(error)
    match = _AT.match(text)
    what, parameter, rest = match.group("what", "parameter", "rest") if match else (text, None, None)
    field = _QUOTED_FIELD.search(what)
    if parameter is None and field is not None:
        name = field.group(1)
        if what.startswith("Object missing"):
            return ArgumentError(f"task {spec.task!r}: argument {name!r} is missing", name)
        return ArgumentError(f"task {spec.task!r}: there is no parameter {name!r}{_offer(spec)}", name)
    if parameter is None and spec.sole is not None:
        parameter = spec.sole.name
    if parameter is None:
        return ArgumentError(
            f"task {spec.task!r}: the payload must be an object of arguments by name: {what}"
        )
    where = f"{parameter}{rest or ''}"
    return ArgumentError(f"task {spec.task!r}: argument {where!r}: {what[:1].lower()}{what[1:]}", parameter)


def _offer(spec: ArgumentSpec) -> str:
    return f"; it takes {', '.join(sorted(spec.names))}" if spec.names else "; it takes no arguments"
