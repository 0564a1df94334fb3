"""A few seeds with every run of the tests; `make sim` and `make mutants` run many."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from stoker.coordinator.assembly import Coordinator
from tests.sim import hashes, mutants
from tests.sim.__main__ import check_hashes, judge, many, summary
from tests.sim.world import run

judged = cache(judge)
ROOT = Path(__file__).parents[2]
SEEDS = range(20)
QUICK_BUGS = [
    "report_acknowledged_before_commit",
    "lost_jobs_not_requeued",
    "cancel_leaves_it_queued",
    "claims_without_a_byte_bound",
    "unique_keys_are_not_looked_at",
    "expired_jobs_are_claimed",
    "edits_are_answered_and_not_stored",
]


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_promised_holds(seed: int) -> None:
    found = judged(seed)
    assert not found.violations, f"{summary(found)}\n  replay it: SEED={seed} make sim"


def test_a_lease_expires_in_most_runs() -> None:
    assert sum(judged(seed).void is not None for seed in SEEDS) <= len(SEEDS) // 4


def test_the_same_seed_gives_the_same_trace_in_any_process() -> None:
    here = judged(3)
    code = "from tests.sim.world import run; print(run(3).hash)"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "4711"}
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [here.hash]


def test_the_same_seed_gives_the_same_trace_wherever_its_objects_lie() -> None:
    """Whoever waited for the same job was woken in the order of a set of events, which is that of their addresses."""
    hashes = set()
    for size in (1, 1_000, 30_000):
        junk = [[object()] * (n % 40) for n in range(size)]
        hashes.add(run(0, keep_lines=False).hash)
        del junk
    assert hashes == {judged(0).hash}


def test_another_seed_gives_another_trace() -> None:
    assert judged(3).hash != judged(4).hash


@pytest.mark.parametrize("name", QUICK_BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    found = mutants.hunt(name, limit=60)
    assert found.seeds is not None


def test_a_failure_prints_the_one_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    with mutants.planted("lost_jobs_not_requeued"):
        assert many(range(1), jobs=1) == 1
    told = capsys.readouterr().out
    assert "VIOLATION everything_is_final_after_quiet" in told
    assert "replay it: SEED=0 make sim" in told


def test_a_seed_that_breaks_down_is_a_failure_with_its_command_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Coordinator) -> None:
        raise RuntimeError("it does not start")

    monkeypatch.setattr(Coordinator, "start", broken)
    assert many(range(1), jobs=1) == 1
    told = capsys.readouterr().out
    assert "RuntimeError: it does not start" in told
    assert "replay it: SEED=0 make sim" in told


def test_every_planted_bug_can_still_be_planted() -> None:
    """A bug that the code has outgrown would seem to survive; here it fails at once, and by name."""
    for name in mutants.BUGS:
        with mutants.planted(name):
            pass
    assert len(mutants.BUGS) >= 20


def test_a_bug_is_gone_when_it_was_taken_back() -> None:
    with mutants.planted("cancel_leaves_it_queued"):
        assert run(0, keep_lines=False).hash != judged(0).hash
    assert run(0, keep_lines=False).hash == judged(0).hash


def test_what_a_run_loads_belongs_to_the_sources_of_its_hash() -> None:
    code = """
import sys
from pathlib import Path
from tests.sim.world import run
run(0, keep_lines=False)
for name, module in sys.modules.items():
    if name.startswith(("stoker", "tests.sim")) and module.__file__:
        print(Path(module.__file__).resolve())
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    loaded = {Path(line) for line in told.stdout.splitlines()}
    assert loaded - {path.resolve() for path in hashes.sources()} == set()


def test_hashes_of_other_sources_are_refused_with_the_command_that_writes_them_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hashes, "HASHES", tmp_path / "hashes.txt")
    hashes.write([(0, judged(0).hash)])
    assert check_hashes(jobs=1) == 0
    text = hashes.HASHES.read_text()
    hashes.HASHES.write_text(text.replace(judged(0).hash, "0"))
    assert check_hashes(jobs=1) == 1
    assert "depends on something that is not its seed" in capsys.readouterr().out
    hashes.HASHES.write_text(text.replace(hashes.maker(), "sources 0, Python 3.11"))
    assert check_hashes(jobs=1) == 1
    assert "make sim-hashes WRITE=100" in capsys.readouterr().out


def test_the_committed_hashes_are_those_of_these_sources_if_they_say_so() -> None:
    if not hashes.HASHES.exists():
        pytest.skip("no hashes were committed yet; make sim-hashes WRITE=100 writes them")
    written = hashes.read()
    if written.maker != hashes.maker():
        pytest.skip(
            f"they are of other sources ({written.maker}); make sim-hashes WRITE=100 writes them anew"
        )
    assert {seed: judged(seed).hash for seed in SEEDS} == {seed: written.hashes[seed] for seed in SEEDS}
