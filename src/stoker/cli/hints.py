"""Commands that a message suggests, written so that they can be typed as they stand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

NAME = "stoker"


def program() -> str:
    """Return how to call this program from here: its name where the shell finds it, else the path it was called by."""
    called = Path(sys.argv[0] or NAME)
    if called.name == "__main__.py" and called.parent.name == NAME:
        python = Path(sys.executable)
        return f"{_callable(python)} -m {NAME}"
    return _callable(called) if called.name.startswith(NAME) else NAME


def _callable(path: Path) -> str:
    found = shutil.which(path.name)
    if not os.path.dirname(path) or (found is not None and _same(Path(found), path)):
        return path.name
    return shlex.quote(str(path))


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def command(words: str, url: str | None = None) -> str:
    """Return a command of this program, with `--url` if this command was given one."""
    return f"{program()} {words}" + ("" if url is None else f" --url {shlex.quote(url)}")


def localized(suggestion: str, url: str | None) -> str:
    """Return a command that the server suggests, with this program's own name and `--url`."""
    return (
        command(suggestion.removeprefix(f"{NAME} "), url) if suggestion.startswith(f"{NAME} ") else suggestion
    )


def named(text: str) -> str:
    """Return a message whose commands (`stoker …`) have the name that calls this program from here."""
    return re.sub(rf"`{NAME} ", lambda _: f"`{program()} ", text)
