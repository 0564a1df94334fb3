"""Another revision to measure against: a git worktree and an environment of its own, kept in `build/cost` by commit.

The environment gets the very versions of this one's packages, so that only Stoker differs.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.cost.measure import Revision
from bench.processes import ROOT, BenchFailed

KEPT_IN: Final = ROOT / "build" / "cost"


def this_revision() -> Revision:
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = " with changes" if _git("status", "--porcelain") else ""
    return Revision(f"this tree ({commit}{changed})")


def other_revision(name: str, progress: Callable[[str], None]) -> Revision:
    """Check out and install that revision, unless a run before did."""
    commit = _git("rev-parse", "--verify", f"{name}^{{commit}}")
    folder = KEPT_IN / commit[:12]
    python = folder / "venv" / "bin" / "python"
    installed = folder / "installed"
    if not installed.exists():
        progress(f"installing {commit[:12]} in {folder.relative_to(ROOT)}; a minute or two, once")
        _check_out(commit, folder)
        _install(folder, python)
        installed.touch()
    return Revision(f"{name} ({commit[:12]})", (str(python), "-m", "stoker"))


def _check_out(commit: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _git("worktree", "prune")
    _git("worktree", "add", "--detach", "--quiet", str(folder / "tree"), commit)


def _install(folder: Path, python: Path) -> None:
    versions = folder / "versions.txt"
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    versions.write_text(_output([sys.executable, *pip, "freeze", "--exclude-editable"]))
    _output([sys.executable, "-m", "venv", str(folder / "venv")])
    _output([str(python), *pip, "install", "--constraint", str(versions), "--editable", str(folder / "tree")])


def _git(*arguments: str) -> str:
    return _output(["git", *arguments]).strip()


def _output(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchFailed(f"{' '.join(argv[:4])} … failed:\n{done.stderr.strip()[-2_000:]}")
    return done.stdout
