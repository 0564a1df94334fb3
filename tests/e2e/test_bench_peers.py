"""`python -m bench.peers` measures Stoker from end to end, in seconds."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.processes import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench.peers", "--quick", "--seconds", "0.2", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_quick_run_of_stoker_alone_measures_everything_and_loses_nothing(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    shown = run("--systems", "stoker-sqlite", "--json", str(result))
    assert "**Stoker, SQLite**" in shown
    assert "PROBLEM" not in shown
    (turn,) = msgspec.json.decode(result.read_bytes())["found"]["turns"]["stoker-sqlite"]
    assert set(turn["samples"]) == {"idle", "sequential", "four", "asyncio", "threads", "bulk"}
    assert all(sample["jobs"] and not sample["wrong"] for sample in turn["samples"].values())


def test_a_quick_growth_curve_has_a_point_for_each_size() -> None:
    shown = run("growth", "--curves", "workers")
    assert "| workers connected, all but one idle | 1 |" in shown
    assert "| workers connected, all but one idle | 10 |" in shown
    assert "PROBLEM" not in shown
