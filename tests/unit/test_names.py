"""Each class of the package has a name of its own: a reader who searches for it finds one thing."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "stoker"


def classes(source: str) -> list[str]:
    """Return the names of all classes in a module, those inside others included."""
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def test_classes_are_found_wherever_they_are_declared() -> None:
    assert sorted(classes("class A:\n    class B: ...\ndef f():\n    class _C: ...\n")) == ["A", "B", "_C"]


def test_no_class_name_is_declared_twice() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for name in classes(file.read_text(encoding="utf-8")):
            homes[name].append(str(file.relative_to(PACKAGE)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
