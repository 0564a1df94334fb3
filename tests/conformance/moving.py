"""Steps for tests that move jobs: fill a store with everything, write it down, store it elsewhere."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stoker.clock import Clock, SystemClock
from stoker.domain.job import Job, PriorityOrder
from stoker.store.base import Store
from stoker.store.move import Imported, Source, Target, export_to, import_from
from stoker.store.move_format import EndRecord, Header
from stoker.store.postgres.move import PostgresSource, PostgresTarget
from stoker.store.reads import Attempt
from stoker.store.sqlite.move import SqliteSource, SqliteTarget
from tests.conformance.steps import (
    HOUR,
    a_job,
    a_key,
    a_worker,
    blocked,
    claim,
    claimed,
    end,
    failed,
    submit,
    submitted,
)
from tests.conformance.stores import every_job
from tests.support.clock import FakeClock
from tests.support.jobs import a_submission
from tests.support.servers import databases

CENTURY = 100 * 365 * 24 * HOUR
"""Keys are judged by real clocks when they move, while the stores of these tests have a clock of their own."""

BIG = b'{"n": 123456789012345678901234567890, "nul": "a\\u0000b", "list": [1.50, 1e3,  -0]}'
AWKWARD = [
    BIG,
    b"null",
    b'"gr\xc3\xbc\xc3\x9fe \\ud83d\\ude00 \xf0\x9f\x98\x80"',
    b'{\n  "pretty": [\r\n    1\n  ]\n}',
    b'  {"spaces": "around"}  ',
    b'"\\\\ \\" \\/"',
]
"""Payloads whose bytes a careless encoder would change."""


async def fill(store: Store, clock: FakeClock) -> None:
    """Jobs in every status and with every kind of history."""
    await submit(store, *(replace(a_job(store, priority=n % 3), payload=p) for n, p in enumerate(AWKWARD)))
    await submitted(store, type="other", name="grüße", queue="q2", timeout_sec=1.5, memory_mb=64)
    await submitted(store, labels={"b": "2", "a": "1"}, metadata={"why": "test", "a": "ü"}, thread_demand=3)
    await submitted(store, delay_us=HOUR, on_oversize="wait")
    await submit(store, replace(a_job(store), digest=b"made by a client"))
    await submit(store, replace(a_job(store), extras='{"soft_timeout_sec":2.5,"keep_sec":60.0}'))
    for extras in (
        '{"unique_key":"held"}',
        '{"unique_key":"other","unique_until":"started"}',
        f'{{"expires_at":{store.now_us() + CENTURY},"deadline_at":{store.now_us() + 2 * CENTURY}}}',
    ):
        await submit(store, replace(a_job(store, delay_us=CENTURY), extras=extras))
    await blocked(store)
    await store.cancel([(await submitted(store, queue="q3")).id])
    await _completed(store, clock)
    await _failing(store, clock)
    await _running(store, clock)
    await store.insert(
        [a_submission(a_job(store, queue="q2"), a_key(store, "kept", b"\x00\xff", lives_us=CENTURY))]
    )


async def _completed(store: Store, clock: FakeClock) -> None:
    plain = await claimed(store, type="done")
    clock.advance(1)
    await end(store, plain, result=BIG, cpu_us=7, peak_memory_kb=9, started_at=store.now_us())
    silent = await claimed(store, type="done")
    await end(store, silent, result=b"null")
    again = await claimed(store, type="done")
    await end(store, again, "handed_back")
    (again,) = await claim(store, a_worker("w2", types=("done",)))
    await end(store, again, "crash", cpu_us=1, started_at=store.now_us())
    clock.advance(10)
    await store.promote(10)
    (again,) = await claim(store, a_worker("w3", types=("done",)))
    clock.advance(0.5)
    await end(store, again)


async def _failing(store: Store, clock: FakeClock) -> None:
    await failed(store, type="bad")
    await store.discard([(await failed(store, type="bad")).id])
    backing_off = await claimed(store, type="bad")
    await end(store, backing_off, "timeout")
    replayed = await failed(store, type="bad2")
    await store.replay([replayed.id])
    stopped = await claimed(store, type="bad3")
    await store.cancel([stopped.id])
    await end(store, stopped, "cancelled", started_at=store.now_us())


async def _running(store: Store, clock: FakeClock) -> None:
    await claimed(store, type="slow")
    second = await claimed(store, type="slow2")
    await end(store, second, "error")
    clock.advance(10)
    await store.promote(10)
    await claim(store, a_worker("w9", types=("slow2",)))
    unwanted = await claimed(store, type="slow3")
    await store.cancel([unwanted.id])


# ── moving ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def source_of(kind: str, place: Path, clock: Clock | None = None) -> Source:
    if kind == "postgres":
        return await PostgresSource.open(databases.url(place), clock or SystemClock())
    return await SqliteSource.open(place / "stoker.db", clock or SystemClock())


async def target_of(kind: str, place: Path, clock: Clock | None = None) -> Target:
    if kind == "postgres":
        return await PostgresTarget.open(databases.url(place), clock or SystemClock())
    return await SqliteTarget.open(place / "stoker.db", clock or SystemClock())


async def export(kind: str, place: Path, **options: Any) -> list[bytes]:
    source = await source_of(kind, place)
    try:
        lines: list[bytes] = []
        await export_to(source, lines.append, version="test", begin=unheard, **options)
        return lines
    finally:
        await source.close()


async def import_into(
    kind: str,
    place: Path,
    lines: Iterable[bytes],
    *,
    order: PriorityOrder | None = None,
    done: Imported | None = None,
) -> Imported:
    target = await target_of(kind, place)
    try:
        return await import_from(lines, target, order=order, done=done, begin=unheard)
    finally:
        await target.close()


def unheard(_: Header) -> Callable[[int], None]:
    return lambda _: None


# ── comparing ──────────────────────────────────────────────────────────────────────────────────────────────────────

Everything = dict[str, tuple[Job, list[Attempt]]]


async def everything(store: Store) -> Everything:
    """Every job and its attempts, oldest first, without what belongs to one store alone."""
    jobs = reversed(await every_job(store))
    return {job.id: (replace(job, seq=0, lane_id=0), await store.attempts(job.id)) for job in jobs}


def edited(line: bytes, **fields: Any) -> bytes:
    """A line with some fields changed, or left out where the value is `...`."""
    values = msgspec.json.decode(line) | fields
    return msgspec.json.encode({key: value for key, value in values.items() if value is not ...}) + b"\n"


def whole(lines: list[bytes]) -> list[bytes]:
    """Lines of jobs and keys, with a header and an end that fit them."""
    records = [msgspec.json.decode(line) for line in lines]
    jobs = [record for record in records if record["record"] == "job"]
    header = Header(format=1, stoker="test", priority_order="lowest_first", store="test", exported_at=1)
    last = EndRecord(
        jobs=len(jobs),
        attempts=sum(len(job.get("attempts", ())) for job in jobs),
        keys=sum(record["record"] == "key" for record in records),
        outputs=sum(record["record"] == "output" for record in records),
    )
    return [msgspec.json.encode(header) + b"\n", *lines, msgspec.json.encode(last) + b"\n"]
