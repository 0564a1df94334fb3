"""`docs/life-of-a-job.md` names functions and types that exist.

That it leaves none out is checked by `tests/e2e/test_path_of_a_job.py`.
"""

import re

from bench.path.trace import Function
from tests.support.life_page import ARCHITECTURE, PAGE, SOURCE, defined, listed_types, named_functions, outer

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_named_function_exists() -> None:
    named = named_functions(TEXT)
    assert len(named) > 100
    assert [str(function) for function in sorted(named) if function.name not in defined(function.file)] == []


def test_every_named_file_exists() -> None:
    files = set(re.findall(r"`([a-z_][\w/]*\.py)`", TEXT))
    assert [file for file in sorted(files) if not (SOURCE / file).is_file()] == []


def test_every_listed_type_is_a_class() -> None:
    classes = {name for file in SOURCE.rglob("*.py") for name in defined(str(file.relative_to(SOURCE)))}
    text = ARCHITECTURE.read_text(encoding="utf-8")
    types = listed_types(text)
    assert len(types) == len(set(types))
    assert f"a value of {len(types)} types" in text
    assert f"into {len(types)} types" in TEXT
    assert [type for type in types if type not in classes] == []


def test_each_leg_has_a_diagram() -> None:
    assert TEXT.count("```mermaid\nsequenceDiagram") == 4


def test_names_are_read_from_prose_and_diagrams() -> None:
    text = "A step (`api/handlers/jobs.py:submit`).\n    A->>B: store/verbs.py:WritingVerbs.insert, then `a.py:f`."
    assert named_functions(text) == {
        Function("api/handlers/jobs.py", "submit"),
        Function("store/verbs.py", "WritingVerbs.insert"),
        Function("a.py", "f"),
    }


def test_a_nested_function_is_told_by_the_one_around_it() -> None:
    assert outer(Function("a.py", "C.runner.<locals>.run")) == Function("a.py", "C.runner")
    assert outer(Function("a.py", "C.run")) == Function("a.py", "C.run")
