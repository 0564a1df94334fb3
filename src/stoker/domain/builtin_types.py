"""What the built-in job types take, for people and forms: `docs/reference/job-types.md` has the whole of it.

The types themselves are in `stoker.executors.builtins`; a test holds this table to them.
"""

from typing import Any, Final

import msgspec

Schema = dict[str, Any]


class BuiltIn(msgspec.Struct, frozen=True):
    description: str
    schema: Schema
    example: Any


def _object(*required: str, **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def _integer(least: int, most: int, default: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return schema if default is None else {**schema, "default": default}


_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "number"}
_NUMBERS: Final[Schema] = {"type": "array", "items": _NUMBER}
_CHAINS: Final = {"chains": _integer(1, 1024, 8), "seed": {**_TEXT, "default": "stoker"}}
_FSYNC: Final[Schema] = {"type": "boolean", "default": True}
_SMALLEST_PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)

BUILTIN_TYPES: Final[dict[str, BuiltIn]] = {
    "add_numbers": BuiltIn("Adds two numbers.", _object("x", "y", x=_NUMBER, y=_NUMBER), {"x": 1, "y": 2.5}),
    "cpu_intensive": BuiltIn(
        "Hashes, on as many threads as the job was granted.",
        _object(iterations=_integer(0, 10**12, 100_000), **_CHAINS),
        {"iterations": 100_000},
    ),
    "echo": BuiltIn("Gives the payload back.", {}, {"hello": "world"}),
    "fail": BuiltIn(
        "Fails a number of times, then succeeds; without a number it always fails.",
        _object(times=_integer(0, 2**32 - 1), message=_TEXT),
        {"times": 2, "message": "not yet"},
    ),
    "io_intensive": BuiltIn(
        "Writes temporary files, syncs them and reads them back.",
        _object(files=_integer(1, 10_000, 4), size_kb=_integer(1, 1_048_576, 256), fsync=_FSYNC),
        {"files": 4, "size_kb": 64},
    ),
    "large_array_sum": BuiltIn(
        "Adds up an array of numbers, given as numbers or as array.",
        {
            **_object(numbers=_NUMBERS, array=_NUMBERS),
            "oneOf": [{"required": ["numbers"]}, {"required": ["array"]}],
        },
        {"numbers": [1, 2, 3]},
    ),
    "mixed_workload": BuiltIn(
        "First hashes, then writes files.",
        _object(
            iterations=_integer(0, 10**12, 50_000),
            **_CHAINS,
            files=_integer(1, 10_000, 2),
            size_kb=_integer(1, 1_048_576, 128),
            fsync=_FSYNC,
        ),
        {"iterations": 50_000, "files": 2},
    ),
    "network_task": BuiltIn(
        "Calls an HTTP server of its own on this machine.",
        _object(requests=_integer(1, 100_000, 20), size_kb=_integer(0, 10_240, 4)),
        {"requests": 20},
    ),
    "resize_image": BuiltIn(
        "Resizes a PNG or JPEG, given in base64, as a data: URL or as a file on the worker.",
        _object(
            "width",
            "height",
            image={**_TEXT, "contentEncoding": "base64"},
            url={**_TEXT, "pattern": "^[Dd][Aa][Tt][Aa]:"},
            file=_TEXT,
            width=_integer(1, 16_384),
            height=_integer(1, 16_384),
            format={"enum": ["png", "jpeg", "jpg"]},
        ),
        {"image": _SMALLEST_PNG, "width": 4, "height": 4, "format": "png"},
    ),
    "reverse_string": BuiltIn(
        "Reverses a text by what a reader sees as characters.",
        _object("text", text=_TEXT),
        {"text": "stoker"},
    ),
    "sleep": BuiltIn(
        "Sleeps.",
        _object(seconds={"type": "number", "minimum": 0, "maximum": 86_400 * 30, "default": 1}),
        {"seconds": 0.5},
    ),
}

ALIASES: Final = {
    "AddNumbers": "add_numbers",
    "LargeArraySum": "large_array_sum",
    "ResizeImage": "resize_image",
    "ReverseString": "reverse_string",
}
"""Second names of built-in types, which the source systems use."""


def is_built_in(type: str) -> bool:
    """Return whether every worker knows this type, by this name."""
    return type in BUILTIN_TYPES or type in ALIASES
