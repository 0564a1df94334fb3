"""The reference pages of log events, exit codes and errors: not stale, and nothing in the code without a row.

What the code says is found by reading it, not by running it: every call that logs, every exit code, every error type.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, get_args

import pytest

from stoker.api import problems
from stoker.cli import exits, signals
from stoker.domain import error_types
from stoker.domain.retry import Kind
from stoker.executors import runner
from stoker.logs import events as log_events

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "stoker"
LEVELS: Final = {level: level for level in get_args(log_events.Level)} | {"exception": "error"}
NOT_FIELDS: Final = {"exc_info"}
TREES: Final = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


@pytest.mark.parametrize(
    ("page", "reference", "module"),
    [
        ("events", log_events.reference, "stoker.logs.events"),
        ("exit-codes", exits.reference, "stoker.cli.exits"),
        ("errors", problems.reference, "stoker.api.problems"),
    ],
)
def test_a_page_is_not_stale(page: str, reference: Callable[[], str], module: str) -> None:
    stored = ROOT / "docs" / "reference" / f"{page}.md"
    assert stored.read_text() == reference(), f"run: python -m {module} > docs/reference/{page}.md"


def calls(tree: ast.Module) -> Iterator[tuple[str, str, ast.Call]]:
    """(object, method, call) of every call; the object is the last name before the method, or nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Attribute(ast.Name(base) | ast.Attribute(_, base), method):
                    yield base, method, node
                case ast.Name(method):
                    yield "", method, node


def texts(node: ast.expr, tree: ast.Module) -> set[str]:
    """The values that an expression can have: a text, one of two, or one of a table of the same module."""
    match node:
        case ast.Constant(str(text)):
            return {text}
        case ast.IfExp(_, this, that):
            return texts(this, tree) | texts(that, tree)
        case ast.Subscript(ast.Name(name), _):
            for found in tree.body:
                match found:
                    case ast.Assign([ast.Name(id)], ast.Dict(_, values)) if id == name:
                        return {text for value in values for text in texts(value, tree)}
                    case ast.AnnAssign(ast.Name(id), _, ast.Dict(_, values)) if id == name:
                        return {text for value in values for text in texts(value, tree)}
    raise AssertionError(
        f"cannot tell what {ast.unparse(node)!r} may be; use a text, or a table of the module"
    )


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Said(NamedTuple):
    """One place in the code that logs."""

    events: frozenset[str]
    level: str
    fields: frozenset[str] | None
    """None where they are not all written there."""
    where: str


@cache
def said() -> list[Said]:
    found = []
    for path, tree in TREES.items():
        for base, method, call in calls(tree):
            if method == "job_events" or (method in LEVELS and base in ("log", "_log")):
                names = {keyword.arg for keyword in call.keywords} - NOT_FIELDS
                fields = frozenset(name for name in names if name is not None)
                known = None not in names and method != "job_events"
                events = frozenset(texts(call.args[0], tree))
                where = f"{path.relative_to(ROOT)}:{call.lineno}"
                # The lines about many jobs are of the level info, or of the one that comes last.
                (level,) = texts(call.args[3], tree) if len(call.args) > 3 else {LEVELS.get(method, "info")}
                found.append(Said(events, level, fields if known else None, where))
    return found


def test_every_event_has_a_row_and_every_row_an_event() -> None:
    names = [event.name for event in log_events.TABLE]
    assert len(set(names)) == len(names)
    used = {name for one in said() for name in one.events}
    assert len(used) > 50, "the search finds nothing any more"
    made = {"library", "log_lines_lost"}  # by stoker.logs.log, of what others said and what was lost
    assert used - set(names) == set(), "events without a row in stoker.logs.events"
    assert set(names) - used == made, "rows of stoker.logs.events without an event"


def test_events_have_the_level_and_the_fields_that_their_rows_name() -> None:
    rows = {event.name: event for event in log_events.TABLE}
    for one in said():
        for name in one.events:
            assert one.level == rows[name].level, f"{name} at {one.where}"
            if one.fields is not None:
                assert one.fields <= set(rows[name].fields), f"{name} at {one.where}"
    for name, row in rows.items():
        places = [one for one in said() if name in one.events]
        if places and all(one.fields is not None for one in places):
            told = {field for one in places for field in one.fields or ()}
            assert told == set(row.fields), name


def test_the_events_that_every_operator_knows_by_name_are_there() -> None:
    names = {event.name for event in log_events.TABLE}
    promised = "job_submitted job_dispatched job_completed job_retried worker_registered worker_heartbeat worker_stale"
    assert names >= {*promised.split(), "scale_up", "scale_down"}
    assert {e.level for e in log_events.TABLE if e.name == "worker_heartbeat"} == {"debug"}


# ── exit codes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_exit_code_has_a_meaning() -> None:
    assert set(exits.MEANINGS) == set(exits.Exit)
    assert exits.Exit(signals.FORCED_EXIT) is exits.Exit.FORCED


def test_commands_exit_with_codes_of_the_table_alone() -> None:
    found = 0
    for path, tree in TREES.items():
        if SOURCE / "cli" not in path.parents:
            continue
        for function in ast.walk(tree):
            if (
                isinstance(function, ast.FunctionDef)
                and ast.unparse(function.returns or ast.Constant(0)) == "int"
            ):
                for node in ast.walk(function):
                    if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
                        found += 1
                        assert node.value.value in set(exits.Exit), f"{path.name}:{node.lineno}"
        for base, method, call in calls(tree):
            if (base, method) in {("typer", "Exit"), ("sys", "exit"), ("os", "_exit")}:
                found += 1
                codes = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
                numbers = [code for code in codes if isinstance(code, int) and not isinstance(code, bool)]
                assert numbers == [], f"{path.name}:{call.lineno}: a number where a name of Exit should be"
    assert found > 15, "the search finds nothing any more"


def test_the_exit_codes_of_both_runners_are_in_the_table() -> None:
    python = {
        value for name, value in vars(runner).items() if name.isupper() and type(value) is int and value < 10
    }
    header = (ROOT / "runner" / "src" / "single_shot.h").read_text()
    native = {int(number) for number in re.findall(r"\bexit_\w+ = (\d+),", header)}
    assert python <= native == set(exits.RUNNER)


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_error_type_of_a_job_has_a_row_and_every_row_a_use() -> None:
    names = [error.name for error in error_types.TABLE]
    assert len(set(names)) == len(names)
    used = used_error_types()
    assert len(used) > 10, "the search finds nothing any more"
    assert used - set(names) == set(), "error types without a row in stoker.domain.error_types"
    # Where nobody said more, the type is how the attempt ended.
    assert set(names) - used <= set(get_args(Kind)), "rows of stoker.domain.error_types without a use"
    assert set(get_args(Kind)) - {"completed"} <= set(names)


def used_error_types() -> set[str]:
    """First arguments of `problem` and its like, `error_type` of exceptions; what is not written there is passed through."""
    at = {"problem": 0, "failure": 1, "Broken": 0, "_write_error": 0, "_failed": 1}
    used: set[str] = set()
    for tree in TREES.values():
        for base, method, call in calls(tree):
            if not base and method in at and len(call.args) > at[method]:
                used |= literal(call.args[at[method]])
        for node in ast.walk(tree):
            match node:
                case ast.Assign([ast.Name("error_type")], value):
                    used |= literal(value)
                case ast.ClassDef(name=name, bases=[ast.Name("TaskSignal")]):
                    used.add(name)
    return used


def literal(node: ast.expr) -> set[str]:
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def test_every_problem_says_more_than_its_title() -> None:
    for kind in problems.Kind:
        assert kind.value.text.endswith("."), kind
        assert kind.urn in problems.reference()


def test_everything_that_answers_a_problem_uses_the_table() -> None:
    """No status above 399 is written by hand."""
    for path, tree in TREES.items():
        if SOURCE / "api" not in path.parents or path.name == "problems.py":
            continue
        for _, method, call in calls(tree):
            if method == "Response" and call.args and isinstance(call.args[0], ast.Constant):
                assert int(str(call.args[0].value)) < 400, f"{path.name}:{call.lineno}"


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


INTERNAL: Final = {
    "STOKER_UP_PID",
    "STOKER_RELOAD_PID",
    "STOKER_WORKER_SESSION",
    "STOKER_WORKER_CHILD",
    "STOKER_JOB_ID",
    "STOKER_JOB_TYPE",
    "STOKER_QUEUE",
}
"""What processes of ours tell each other, and commands about their job; nobody sets them."""


def test_every_variable_that_the_code_names_is_in_a_reference_page() -> None:
    pages = " ".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    named = {
        (node.value, path.name)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"STOKER_[A-Z_]+[A-Z]", node.value)
    }
    assert len(named) > 5, "the search finds nothing any more"
    unknown = {(name, path) for name, path in named if f"`{name}`" not in pages and name not in INTERNAL}
    assert unknown == set()
