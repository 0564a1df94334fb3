"""Two transactions on PostgreSQL that change the same jobs, or sessions, wait for each other and never in a circle.

In each test one transaction locks the first of three rows and waits for the second, which somebody else holds. Meanwhile
another wants the first and the third. Had it locked the third one already, the two would wait in a circle.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.domain.edit import Changes
from stoker.domain.job import Job
from stoker.domain.retry import claim_of
from stoker.store.outcomes import Start
from stoker.store.postgres.database import Contended
from stoker.store.postgres.writer import PostgresWriter
from stoker.store.sessions import Renewal
from tests.conformance.steps import a_job, a_session, a_worker, claim, end, ends, report, submit
from tests.conformance.test_shared import Pair, pair
from tests.conformance.test_write_pipelines import somebody_else, until_waiting

__all__ = ["pair"]

Action = Callable[[], Awaitable[Any]]


class Crossing:
    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place = place
        self._circles: list[str] = []
        run = PostgresWriter._transaction

        async def watched(writer: PostgresWriter, *calls: Any, **how: Any) -> Any:
            try:
                return await run(writer, *calls, **how)
            except Contended as error:
                self._circles.append(str(error))
                raise

        monkeypatch.setattr(PostgresWriter, "_transaction", watched)

    async def meet(self, first: Action, second: Action, *, at: str) -> None:
        """Run both while somebody else holds `at`."""
        async with somebody_else(self._place) as link, somebody_else(self._place) as eye:
            async with link.transaction():
                await link.execute(f"SELECT FROM stoker.{at} FOR UPDATE")
                one = asyncio.ensure_future(first())
                await until_waiting(eye, 1)
                two = asyncio.ensure_future(second())
                await until_waiting(eye, 2)
            await asyncio.gather(one, two)
        assert self._circles == []


@pytest.fixture
def crossing(place: Path, monkeypatch: pytest.MonkeyPatch) -> Crossing:
    return Crossing(place, monkeypatch)


async def three(pair: Pair) -> list[Job]:
    """Three running jobs, in the order of their numbers; the last one was claimed first and so lies before the others."""
    await submit(pair.a, *(a_job(pair.a, priority=3 - number) for number in range(3)))
    return sorted(await claim(pair.a, a_worker(threads=100)), key=lambda job: job.seq)


async def three_failed(pair: Pair) -> list[Job]:
    jobs = await three(pair)
    for job in jobs:
        assert await end(pair.a, job, "invalid") == "failed"
    return jobs


@pytest.mark.parametrize("kind", ["completed", "error"])
async def test_starts_and_ends(pair: Pair, crossing: Crossing, kind: Any) -> None:
    low, mid, high = await three(pair)
    await crossing.meet(
        lambda: pair.b.cancel([low.id, mid.id, high.id]),
        lambda: asyncio.gather(pair.a.started([Start(claim_of(high), 1)]), ends(pair.a, [report(low, kind)])),
        at=f"jobs WHERE seq = {mid.seq}",
    )


async def test_edits(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await submit(pair.a, *(a_job(pair.a) for _ in range(3)))
    await crossing.meet(
        lambda: asyncio.gather(*(pair.b.edit(job.id, Changes(priority=2)) for job in (low, mid, high))),
        lambda: asyncio.gather(*(pair.a.edit(job.id, Changes(priority=3)) for job in (high, low))),
        at=f"jobs WHERE seq = {mid.seq}",
    )


async def test_discards(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three_failed(pair)
    await crossing.meet(
        lambda: pair.b.discard([low.id, mid.id, high.id]),
        lambda: asyncio.gather(*(pair.a.discard([job.id]) for job in (high, low))),
        at=f"history WHERE seq = {mid.seq}",
    )


async def test_a_cancel_and_a_discard(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three_failed(pair)
    await crossing.meet(
        lambda: pair.b.discard([low.id, mid.id, high.id]),
        lambda: asyncio.gather(pair.a.cancel([high.id]), pair.a.discard([low.id])),
        at=f"history WHERE seq = {mid.seq}",
    )


async def test_sessions(pair: Pair, crossing: Crossing) -> None:
    """Orders to drain, sessions that come again and heartbeats."""
    names = ("w1", "w2", "w3")
    for name in names:
        await pair.a.open_session(a_session(pair.a, name))

    def drained() -> Awaitable[Any]:
        return asyncio.gather(*(pair.a.set_session_status(name, "draining") for name in ("w3", "w1")))

    def came_again() -> Awaitable[Any]:
        return asyncio.gather(*(pair.a.open_session(a_session(pair.a, name)) for name in ("w3", "w1")))

    def came_again_and_renewed() -> Awaitable[Any]:
        return asyncio.gather(pair.a.open_session(a_session(pair.a, "w3")), pair.a.renew([Renewal("w1", 1)]))

    for second in (drained, came_again, came_again_and_renewed):
        await crossing.meet(
            lambda: pair.b.renew([Renewal(name, 1) for name in names]), second, at="sessions WHERE id = 'w2'"
        )


async def test_a_few_completions(pair: Pair, crossing: Crossing) -> None:
    low, mid, high = await three(pair)
    await crossing.meet(
        lambda: pair.b.cancel([low.id, mid.id, high.id]),
        lambda: ends(pair.a, [report(low), report(high)]),
        at=f"jobs WHERE seq = {mid.seq}",
    )
