"""Handles and lists against a stand-in for the API: what is asked, in which order, sync and async alike."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from stoker import JobEvent, Stoker, errors
from stoker.client.following import events_of
from stoker.client.requests import AttemptInfo, JobInfo
from tests.unit.fake_api import Answer, FakeApi, Seen, fake_api, job_fields


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as api:
        yield api


@pytest.fixture
def app(api: FakeApi) -> Iterator[Stoker]:
    with Stoker(api.url) as app:
        yield app


def paged(api: FakeApi, path: str, jobs: int) -> None:
    """Answer with pages of as many jobs as are asked for."""

    def answer(seen: Seen) -> Answer:
        first, limit = int(seen.query.get("cursor", "0")), int(seen.query["limit"])
        found = [job_fields(f"job-{n}") for n in range(first, min(first + limit, jobs))]
        more = str(first + limit) if first + limit < jobs else None
        return Answer(200, {"jobs": found, "total": jobs, "next_cursor": more})

    api.answers["GET", path] = answer


async def collected(walk: Any) -> list[Any]:
    return [found async for found in walk]


def test_any_number_of_jobs_is_fetched_in_pages_while_somebody_iterates(app: Stoker, api: FakeApi) -> None:
    paged(api, "/jobs", 1_200)
    jobs = app.jobs(["failed", "cancelled"], type="resize", created_after=datetime(2030, 1, 1, tzinfo=UTC))
    assert next(iter(jobs)).id == "job-0"
    assert len(api.requests) == 1, "no more than was asked for"
    assert api.requests[0].query == {
        "status": "failed,cancelled",
        "type": "resize",
        "created_after": "2030-01-01T00:00:00+00:00",
        "limit": "500",
    }
    assert [job.id for job in jobs] == [f"job-{n}" for n in range(1_200)]

    async def main() -> list[str]:
        async with Stoker(api.url) as here:
            return [job.id for job in await collected(here.jobs(status="failed"))]

    assert asyncio.run(main()) == [f"job-{n}" for n in range(1_200)]
    assert jobs.count() == 1_200


def test_a_time_without_a_zone_is_refused(app: Stoker) -> None:
    with pytest.raises(errors.ArgumentError, match=r"created_after=.*time zone"):
        app.jobs(created_after=datetime(2030, 1, 1))  # noqa: DTZ001 - what is tested
    assert "created_before" in app.jobs(created_before=timedelta(hours=1))._filters


def test_a_task_of_the_app_stands_for_its_type_and_types_the_results(app: Stoker, api: FakeApi) -> None:
    @app.task(name="day")
    def day() -> datetime:
        return datetime.now(UTC)

    api.auto_finish(result="2030-01-01T00:00:00Z")
    submitted = day.submit()
    found = next(iter(app.jobs(type=day)))
    assert found.result() == submitted.result() == day.job(submitted.id).result()
    assert found.result() == datetime(2030, 1, 1, tzinfo=UTC)
    assert api.requests[1].query["type"] == "day"


def test_awaiting_a_handle_is_awaiting_its_result(api: FakeApi) -> None:
    api.auto_finish(result=3)

    async def main() -> Any:
        async with Stoker(api.url) as app:
            return await (await app.submit_async("echo"))

    assert asyncio.run(main()) == 3


def info(**fields: Any) -> JobInfo:
    return JobInfo(id="x", type="t", **fields)


MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


def attempt(number: int, outcome: str = "running", **fields: Any) -> AttemptInfo:
    finished = None if outcome == "running" else MOMENT
    return AttemptInfo(attempt=number, started_at=MOMENT, finished_at=finished, outcome=outcome, **fields)


def test_events_grow_by_what_happens() -> None:
    looks = [
        info(status="queued"),
        info(status="running", attempts=[attempt(1)]),
        info(status="queued", attempts=[attempt(1, "error", charged=True, retry_delay_sec=2.0)]),
        info(status="running", attempts=[attempt(1, "error", charged=True), attempt(2)]),
        info(
            status="completed",
            attempts=[attempt(1, "error", charged=True), attempt(2, "completed", charged=True)],
        ),
    ]
    kinds = [[event.kind for event in events_of(look)] for look in looks]
    assert kinds[-1] == ["submitted", "started", "retrying", "started", "completed"]
    for before, after in pairwise(kinds):
        assert after[: len(before)] == before, "what was told stays told"


def test_following_ends_with_the_job(app: Stoker, api: FakeApi) -> None:
    job = app.submit("echo")
    seen: list[JobEvent] = []
    for event in job.events():
        seen.append(event)
        if event.kind == "submitted":
            api.finish(job.id)
    assert [str(event) for event in seen] == ["submitted", "completed"]
    assert [event.kind for event in job.events(follow=False)] == ["submitted", "completed"]


def test_a_retry_and_a_reason_are_one_request_each(app: Stoker, api: FakeApi) -> None:
    job = app.submit("echo")
    api.finish(job.id, "failed")
    assert job.retry().status == job.info.status == "queued"
    api.answers["GET", f"/jobs/{job.id}/why"] = Answer(
        200, {"code": "no_worker", "summary": "no worker has it", "details": ["a"], "try": ["stoker workers"]}
    )
    why = job.why()
    assert (str(why), why.code, why.commands) == ("no worker has it", "no_worker", ["stoker workers"])


def test_scripts_operate_queues_workers_and_dead_letters(app: Stoker, api: FakeApi) -> None:
    api.answers["POST", "/queues/mail/pause"] = Answer(200, {"name": "mail", "queue": "mail", "paused": True})
    api.answers["GET", "/queues"] = Answer(200, {"queues": [{"name": "mail", "queued": 3}]})
    api.answers["GET", "/workers"] = Answer(200, {"workers": [{"id": "w", "name": "n", "status": "live"}]})
    api.answers["POST", "/workers/w/drain"] = Answer(200, {"id": "w", "name": "n", "status": "draining"})
    api.answers["POST", "/dlq/replay"] = Answer(200, {"count": 2})
    api.answers["POST", "/dlq/discard"] = Answer(200, {"count": 1})
    api.answers["GET", "/dlq/groups"] = Answer(
        200, {"groups": [{"fingerprint": "f", "type": "t", "count": 2}]}
    )
    paged(api, "/dlq", 3)
    assert app.queues.pause("mail").paused
    assert [queue.queued for queue in app.queues.list()] == [3]
    assert app.workers.drain(app.workers.list()[0].id).status == "draining"
    assert app.dead_letters.groups()[0].count == 2
    assert len(list(app.dead_letters)) == len(list(app.dead_letters.where(type="t", text="no luck"))) == 3
    assert app.dead_letters.replay(type="t", priority=1, limit=1) == 2
    assert app.dead_letters.discard("a", "b") == 1
    assert [seen.body for seen in api.requests[-2:]] == [
        {"filter": {"type": "t", "priority": 1}, "limit": 1},
        {"ids": ["a", "b"]},
    ]

    async def main() -> int:
        async with Stoker(api.url) as here:
            return await here.dead_letters.replay_async(all=True)

    assert asyncio.run(main()) == 2
    assert api.requests[-1].body == {"all": True}


def test_which_dead_letters_must_be_said_in_one_way(app: Stoker, api: FakeApi) -> None:
    with pytest.raises(errors.ArgumentError, match="none was given"):
        app.dead_letters.discard()
    with pytest.raises(errors.ArgumentError, match="exclude each other: ids, all"):
        app.dead_letters.replay("a", all=True)
    assert api.requests == []
