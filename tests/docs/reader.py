"""Runs the Python of a page of the docs as a reader would type it, and checks what the page says about it.

    python reader.py PAGE < blocks.json

The blocks, `[{"line": 12, "code": "..."}, ...]`, run in order and share their names. `await` works at the top level. An
expression is checked when the comment behind it is a Python literal, which must equal its value, or `raises Name`, which
must be raised:

    add.submit(1, 2).result()  # 3
    boom.submit().result()  # raises JobFailed

Any other comment is prose.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import os
import sys
import tokenize
import traceback
from typing import Any


def main() -> None:
    page = sys.argv[1]
    sys.path.insert(0, os.getcwd())
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in json.load(sys.stdin):
            run_block(page, block["line"], block["code"], names, runner)


def run_block(page: str, line: int, code: str, names: dict[str, Any], runner: asyncio.Runner) -> None:
    comments = comments_by_line(code)
    for statement in ast.parse(code, page).body:
        said = comments.get(statement.end_lineno or 0, "") if isinstance(statement, ast.Expr) else ""
        ast.increment_lineno(statement, line)
        try:
            check(said, run(statement, page, names, runner))
        except AssertionError as error:
            raise SystemExit(f"{page}, line {statement.lineno}: {error}") from None
        except Exception as error:  # noqa: BLE001 - whatever the code of a page raises is told with its line
            if said.partition(" ")[::2] != ("raises", type(error).__name__):
                traceback.print_exc()
                raise SystemExit(
                    f"{page}, line {statement.lineno}: {type(error).__name__}: {error}"
                ) from None


def run(statement: ast.stmt, page: str, names: dict[str, Any], runner: asyncio.Runner) -> Any:
    """Run one statement; return its value if it is an expression."""
    await_anywhere = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    if isinstance(statement, ast.Expr):
        code = compile(ast.Expression(statement.value), page, "eval", await_anywhere)
    else:
        code = compile(ast.Module([statement], []), page, "exec", await_anywhere)
    if not code.co_flags & inspect.CO_COROUTINE:
        return eval(code, names)  # noqa: S307 - the docs of this repository

    async def awaited() -> Any:
        return await eval(code, names)  # noqa: S307

    return runner.run(awaited())


def check(said: str, value: Any) -> None:
    if said.startswith("raises "):
        raise AssertionError(f"nothing was raised, but the page says: {said}")
    try:
        wanted = ast.literal_eval(said)
    except (ValueError, SyntaxError):
        return
    assert value == wanted, f"the page says {wanted!r}, but the value is {value!r}"


def comments_by_line(code: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


if __name__ == "__main__":
    main()
