"""Reads `docs/life-of-a-job.md` and ARCHITECTURE.md: which functions and types they name, and which ones the source has."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import stoker
from bench.path.trace import Function

SOURCE: Final = Path(stoker.__file__).parent
PAGE: Final = Path(__file__).parents[2] / "docs" / "life-of-a-job.md"
ARCHITECTURE: Final = PAGE.parents[1] / "ARCHITECTURE.md"
NAME: Final = re.compile(r"\b([a-z_][\w/]*\.py):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
TYPES: Final = re.compile(r"^## One job, many types\n(?P<text>.*?)(?=^## )", re.MULTILINE | re.DOTALL)
TYPE: Final = re.compile(r"`([A-Z]\w+)` \(")


def named_functions(text: str) -> frozenset[Function]:
    """Return every `file:function` or `file:Class` that a page names, in its prose and in its diagrams."""
    return frozenset(Function(*match.groups()) for match in NAME.finditer(text))


def listed_types(text: str) -> list[str]:
    """Return the types in the table of ARCHITECTURE.md: the forms that one job has on its way."""
    section = TYPES.search(text)
    return [] if section is None else TYPE.findall(section["text"].partition("An attempt")[0])


@cache
def defined(file: str) -> frozenset[str]:
    """Return the classes and functions of a source file, methods by `Class.method`; none for a file that does not exist."""
    path = SOURCE / file
    return (
        frozenset(_names(ast.parse(path.read_text(encoding="utf-8")), "")) if path.is_file() else frozenset()
    )


def _names(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name
            yield from _names(child, f"{prefix}{child.name}.")


def outer(function: Function) -> Function:
    """Return the function in whose body this one is defined, or the function itself."""
    return Function(function.file, function.name.partition(".<locals>")[0])
