"""The words of memory that a supervisor and a child share."""

import os
from collections.abc import Iterator

import pytest

from stoker.executors.board import NOTHING, Board


@pytest.fixture
def boards() -> Iterator[tuple[Board, Board]]:
    """The two sides of one board: the supervisor's and the child's."""
    ours, fd = Board.create()
    theirs = Board(fd)
    os.close(fd)
    yield ours, theirs
    theirs.close()
    ours.close()


def test_a_fresh_board_shows_nothing(boards: tuple[Board, Board]) -> None:
    ours, _ = boards
    assert ours.running() == (NOTHING, False, 0.0)


def test_the_supervisor_sees_what_the_child_runs_and_since_when(boards: tuple[Board, Board]) -> None:
    ours, theirs = boards
    assert theirs.start(7, 12.5)
    assert ours.running() == (7, True, 12.5)
    theirs.stop()
    assert ours.running() == (7, False, 12.5)


@pytest.mark.parametrize(("index", "runs"), [(2, True), (3, False), (4, False), (5, True)])
def test_a_job_that_was_taken_back_does_not_run(boards: tuple[Board, Board], index: int, runs: bool) -> None:
    ours, theirs = boards
    ours.skip(3, 5)
    assert theirs.start(index, 1.0) is runs
    assert ours.running()[1] is runs


def test_a_later_range_replaces_the_earlier_one(boards: tuple[Board, Board]) -> None:
    ours, theirs = boards
    ours.skip(0, 5)
    ours.skip(5, 6)
    assert theirs.start(4, 1.0)
    assert not theirs.start(5, 1.0)


def test_an_empty_range_takes_nothing_back(boards: tuple[Board, Board]) -> None:
    ours, theirs = boards
    ours.skip(3, 3)
    assert theirs.start(3, 1.0)


def test_a_sealed_board_cannot_be_written_or_cut_by_its_descriptor() -> None:
    ours, fd = Board.create()
    theirs = Board(fd)
    theirs.seal()
    assert theirs.start(7, 12.5)
    with pytest.raises(PermissionError):
        os.write(fd, b"garbage")
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    assert ours.running() == (7, True, 12.5)
    os.close(fd)
    theirs.close()
    ours.close()


@pytest.mark.parametrize("started", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_time_that_is_none_is_read_as_zero(boards: tuple[Board, Board], started: float) -> None:
    ours, theirs = boards
    theirs.start(1, started)
    assert ours.running() == (1, True, 0.0)
