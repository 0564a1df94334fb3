"""What the simulation found in the worker, each as the shortest story that shows it."""

import asyncio
from collections.abc import Iterator

import pytest

from stoker.wire import frames
from stoker.wire.frames import Heartbeat, Reports
from tests.sim.machine import Deed
from tests.sim.stage import LEASE, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.loop.close()


def test_a_task_whose_process_was_killed_for_another_is_handed_back_and_not_started_again(
    stage: Stage,
) -> None:
    """It ran twice under one claim, so a job with one attempt was started twice."""

    async def story(stage: Stage) -> None:
        stage.assign("calm", Deed("calm", 30.0), "nap")
        stage.assign("bad", Deed("bad", then="hang", stubborn=True), "nap", timeout_sec=1.0)
        await stage.until(lambda: ("bad", "timeout") in stage.reports())
        await asyncio.sleep(2)
        assert ("calm", "handed_back") in stage.reports()
        assert stage.starts("calm") == 1

    stage.run(story)


def test_what_is_killed_at_the_end_of_the_lease_is_reported_as_lost(stage: Stage) -> None:
    """It was neither held nor reported, and so passed for an assignment that never came, which is free."""

    async def story(stage: Stage) -> None:
        stage.assign("a", Deed("a", 60.0))
        await stage.until(lambda: stage.starts("a") == 1)
        stage.answers = False
        await stage.until(lambda: any(effect.what == "killed" for effect in stage.effects))
        await stage.until(lambda: bool(stage.reports()))
        assert stage.reports()[0] == ("a", "lost")

    stage.run(story)


def test_an_end_is_reported_before_the_heartbeat_that_no_longer_holds_it(stage: Stage) -> None:
    """A heartbeat in the moment between the two made a finished job look as if it had never arrived."""

    async def story(stage: Stage) -> None:
        supervisor = stage.supervisor
        assert supervisor is not None
        stage.assign("a", Deed("a", 1.0))
        await stage.until(lambda: stage.starts("a") == 1)
        supervisor._flushed_at = (
            stage.loop.time() + 10.0
        )  # much is ending, so reports are gathered for a while
        await stage.until(lambda: ("a", "completed") in stage.reports(), 5.0)
        last = next(i for i, frame in enumerate(stage.heard) if isinstance(frame, Reports))
        assert all(
            any(ref.id == "a" for ref in frame.held)
            for frame in stage.heard[:last]
            if isinstance(frame, Heartbeat) and frame.held
        )
        assert not any(
            isinstance(frame, Heartbeat) and not frame.held for frame in stage.heard[last - 1 : last]
        )

    stage.run(story)


def test_a_connection_that_was_forgotten_on_the_way_is_given_up(stage: Stage) -> None:
    """The worker waited for ever on a line that nobody heard."""

    async def story(stage: Stage) -> None:
        stage.ends[0].forget()
        await stage.until(lambda: len(stage.ends) > 1, LEASE + 2.0)

    stage.run(story)


def test_an_assignment_that_comes_after_the_end_of_the_lease_is_not_started(stage: Stage) -> None:
    """It had waited in the line while the worker was paused, and belonged to somebody else by then."""

    async def story(stage: Stage) -> None:
        stage.worker.pause()
        stage.answers = False
        stage.assign("a", Deed("a", 1.0))
        await asyncio.sleep(LEASE * 2)
        stage.worker.resume()
        await stage.until(lambda: ("a", "handed_back") in stage.reports())
        assert stage.starts("a") == 0

    stage.run(story)


def test_a_welcome_begins_a_lease(stage: Stage) -> None:
    """After a long outage the first assignment came before the first renewal, and was killed for an old lease."""

    async def story(stage: Stage) -> None:
        stage.ends[0].forget()
        stage.answers = False
        await stage.until(lambda: len(stage.ends) > 1, LEASE * 3)
        await asyncio.sleep(0.2)
        stage.assign("a", Deed("a", 1.0))
        await stage.until(lambda: ("a", "completed") in stage.reports(), LEASE)

    stage.run(story)


def test_an_assignment_that_comes_while_the_worker_leaves_is_not_started(stage: Stage) -> None:
    """It was started, and the goodbye that followed at once made it look as if it had never arrived."""

    async def story(stage: Stage) -> None:
        assert stage.supervisor is not None
        stage.assign("a", Deed("a", 0.1))
        await stage.until(lambda: ("a", "completed") in stage.reports())  # and nobody acknowledges it
        stage.supervisor.drain()
        await asyncio.sleep(0.2)
        stage.assign("b", Deed("b", 60.0))
        await stage.until(lambda: ("b", "handed_back") in stage.reports())
        assert stage.starts("b") == 0

    stage.run(story)


def test_a_worker_that_stands_still_while_it_leaves_reports_what_it_ran_before_it_says_goodbye(
    stage: Stage,
) -> None:
    """Seed 603: the time for ending its job had passed when it woke, so it said goodbye with the job still running, and
    somebody else could start it before it was killed."""

    async def story(stage: Stage) -> None:
        assert stage.supervisor is not None
        stage.acknowledges = True
        stage.assign("a", Deed("a", 60.0, stubborn=True))
        await stage.until(lambda: stage.starts("a") == 1)
        stage.supervisor.drain()
        await asyncio.sleep(stage.supervisor._settings.shutdown_grace_sec + 0.2)
        stage.worker.pause()
        await asyncio.sleep(LEASE * 0.8)
        stage.worker.resume()
        await stage.until(lambda: any(isinstance(frame, frames.Goodbye) for frame in stage.heard))
        assert stage.reports() == [("a", "handed_back")]

    stage.run(story)
