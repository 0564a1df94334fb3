"""The words of memory that a supervisor and a child share."""

import os
from collections.abc import Iterator

import pytest

from stoker.executors.shared_state import NOTHING, SharedState


@pytest.fixture
def shared_states() -> Iterator[tuple[SharedState, SharedState]]:
    """The two sides of one shared state: the supervisor's and the child's."""
    ours, fd = SharedState.create()
    theirs = SharedState(fd)
    os.close(fd)
    yield ours, theirs
    theirs.close()
    ours.close()


def test_a_fresh_shared_state_shows_nothing(shared_states: tuple[SharedState, SharedState]) -> None:
    ours, _ = shared_states
    assert ours.running() == (NOTHING, False, 0.0)


def test_the_supervisor_sees_what_the_child_runs_and_since_when(
    shared_states: tuple[SharedState, SharedState],
) -> None:
    ours, theirs = shared_states
    assert theirs.start(7, 12.5)
    assert ours.running() == (7, True, 12.5)
    theirs.stop()
    assert ours.running() == (7, False, 12.5)


@pytest.mark.parametrize(("index", "runs"), [(2, True), (3, False), (4, False), (5, True)])
def test_a_job_that_was_taken_back_does_not_run(
    shared_states: tuple[SharedState, SharedState], index: int, runs: bool
) -> None:
    ours, theirs = shared_states
    ours.skip(3, 5)
    assert theirs.start(index, 1.0) is runs
    assert ours.running()[1] is runs


def test_a_later_range_replaces_the_earlier_one(shared_states: tuple[SharedState, SharedState]) -> None:
    ours, theirs = shared_states
    ours.skip(0, 5)
    ours.skip(5, 6)
    assert theirs.start(4, 1.0)
    assert not theirs.start(5, 1.0)


def test_an_empty_range_takes_nothing_back(shared_states: tuple[SharedState, SharedState]) -> None:
    ours, theirs = shared_states
    ours.skip(3, 3)
    assert theirs.start(3, 1.0)


def test_a_sealed_shared_state_cannot_be_written_or_cut_by_its_descriptor() -> None:
    ours, fd = SharedState.create()
    theirs = SharedState(fd)
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
def test_a_time_that_is_none_is_read_as_zero(
    shared_states: tuple[SharedState, SharedState], started: float
) -> None:
    ours, theirs = shared_states
    theirs.start(1, started)
    assert ours.running() == (1, True, 0.0)
