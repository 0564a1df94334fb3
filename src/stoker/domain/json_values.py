"""Python types beyond those that msgspec knows: their form in JSON, and back.

A `Path` is its text. A pydantic model (version 2) is what pydantic makes of it. Neither pydantic nor `pathlib` is imported
here: an app that has no models need not have the one, and the other takes a while.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args, get_origin

import msgspec

_JSON_TYPES: Final = (dict, list, str, int, float, bool, type(None))
_PLAIN: Final = (Any, None, *_JSON_TYPES)


class ReadByPydantic(type):
    """The class of stand-ins for annotations which pydantic can read and msgspec cannot."""

    adapter: Any
    annotation: Any

    def __instancecheck__(cls, value: object) -> bool:
        return True  # what pydantic let through


def readable(annotation: Any) -> Any:
    """Return the annotation, or a stand-in for `from_json` where it names models in a way that msgspec cannot read, as a
    union of them does."""
    try:
        msgspec.json.Decoder(annotation)
    except TypeError:
        if _names_a_model(annotation):
            adapter = sys.modules["pydantic"].TypeAdapter(annotation)
            return ReadByPydantic(str(annotation), (), {"adapter": adapter, "annotation": annotation})
    return annotation


def _names_a_model(annotation: Any) -> bool:
    return is_model(annotation) or any(map(_names_a_model, get_args(annotation)))


def to_json(value: Any) -> Any:
    """Return a value of types that msgspec can write; its `enc_hook`. Raises TypeError."""
    if is_path(type(value)):
        return str(value)
    # Of classes derived from JSON's own, such as the safe text of a template or a float of NumPy.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def from_json(kind: Any, value: Any) -> Any:
    """Return what `to_json` was given, from plain values; the `dec_hook` of msgspec. Raises ValueError."""
    bare = get_origin(kind) or kind
    if isinstance(bare, ReadByPydantic):
        return _read(bare.adapter.validate_json, value)
    if not isinstance(bare, type):
        return value
    if is_path(bare):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return bare(value)
    model: Any = bare
    return _read(model.model_validate_json, value) if is_model(bare) else value


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type that `from_json` reads, one for anything of others; the `schema_hook` of msgspec."""
    bare = get_origin(kind) or kind
    if is_path(bare):
        return {"type": "string"}
    schema: dict[str, Any] = {"title": getattr(bare, "__name__", str(bare))}  # an empty one passes for none
    if isinstance(bare, ReadByPydantic):
        schema = bare.adapter.json_schema()
    elif is_model(bare):
        schema = bare.model_json_schema()
    return schema


def is_path(kind: Any) -> bool:
    """Return whether this is a class of paths. Where `pathlib` was never imported there is none."""
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and isinstance(kind, type) and issubclass(kind, pathlib.PurePath)


def is_model(kind: Any) -> bool:
    """Return whether this is a class of pydantic models of version 2."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return (
        base is not None and isinstance(kind, type) and issubclass(kind, base) and hasattr(kind, "model_dump")
    )


def is_plain(annotation: Any) -> bool:
    """Return whether the annotation is a type of JSON itself, which needs no closer look."""
    return any(annotation is plain for plain in _PLAIN)


def inspected(annotation: Any) -> Any:
    """Return what msgspec knows of an annotation; None for JSON's own types, and for a type of which no decoder can be made:
    making one raises an error that says why."""
    if is_plain(annotation):
        return None
    import msgspec.inspect as inspect

    try:
        return inspect.type_info(annotation)
    except (TypeError, ValueError, RecursionError, NameError):
        return None


def unreadable(annotation: Any, *, also_optional: bool = False) -> str | None:
    """Return the name of a type within the annotation that no JSON can become; None if there is none. A field of a dataclass
    that has a default can be left out, so it does not count unless `also_optional`."""
    info = inspected(annotation)
    if info is None:
        return None
    for custom in _customs(info, also_optional, set()):
        bare = get_origin(custom) or custom
        if not (_is_ours(bare) or _takes_json(bare)):
            return getattr(bare, "__name__", str(bare))
    return None


def _read(validate_json: Callable[[bytes], Any], value: Any) -> Any:
    """As JSON, for which pydantic has rules of its own: with a strict model text is a date there, and a list is a tuple."""
    try:
        return validate_json(msgspec.json.encode(value))
    except ValueError as error:
        errors = getattr(error, "errors", None)
        raise ValueError(_shortly(errors()) if callable(errors) else str(error)) from None


def _shortly(errors: list[dict[str, Any]]) -> str:
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'it'}: {item['msg']}" for item in errors)


def _is_ours(bare: Any) -> bool:
    """Return whether `from_json` makes values of this type."""
    return is_path(bare) or isinstance(bare, ReadByPydantic) or is_model(bare)


def _takes_json(bare: Any) -> bool:
    """Return whether values that JSON has are of this type already, as of `object` and `Iterable`."""
    try:
        return any(issubclass(kind, bare) for kind in _JSON_TYPES)
    except TypeError:
        return False


def _customs(node: Any, also_optional: bool, seen: set[int]) -> Iterator[Any]:
    """Every type of its own in what `msgspec.inspect` says of one."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, tuple):
        for item in node:
            yield from _customs(item, also_optional, seen)
    elif isinstance(node, msgspec.Struct):
        if type(node).__name__ == "CustomType":
            yield node.cls  # type: ignore[attr-defined]
        elif also_optional or getattr(node, "required", True):
            for name in node.__struct_fields__:
                yield from _customs(getattr(node, name), also_optional, seen)
