"""What a type would lose on its way through JSON without an error: found where a task is defined.

msgspec leaves out private attributes of attrs classes, and pydantic may be told to leave out a field, to mask it, or to
write it under a name that it does not read. A value of such a type arrives with a default in the place of what was sent.
Keys of dicts that JSON cannot have are found here too, because msgspec refuses them only when it meets a value.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final, get_args, get_origin

import msgspec

from stoker.domain.json_values import ReadByPydantic, inspected, is_model

_NO_KEYS: Final = {
    "BoolType": "bool",
    "NoneType": "None",
    "ListType": "list",
    "TupleType": "tuple",
    "VarTupleType": "tuple",
    "NamedTupleType": "NamedTuple",
    "SetType": "set",
    "FrozenSetType": "frozenset",
    "DictType": "dict",
    "DataclassType": "dataclass",
    "StructType": "Struct",
    "TypedDictType": "TypedDict",
}


def loss(annotation: Any) -> str | None:
    """Return what a value of this type would lose as JSON, in words; None if it would come back as it was sent."""
    info = inspected(annotation)
    if info is None:
        return None
    return next(_losses(info, set()), None)


def _losses(node: Any, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, tuple):
        for item in node:
            yield from _losses(item, seen)
    elif isinstance(node, msgspec.Struct):
        yield from _of_node(node)
        for name in node.__struct_fields__:
            yield from _losses(getattr(node, name), seen)


def _of_node(node: Any) -> Iterator[str]:
    """Yield what is wrong with this part of what `msgspec.inspect` says, its own parts apart."""
    kind = type(node).__name__
    if kind == "DictType":
        yield from _of_keys(node.key_type)
    elif kind == "DataclassType":
        yield from _of_attrs(node.cls)
    elif kind == "CustomType":
        bare = get_origin(node.cls) or node.cls
        yield from _of_models(bare.annotation if isinstance(bare, ReadByPydantic) else node.cls, set())


def _of_keys(key: Any) -> Iterator[str]:
    for member in getattr(key, "types", (key,)):
        name = _NO_KEYS.get(type(member).__name__)
        if name is not None:
            yield f"keys of a dict cannot be of type {name} in JSON"


def _of_attrs(kind: Any) -> Iterator[str]:
    for attribute in getattr(kind, "__attrs_attrs__", ()):
        if attribute.name.startswith("_"):
            yield f"{attribute.name!r} of {kind.__name__} is private, and private attributes of attrs classes are not sent"


# --- pydantic ----------------------------------------------------------------------------------------------


def _of_models(annotation: Any, seen: set[Any]) -> Iterator[str]:
    """Yield what the models lose that are named in an annotation."""
    if is_model(annotation):
        if annotation not in seen:
            seen.add(annotation)
            yield from _of_model(annotation, seen)
        return
    for part in get_args(annotation):
        yield from _of_models(part, seen)


def _of_model(model: Any, seen: set[Any]) -> Iterator[str]:
    decorators = model.__pydantic_decorators__
    if decorators.model_serializers:
        return  # it says itself how it is written
    written = {name for item in decorators.field_serializers.values() for name in item.info.fields}
    config = model.model_config
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    for name, field in model.model_fields.items():
        where = f"field {name!r} of {model.__name__}"
        if field.exclude is True:
            yield f"{where} is excluded from its JSON"
        wrote = field.serialization_alias or name
        if wrote not in _names_read(name, field) and not (by_name and wrote == name):
            yield f"{where} is written as {wrote!r} and not read by that name; give it one `alias`"
        serialised = name in written or "*" in written or any(map(_serialises, field.metadata))
        if not serialised and _is_secret(field.annotation):
            yield f"{where} is a secret, which pydantic writes as asterisks"
        yield from _of_models(field.annotation, seen)


def _names_read(name: str, field: Any) -> tuple[Any, ...]:
    """Return the names under which pydantic finds this field in an object."""
    alias = field.validation_alias
    if alias is None:
        return (name,)
    return tuple(alias.choices) if hasattr(alias, "choices") else (alias,)


def _serialises(metadata: Any) -> bool:
    return type(metadata).__name__ in ("PlainSerializer", "WrapSerializer")


def _is_secret(annotation: Any) -> bool:
    pydantic = sys.modules["pydantic"]
    secrets = (pydantic.SecretStr, pydantic.SecretBytes, *filter(None, [getattr(pydantic, "Secret", None)]))
    bare = get_origin(annotation) or annotation
    if isinstance(bare, type) and issubclass(bare, secrets):
        return True
    return any(map(_is_secret, get_args(annotation)))
