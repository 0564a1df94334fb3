"""A worker that is sent the same assignment twice starts it once."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from stoker.wire.frames import Assign, Assignment, AssignmentBatch, Heartbeat
from tests.sim.machine import Deed
from tests.sim.stage import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.loop.close()


def test_a_frame_that_comes_twice_starts_its_jobs_once(stage: Stage) -> None:
    """The second copy comes when the first is over and acknowledged, so only its number tells."""

    async def story(stage: Stage) -> None:
        stage.acknowledges = True
        stage.assign("a", Deed("a", 0.1), number=1)
        await stage.until(lambda: stage.reports() == [("a", "completed")])
        await asyncio.sleep(1)
        stage.assign("a", Deed("a", 0.1), number=1)
        stage.assign("b", Deed("b", 0.1), number=2)
        await stage.until(lambda: ("b", "completed") in stage.reports())
        assert (stage.starts("a"), stage.starts("b")) == (1, 1)

    stage.run(story)


def test_a_heartbeat_names_the_latest_frame_after_an_older_one_came_again(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        for number in (1, 2, 1):
            stage.assign(f"job-{number}", Deed("a", 0.1), number=number)
        await asyncio.sleep(2)
        beats = [frame for frame in stage.heard if isinstance(frame, Heartbeat)]
        assert beats[-1].assigned == 2

    stage.run(story)


def test_numbers_begin_anew_on_another_connection(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        stage.assign("a", Deed("a", 0.1), number=1)
        await stage.until(lambda: stage.starts("a") == 1)
        stage.ends[-1].reset()
        await stage.until(lambda: len(stage.ends) == 2)
        await asyncio.sleep(0.5)
        stage.assign("b", Deed("b", 0.1), number=1)
        await stage.until(lambda: stage.starts("b") == 1)

    stage.run(story)


@pytest.mark.parametrize("number", [0, 2])
def test_a_claim_that_runs_here_is_not_started_again(stage: Stage, number: int) -> None:
    """It was dropped, killed and started anew."""

    async def story(stage: Stage) -> None:
        stage.assign("a", Deed("a", 2.0), number=1)
        await stage.until(lambda: stage.starts("a") == 1)
        stage.assign("a", Deed("a", 2.0), number=number)
        await stage.until(lambda: bool(stage.reports()))
        await asyncio.sleep(3)
        assert (stage.starts("a"), stage.reports()) == (1, [("a", "completed")])

    stage.run(story)


@pytest.mark.parametrize("deed", [Deed("a", 0.1), Deed("a", 0.1, then="error")])
def test_a_claim_whose_end_is_not_acknowledged_is_not_started_again(stage: Stage, deed: Deed) -> None:
    async def story(stage: Stage) -> None:
        stage.assign("a", deed)
        await stage.until(lambda: bool(stage.reports()))
        stage.assign("a", deed)
        await asyncio.sleep(3)
        assert (stage.starts("a"), len(stage.reports())) == (1, 1)

    stage.run(story)


def test_a_claim_that_runs_here_is_not_handed_back_when_it_comes_again_while_the_worker_leaves(
    stage: Stage,
) -> None:
    async def story(stage: Stage) -> None:
        stage.assign("a", Deed("a", 2.0))
        await stage.until(lambda: stage.starts("a") == 1)
        assert stage.supervisor is not None
        stage.supervisor.drain()
        await asyncio.sleep(0.1)
        stage.assign("a", Deed("a", 2.0))
        await stage.until(lambda: bool(stage.reports()))
        assert stage.reports() == [("a", "completed")]

    stage.run(story)


def test_of_a_batch_only_what_is_known_is_left_out(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        stage.batches = True
        stage.assign("a", Deed("a", 2.0))
        await stage.until(lambda: stage.starts("a") == 1)
        template = Assignment("", 1, "work", b"")
        payloads = [msgspec.json.encode(Deed(id, 0.1)) for id in ("a", "b")]
        stage.say(Assign(batches=[AssignmentBatch(template, ["a", "b"], payloads)]))
        await stage.until(lambda: len(stage.reports()) == 2)
        assert (stage.starts("a"), stage.starts("b")) == (1, 1)

    stage.run(story)


def test_a_later_claim_of_the_same_job_takes_the_place_of_the_one_that_runs(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        stage.assign("a", Deed("a", 5.0), number=1)
        await stage.until(lambda: stage.starts("a") == 1)
        stage.assign("a", Deed("a", 0.1), claim=2, number=2)
        await stage.until(lambda: bool(stage.reports()))
        assert stage.starts("a") == 2

    stage.run(story)


def test_an_earlier_claim_of_a_job_that_runs_is_not_started(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        stage.assign("a", Deed("a", 2.0), claim=2, number=1)
        await stage.until(lambda: stage.starts("a") == 1)
        stage.assign("a", Deed("a", 2.0), claim=1, number=2)
        await stage.until(lambda: bool(stage.reports()))
        assert stage.starts("a") == 1

    stage.run(story)
