"""A worker and a coordinator that speak in batches, and one that does not."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from stoker.wire.frames import Assign, Assignment, AssignmentBatch, Cancel, ClaimRef, Done
from tests.sim.machine import Deed
from tests.sim.stage import LEASE, Stage
from tests.support.frames import reported


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.batches = True
    yield made
    made.loop.close()


def batch(*deeds: Deed, **more: object) -> AssignmentBatch:
    template = msgspec.structs.replace(Assignment("", 1, "work", b""), **more)
    return AssignmentBatch(
        template, [deed.marker for deed in deeds], [msgspec.json.encode(deed) for deed in deeds]
    )


def done_of(stage: Stage) -> list[Done]:
    return [frame.done for frame in stage.report_frames() if frame.done is not None]


def test_what_completed_is_reported_in_columns_and_what_did_not_beside_it(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        assert stage.supervisor is not None
        stage.supervisor._flushed_at = stage.loop.time() + 1.0  # much is ending, so reports are gathered
        stage.say(Assign([], 1, [batch(Deed("a"), Deed("b", then="error"), Deed("c"))]))
        await stage.until(lambda: len(stage.reports()) == 3)
        (frame,) = stage.report_frames()
        assert frame.done is not None
        assert sorted(frame.done.ids) == ["a", "c"]
        assert frame.done.claim_ids == [1, 1]
        assert [(report.id, report.kind) for report in frame.reports] == [("b", "error")]
        assert all(
            started - finished == pytest.approx(10_000, abs=10)
            for started, finished in zip(frame.done.started_us, frame.done.finished_us, strict=True)
        )

    stage.run(story)


def test_columns_that_nobody_acknowledged_are_sent_again_with_the_time_that_has_passed(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        stage.say(Assign([], 1, [batch(Deed("a"), Deed("b"))]))
        await stage.until(lambda: len(stage.reports()) == 2)
        before = done_of(stage)
        stage.heard.clear()
        stage.ends[0].forget()
        await stage.until(lambda: len(stage.reports()) >= 2, LEASE * 3)
        again = done_of(stage)
        assert [done.ids for done in again] == [done.ids for done in before]
        assert [done.results for done in again] == [done.results for done in before]
        for first, second in zip(before, again, strict=True):
            assert second.finished_us[0] - first.finished_us[0] > LEASE / 2 * 1_000_000
            assert second.started_us[0] - second.finished_us[0] == pytest.approx(
                first.started_us[0] - first.finished_us[0], abs=2
            )

    stage.run(story)


def test_columns_are_sent_again_one_by_one_to_a_coordinator_that_does_not_read_them(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        stage.say(Assign([], 1, [batch(Deed("a"), Deed("b"))]))
        await stage.until(lambda: len(stage.reports()) == 2)
        whole = sorted(
            (report.id, report.result) for frame in stage.report_frames() for report in reported(frame)
        )
        stage.heard.clear()
        stage.batches = False
        stage.ends[0].forget()
        await stage.until(lambda: len(stage.reports()) >= 2, LEASE * 3)
        assert done_of(stage) == []
        found = [report for frame in stage.report_frames() for report in frame.reports]
        assert sorted((report.id, report.result) for report in found) == whole
        assert {report.kind for report in found} == {"completed"}

    stage.run(story)


def test_without_batches_jobs_come_and_go_one_by_one(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        stage.assign("a", Deed("a"))
        await stage.until(lambda: stage.reports() == [("a", "completed")])
        (frame,) = stage.report_frames()
        assert frame.done is None
        assert [report.id for report in frame.reports] == ["a"]

    stage.batches = False
    stage.run(story)


def test_a_batch_of_one_is_reported_at_once(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        stage.say(Assign([], 1, [batch(Deed("a", 0.01))]))
        await stage.until(lambda: stage.starts("a") == 1)
        started = next(effect.at for effect in stage.effects if effect.what == "start")
        await stage.until(lambda: stage.reports() == [("a", "completed")])
        assert stage.loop.time() - started < 0.03

    stage.run(story)


def test_one_out_of_the_middle_of_a_batch_is_cancelled_and_the_others_run_once(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        ids = [f"j{n}" for n in range(9)]
        stage.say(Assign([], 1, [batch(*[Deed(id, 0.02) for id in ids])]))
        await stage.until(lambda: stage.starts("j0") == 1)
        stage.say(Cancel([ClaimRef("j5", 1)]))
        await stage.until(lambda: len(stage.reports()) == len(ids))
        await asyncio.sleep(0.5)
        assert sorted(stage.reports()) == [(id, "cancelled" if id == "j5" else "completed") for id in ids]
        assert [stage.starts(id) for id in ids] == [int(id != "j5") for id in ids]

    stage.run(story)


def test_a_batch_that_comes_while_the_worker_leaves_is_handed_back(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        assert stage.supervisor is not None
        stage.say(Assign([], 1, [batch(Deed("a", 1.0))]))
        await stage.until(lambda: stage.starts("a") == 1)
        stage.supervisor.drain()
        await asyncio.sleep(0.2)
        stage.say(Assign([], 2, [batch(Deed("b"), Deed("c"))]))
        await stage.until(lambda: len(stage.reports()) == 3)
        assert sorted(stage.reports()) == [("a", "completed"), ("b", "handed_back"), ("c", "handed_back")]

    stage.run(story)
