"""`python -m tests.again PYTEST_ARGUMENTS…`: run pytest, then each test that failed once more, with nothing beside it.

Most of the suite drives real processes, several at a time, and some of it compares times; a neighbour can make such a
test late. A test that fails again fails the run. One that passes alone is named, so that it is mended, not believed."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

AT_MOST = 8  # more than this is no accident
TESTS_FAILED = 1  # pytest's exit code; every other one but 0 is trouble of its own


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="stoker-tests-") as folder:
        code = _pytest(["-o", f"cache_dir={folder}", *arguments])
        failed = _failed(Path(folder))
    if code != TESTS_FAILED or not 0 < len(failed) <= AT_MOST:
        return code
    _say(f"{len(failed)} failed beside others; each runs once more, alone:", failed)
    again = [test for test in failed if _pytest(["-p", "no:cacheprovider", test]) != 0]
    _say("Failed twice:", again)
    _say("Passed alone, and should not depend on that:", [test for test in failed if test not in again])
    return TESTS_FAILED if again else 0


def _pytest(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _failed(cache: Path) -> list[str]:
    file = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


def _say(what: str, tests: list[str]) -> None:
    if tests:
        sys.stdout.write("\n  ".join(["\n" + what, *tests]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
