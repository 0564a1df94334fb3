"""Whether an app can be imported, found out in a process of its own: whatever its modules do, they do it there.

python -m stoker.executors.app_check MODULE:NAME
"""

import os
import subprocess
import sys
import traceback
from typing import Final

import msgspec

from stoker import access
from stoker.executors import child
from stoker.settings import without_secrets

PATIENCE_SECONDS: Final = 60
"""An import that takes longer is left to the workers, which wait for it as long as it takes."""


def import_error(app: str, given: access.Access) -> str | None:
    """Why a worker could not import the app, in one line; None if it could. `given` is what a worker would give it."""
    argv = [sys.executable, "-m", __name__, app]
    try:
        done = subprocess.run(
            argv,
            input=msgspec.json.encode(given),
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=without_secrets(os.environ),
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else f"its process ended with code {done.returncode}"


def describe(error: BaseException) -> str:
    """Return the error on one line, with the place in the app where it was raised."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    last = traceback.extract_tb(error.__traceback__)[-1]
    theirs = not last.filename.startswith("<") and last.filename != child.__file__
    return f"{text} ({last.filename}, line {last.lineno})" if theirs else text


def main(app: str) -> int:
    access.give(msgspec.json.decode(sys.stdin.buffer.read(), type=access.Access))
    try:
        child.Tasks(app)
    except BaseException as error:  # noqa: BLE001 - whatever the user's module raises is told to the operator
        sys.stderr.write(f"\n{describe(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(
        code
    )  # threads that the app started, and what it does at the end, are no concern of this process
