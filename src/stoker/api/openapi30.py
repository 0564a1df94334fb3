"""The same document for tools that know no OpenAPI later than 3.0: other words, the same meaning.

OpenAPI 3.1 took over JSON Schema as it is; 3.0 has a dialect of its own. What has no word there (the schema of the data in
an event, the form of the keys of a map) is left out.
"""

from functools import cache
from typing import Any, Final

import msgspec

VERSION: Final = "3.0.3"

_NO_WORD: Final = frozenset({"contentMediaType", "contentSchema", "contentEncoding", "propertyNames"})
_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_NULL: Final = {"type": "null"}


@cache
def document_30(document: bytes) -> bytes:
    """Return the document as JSON, made on first demand."""
    return msgspec.json.encode(downgrade(msgspec.json.decode(document)))


def downgrade(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document in the words of OpenAPI 3.0."""
    info = {**document["info"], "license": {"name": document["info"]["license"]["name"]}}
    components = {
        **document["components"],
        "schemas": {name: schema_30(schema) for name, schema in document["components"]["schemas"].items()},
    }
    paths = _schemas_inside(document["paths"])
    return {**document, "openapi": VERSION, "info": info, "paths": paths, "components": components}


def _schemas_inside(node: Any) -> Any:
    """A part of the document in which the values of `schema` are schemas."""
    if isinstance(node, dict):
        return {
            key: schema_30(value) if key == "schema" else _schemas_inside(value)
            for key, value in node.items()
        }
    return [_schemas_inside(item) for item in node] if isinstance(node, list) else node


def schema_30(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of JSON Schema 2020-12 in the words of OpenAPI 3.0."""
    if schema == _NULL:
        return {"type": "object", "nullable": True, "enum": [None]}
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "const":
            result["enum"] = [value]
        elif key == "examples":
            result["example"] = value[0]
        elif key in _BOUNDS:
            result[_BOUNDS[key]] = value
            result[key] = True
        elif key not in _NO_WORD and (key != "required" or value):  # 3.0 allows no empty list
            result[key] = _inside(key, value)
    return _with_nullable(_typed(result))


def _inside(key: str, value: Any) -> Any:
    if key in ("anyOf", "oneOf", "allOf"):
        return [arm if arm == _NULL else schema_30(arm) for arm in value]
    if key in ("items", "not", "additionalProperties") and isinstance(value, dict):
        return schema_30(value)
    if key == "properties":
        return {name: schema_30(item) for name, item in value.items()}
    return value


def _typed(schema: dict[str, Any]) -> dict[str, Any]:
    """A `type` that is a list of several means any of these."""
    kinds = schema.get("type")
    if not isinstance(kinds, list):
        return schema
    rest = {key: value for key, value in schema.items() if key != "type"}
    return {**rest, "anyOf": [{"type": kind} for kind in kinds]}


def _with_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Null is no type in 3.0 but a mark on one."""
    for word in ("anyOf", "oneOf"):
        arms = schema.get(word)
        if arms is None or _NULL not in arms:
            continue
        others = [arm for arm in arms if arm != _NULL]
        rest = {key: value for key, value in schema.items() if key != word}
        if len(others) > 1:
            return {**rest, word: [_nullable(arm) for arm in others]}
        return {**rest, **_nullable(others[0])}
    if None in schema.get("enum", ()):
        return {**schema, "nullable": True}
    return schema


def _nullable(arm: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in arm:  # nothing may stand beside a reference
        return {"allOf": [arm], "nullable": True}
    if "enum" in arm:
        return {**arm, "enum": [*arm["enum"], None], "nullable": True}
    return {**arm, "nullable": True}
