"""A test that failed beside others gets a second chance, alone; a test that fails twice fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("second", "code", "says"),
    [("pass", 0, "Passed alone, and should not depend on that"), ("assert False", 1, "Failed twice")],
)
def test_what_failed_runs_once_more_and_is_named(tmp_path: Path, second: str, code: int, says: str) -> None:
    (tmp_path / "test_late.py").write_text(
        "from pathlib import Path\n"
        "def test_late():\n"
        "    seen = Path('seen')\n"
        "    first = not seen.exists()\n"
        "    seen.touch()\n"
        "    assert not first\n"
        f"    {second}\n"
        "def test_fine():\n"
        "    pass\n"
    )
    run = _again(tmp_path)
    assert (run.returncode, says in run.stdout) == (code, True), run.stdout
    assert run.stdout.count("test_late.py::test_late") >= 2
    assert "test_late.py::test_fine" not in run.stdout


def test_a_run_that_fails_widely_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "test_red.py").write_text("".join(f"def test_{n}():\n    assert False\n" for n in range(9)))
    run = _again(tmp_path)
    assert (run.returncode, "once more" in run.stdout) == (1, False)


def _again(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.again", "-q"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
