"""The SDK's types, judged by mypy and by Pyright, both strict: `right.py` is accepted, `wrong.py` is refused where it says.

An expected error is a comment that silences it; one that silences nothing is an error itself, in both.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = ["tests/typing/right.py", "tests/typing/wrong.py"]


def pyright(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("basedpyright")
    assert program.exists(), "make setup installs basedpyright"
    return subprocess.run(
        [program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_mypy_agrees() -> None:
    done = mypy(*FILES)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_pyright_agrees() -> None:
    done = pyright("--project", str(HERE), "--pythonpath", sys.executable, "--outputjson")
    found = [
        f"{Path(item['file']).name}:{item['range']['start']['line'] + 1}: {item.get('rule')}: {item['message']}"
        for item in json.loads(done.stdout)["generalDiagnostics"]
    ]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_both_see_a_program_that_is_wrong(tmp_path: Path) -> None:
    """The judges are awake: the refused programs without their marks are refused."""
    bare = "\n".join(
        line.partition("  # type: ignore")[0] for line in (HERE / "wrong.py").read_text("utf-8").splitlines()
    )
    (tmp_path / "bare.py").write_text(bare, "utf-8")
    marked = sum("# type: ignore" in line for line in (HERE / "wrong.py").read_text("utf-8").splitlines())
    said = mypy(str(tmp_path / "bare.py"))
    assert said.stdout.count(": error:") == marked, said.stdout
    config = (HERE / "pyrightconfig.json").read_text("utf-8")
    (tmp_path / "pyrightconfig.json").write_text(config.replace("right.py", "bare.py"), "utf-8")
    found = json.loads(
        pyright("--project", str(tmp_path), "--pythonpath", sys.executable, "--outputjson").stdout
    )["generalDiagnostics"]
    assert len({item["range"]["start"]["line"] for item in found}) == marked, found
