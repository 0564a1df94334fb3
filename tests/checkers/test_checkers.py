"""The checkers can say no: every hand-made bad history is rejected, and by the invariant that it breaks."""

from pathlib import Path

import pytest

from tests.checkers.history import read
from tests.checkers.invariants import INVARIANTS, check

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").glob("*.json"))
BAD = sorted((HERE / "bad").glob("*/*.json"))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_history_is_accepted(path: Path) -> None:
    assert check(read(path)) == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_bad_history_is_rejected_by_the_invariant_that_it_breaks(path: Path) -> None:
    assert {violation.invariant for violation in check(read(path))} == {path.parent.name}


def test_every_invariant_has_a_bad_history() -> None:
    assert {path.parent.name for path in BAD} == set(INVARIANTS)
