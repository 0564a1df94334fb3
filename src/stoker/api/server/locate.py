"""Where in a JSON text something is wrong, for texts that no parser accepts.

A parser says "byte 11"; people want "payload". This walks the tokens of a text without recursion, so that neither depth nor
broken syntax can hurt it, and stops after a bounded number of them, so that a hostile text cannot keep it busy. It runs
only on the way to an error.
"""

import re
from typing import Final

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{},:]', re.DOTALL)
_MAX_TOKENS: Final = 200_000
_MAX_KEY_CHARS: Final = 64

OPAQUE: Final = frozenset({"payload", "result"})
"""Fields whose inside belongs to the user: problems within are reported on the field itself."""

Path = list[str | int]


def field_at(text: bytes, position: int) -> str:
    """Return the field in which the byte at `position` stands; empty for the text as a whole."""
    return _name(_walk(text, position, max_depth=len(text)))


def field_deeper_than(text: bytes, depth: int) -> str:
    """Return the field in which nesting first exceeds `depth`."""
    return _name(_walk(text, len(text), max_depth=depth))


def _walk(text: bytes, end: int, max_depth: int) -> Path:
    path: Path = []
    string = b""
    for count, token in enumerate(_TOKEN.finditer(text, 0, end)):
        mark = token[0]
        if count == _MAX_TOKENS:
            return path[:1]  # only the outermost field is certain
        if mark[:1] == b'"':
            string = mark
        elif mark in b"[{":
            path.append(0 if mark == b"[" else "")
            if len(path) > max_depth:
                return path
        elif path:
            _step(path, mark, string)
    return path


def _step(path: Path, mark: bytes, string: bytes) -> None:
    here = path[-1]
    if mark in b"]}":
        path.pop()
    elif mark == b":":
        path[-1] = string[1:-1].decode("utf-8", "replace")[:_MAX_KEY_CHARS]
    elif isinstance(here, int):
        path[-1] = here + 1
    else:
        path[-1] = ""


def _name(path: Path) -> str:
    name = ""
    for part in path:
        if part == "":
            break
        name = join(name, part)
        if part in OPAQUE:
            break
    return name


def join(path: str, part: str | int) -> str:
    """`jobs` and 3 make `jobs[3]`; that and `priority` make `jobs[3].priority`."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    return f"{path}.{part}" if path else part
