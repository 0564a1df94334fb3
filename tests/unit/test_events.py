"""Live events: windows that stay small, updates that tell what is different, and positions that are honest about gaps."""

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.bus.base import HAPPENED_IDS, LISTEN_SECONDS, Happened, Listen, Notification, Receive
from stoker.bus.outbox import Outbox, pack, unpack
from stoker.bus.postgres import MAX_BYTES
from stoker.coordinator import events, latencies
from stoker.coordinator.assembly import Coordinator
from stoker.coordinator.event_updates import (
    QUIET_SECONDS,
    RING,
    Composer,
    LiveGauges,
    Look,
    Message,
    Numbered,
    Reset,
    Ring,
    SlowLook,
    StreamHello,
    Update,
)
from stoker.coordinator.event_window import MAX_JOBS, EventBuffer, happened, word_for
from stoker.coordinator.events import LINGER_SECONDS
from stoker.coordinator.latencies import LastMinute, bucket_of, in_buckets, percentile
from stoker.domain.errors import StoreUnavailable
from stoker.domain.retry import Outcome
from stoker.ids import new_id
from stoker.logs.log import JobLog
from stoker.settings import Settings
from stoker.store.bulk import Bulk
from stoker.store.outcomes import Finish
from stoker.store.reads import Count, JobFilter, JobSummary
from stoker.store.sessions import Session
from stoker.store.sqlite.logs import SqliteLogs
from stoker.store.sqlite.store import SqliteStore
from tests.conformance.steps import a_job, a_session
from tests.support import jobs
from tests.support.clock import START_US, FakeClock
from tests.support.in_loop import in_loop
from tests.support.jobs import a_submission, accepted

AT = START_US


# ── windows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_window_holds_each_id_once_and_so_many_at_most() -> None:
    window = EventBuffer()
    assert not window
    window.changed(["a", "b", "a"])
    assert list(window.ids) == ["a", "b"]
    window.changed(f"job-{n}" for n in range(10_000))
    assert len(window.ids) == MAX_JOBS
    assert window.more == 10_002 - MAX_JOBS


def finish(kind: str = "completed", **outcome: int) -> Finish:
    return Finish(jobs.a_claim(), Outcome(kind, kind, **outcome))  # type: ignore[arg-type]


def test_a_window_counts_what_happened() -> None:
    window = EventBuffer()
    window.submitted([accepted(jobs.a_job(id="a"), False), accepted(jobs.a_job(id="b"), True)])
    window.ended(
        [
            (finish(started_at=AT + 1_000_000, finished_at=AT + 3_000_000), "completed"),
            (finish("error"), "scheduled"),
            (finish("handed_back"), "queued"),
            (finish("cancelled"), "cancelled"),
            (finish(), None),
        ]
    )
    assert dict(window.tally) == {
        "submitted": 1,
        "completed": 1,
        "retried": 1,
        "handed_back": 1,
        "cancelled": 1,
    }
    assert list(window.ids)[:1] == ["a"]
    assert len(window.ids) == 5
    assert percentile(window.waits, 0.5) == pytest.approx(1.0, rel=0.1)
    assert percentile(window.runs, 0.5) == pytest.approx(2.0, rel=0.1)


def test_what_an_end_counts_as() -> None:
    assert word_for("failed", "lost") == "failed"
    assert word_for("queued", "lost") == "retried"
    assert word_for("queued", "handed_back") == "handed_back"


def test_a_full_window_fits_every_line() -> None:
    window = EventBuffer()
    window.changed(new_id() for _ in range(500))
    window.tally.update(dict.fromkeys(("submitted", "completed", "failed", "cancelled", "retried"), 10**9))
    window.waits.update(dict.fromkeys(range(170), 10**6))
    window.runs.update(dict.fromkeys(range(170), 10**6))
    notification = happened(window)
    assert (len(notification.ids), notification.more) == (HAPPENED_IDS, 500 - HAPPENED_IDS)
    messages, too_long = pack("s" * 32, [notification], MAX_BYTES)
    assert too_long == 0
    packet = unpack(messages[0])
    assert packet is not None
    assert packet.notifications == [notification]


def test_windows_that_wait_to_be_sent_are_not_merged_and_wishes_are() -> None:
    outbox = Outbox()
    first, second = (Happened(["a"], 0, {"submitted": 1}, {}, {}) for _ in range(2))
    for news in (Listen(), first, Listen(), second):
        outbox.add(news)
    assert sorted(type(news).__name__ for news in outbox.take()) == ["Happened", "Happened", "Listen"]


# ── percentiles ──────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(0, 10**13), min_size=1))
def test_percentiles_are_right_to_a_tenth(durations: list[int]) -> None:
    durations.sort()
    for share in (0.5, 0.95):
        found = percentile(in_buckets(durations), share)
        exact = durations[max(0, -int(-share * len(durations) // 1) - 1)] / 1e6
        assert found == pytest.approx(exact, rel=0.1, abs=2e-6)


def test_nothing_has_no_percentile_and_a_clock_that_went_back_no_wait() -> None:
    assert percentile({}, 0.5) is None
    assert bucket_of(-5) == 0


def test_a_minute_later_everything_is_forgotten() -> None:
    minute = LastMinute()
    minute.add({3: 1}, 100.0)
    minute.add({3: 1, 4: 2}, 130.0)
    assert minute.buckets(150.0) == {3: 2, 4: 2}
    assert minute.buckets(165.1) == {3: 1, 4: 2}
    assert minute.buckets(130.0 + latencies.SPAN_SECONDS + latencies.SLICE_SECONDS) == {}


# ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def a_look(counts: Sequence[Count] = (), workers: Sequence[Session] = (), **slow: Any) -> Look:
    return Look(counts, workers, replace(SlowLook({}, {}, 0, []), **slow), None)


def compose(composer: Composer, look: Look, now: float, *changed: str) -> Update | None:
    window = EventBuffer()
    window.changed(changed)
    return composer.compose(window, look, [], at=AT, now=now)


def test_a_bulk_operation_that_advances_is_told_whole_and_one_that_stands_is_not() -> None:
    bulk = Bulk("b1", "cancel", JobFilter(), "running", 10, False, 0, 0, AT)
    composer = Composer()
    compose(composer, a_look(), 0.0)
    first = compose(composer, a_look(bulks=[bulk]), 0.25)
    assert first is not None
    assert first.bulks == [bulk]
    assert compose(composer, a_look(bulks=[bulk]), 0.5) is None
    advanced = replace(bulk, done=10, changed=7, status="done")
    second = compose(composer, a_look(bulks=[advanced]), 0.75)
    assert second is not None
    assert second.bulks == [advanced]


def test_the_first_update_tells_all_and_the_next_what_is_different() -> None:
    worker = Session("w1", "one", 4, ("echo",), None, {}, "live", AT, AT)
    composer = Composer()
    first = compose(composer, a_look(workers=[worker], counts=[Count("q", "echo", "queued", 2)]), 0.0)
    assert first is not None
    assert first.workers == [worker]
    assert first.queues is not None
    assert (first.gauges.by_status["queued"], first.gauges.threads) == (2, 4)
    later = a_look(
        workers=[replace(worker, last_heartbeat_at=AT + 5)], counts=[Count("q", "echo", "queued", 2)]
    )
    assert compose(composer, later, 1.0) is None
    changed = compose(composer, later, 2.0, "a")
    assert changed is not None
    assert (changed.workers, changed.queues, changed.more, changed.period_sec) == (None, None, 1, 2.0)


@pytest.mark.parametrize("field", ["threads_used", "status"])
def test_a_worker_that_changed_is_told(field: str) -> None:
    worker = Session("w1", "one", 4, ("echo",), None, {}, "live", AT, AT)
    composer = Composer()
    compose(composer, a_look(workers=[worker]), 0.0)
    changed = replace(worker, **{field: {"threads_used": 1, "status": "draining"}[field]})
    update = compose(composer, a_look(workers=[changed]), 0.25)
    assert update is not None
    assert update.workers == [changed]
    assert update.queues is None


def test_a_pause_is_told_and_an_age_alone_is_not() -> None:
    counts = [Count("q", "echo", "queued", 2)]
    composer = Composer()
    compose(composer, a_look(counts=counts, oldest_due={"q": AT}), 0.0)
    assert compose(composer, a_look(counts=counts, oldest_due={"q": AT - 9}), 0.25) is None
    update = compose(composer, a_look(counts=counts, paused={"q": AT}), 0.5)
    assert update is not None
    assert update.queues is not None
    assert update.queues[0].paused_at == AT


def test_gauges_are_told_every_few_seconds_whatever_happens() -> None:
    composer = Composer()
    compose(composer, a_look(), 0.0)
    assert compose(composer, a_look(), QUIET_SECONDS - 0.1) is None
    update = compose(composer, a_look(), QUIET_SECONDS)
    assert update is not None
    assert update.period_sec == QUIET_SECONDS


def test_success_is_measured_by_what_ended() -> None:
    counts = [Count("q", "a", "completed", 3), Count("q", "b", "failed", 1), Count("q", "b", "queued", 9)]
    update = compose(Composer(), a_look(counts=counts), 0.0)
    assert update is not None
    assert update.gauges.success_rate == 0.75


# ── the ring ─────────────────────────────────────────────────────────────────────────────────────────────────────────

NOTHING = LiveGauges({}, 0, 0, 0, None, 0, None, None, None, None, None, None)


def an_update(more: int = 0) -> Update:
    return Update(AT, 0.25, {}, NOTHING, [], more, None, None, None)


def a_ring(updates: int, size: int = 4) -> Ring:
    ring = Ring(lambda: "life", size)
    for n in range(updates):
        ring.add(an_update(n))
    return ring


def test_whoever_comes_back_in_time_goes_on_where_it_was() -> None:
    ring = a_ring(6)
    assert [item.seq for item in ring.after(2) or []] == [3, 4, 5, 6]
    assert ring.after(6) == []
    assert ring.find("life:4") == (4, None)
    assert ring.find(None) == (6, None)


@pytest.mark.parametrize(
    "position",
    [
        "life:1",
        "life:7",
        "other:4",
        "",
        ":",
        "life",
        "life:",
        "life:-1",
        "life:x",
        "life:²",
        "life:" + "9" * 30,
    ],
)
def test_whoever_comes_from_elsewhere_begins_anew(position: str) -> None:
    seq, why = a_ring(6).find(position)
    assert seq == 6
    assert why


def test_after_a_rest_nobody_goes_on() -> None:
    for updates in (0, 3):
        ring = a_ring(updates)
        ring.forget()
        assert ring.after(updates) is None
        assert ring.after(ring.seq) == []
        ring.add(an_update())
        assert ring.after(updates) is None


# ── a coordinator that is watched ────────────────────────────────────────────────────────────────────────────────────


class FakeBus:
    """Keeps what is published, and lets a test say what others do."""

    connected = True

    def __init__(self) -> None:
        self.published: list[Notification] = []

    def start(self, receive: Receive) -> None:
        pass

    def publish(self, news: Notification) -> None:
        self.published.append(news)

    async def close(self) -> None:
        pass


class House:
    """A coordinator over a real store. Windows are closed by the test."""

    def __init__(self, coordinator: Coordinator, store: SqliteStore, clock: FakeClock, bus: FakeBus) -> None:
        self.coordinator = coordinator
        self.events = coordinator.events
        self.events._publish = bus.publish
        self.store = store
        self.clock = clock
        self.bus = bus

    async def submit(self, count: int = 1) -> list[str]:
        made = await self.coordinator.jobs.submit([a_submission(a_job(self.store)) for _ in range(count)])
        await asyncio.sleep(0)
        return [accepted.job.id for accepted in made.accepted]

    async def close_window(self) -> None:
        self.clock.advance(0.25)
        await self.events.close_window()
        self.events._rest()


@pytest.fixture
def house(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(events, "WINDOW_SECONDS", 1_000.0)

    @asynccontextmanager
    async def opened() -> AsyncIterator[House]:
        store = await SqliteStore.open(tmp_path / "stoker.db", clock, threads=False)
        logs = SqliteLogs.open(tmp_path / "stoker-logs.db", threads=False)
        bus = FakeBus()
        coordinator = Coordinator(Settings(), store, clock, JobLog(stream=io.StringIO()), logs, bus=bus)
        yield House(coordinator, store, clock, bus)
        await coordinator.stop()
        await logs.close()
        await store.close()

    return in_loop(opened)


async def an_event(stream: AsyncGenerator[Message, None]) -> Update:
    message = await anext(stream)
    assert isinstance(message, Numbered)
    return message.update


async def test_nobody_watches_and_nothing_is_kept(house: House) -> None:
    await house.submit(300)
    assert not house.events.heeded
    assert not house.events._own
    assert house.events._task is None


async def test_who_watches_is_told_what_changed(house: House) -> None:
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        hello = await anext(stream)
        assert isinstance(hello, StreamHello)
        ids = await house.submit(2)
        await house.close_window()
        update = await an_event(stream)
        assert update.tally["submitted"] == 2
        assert {(job.id, job.status) for job, _ in update.jobs} == {(id, "queued") for id in ids}
        assert update.more == 0
        await house.coordinator.jobs.cancel(ids[0])
        await house.close_window()
        update = await an_event(stream)
        assert [(job.id, job.status) for job, _ in update.jobs] == [(ids[0], "cancelled")]
        assert update.tally["cancelled"] == 1
        assert update.gauges.by_status["cancelled"] == 1


async def test_more_jobs_than_fit_are_a_number(house: House) -> None:
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        await anext(stream)
        await house.submit(MAX_JOBS + 50)
        await house.close_window()
        update = await an_event(stream)
        assert (len(update.jobs), update.more) == (MAX_JOBS, 50)
        assert update.tally["submitted"] == MAX_JOBS + 50


async def test_who_comes_back_soon_has_missed_nothing(house: House) -> None:
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        hello = await anext(stream)
        assert isinstance(hello, StreamHello)
    (id,) = await house.submit()
    await house.close_window()
    async with aclosing(house.coordinator.events.follow(f"{hello.epoch}:{hello.seq}")) as stream:
        again = await anext(stream)
        assert again == hello
        update = await an_event(stream)
        assert [job.id for job, _ in update.jobs] == [id]


async def test_who_comes_back_late_begins_anew(house: House) -> None:
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        hello = await anext(stream)
        assert isinstance(hello, StreamHello)
    house.clock.advance(LINGER_SECONDS + 1)
    await house.close_window()
    assert not house.events.wanted
    await house.submit()
    async with aclosing(house.coordinator.events.follow(f"{hello.epoch}:{hello.seq}")) as stream:
        assert isinstance(await anext(stream), StreamHello)
        assert isinstance(await anext(stream), Reset)


async def test_who_is_too_slow_is_told_to_begin_anew_and_goes_on(house: House) -> None:
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        await anext(stream)
        for _ in range(RING + 1):
            house.events.changed_many(1)
            await house.close_window()
        assert isinstance(await anext(stream), Reset)
        house.events.changed_many(7)
        await house.close_window()
        assert (await an_event(stream)).more == 7


async def test_a_store_that_does_not_answer_delays_the_news(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(ids: Sequence[str]) -> list[JobSummary]:
        raise StoreUnavailable("gone for a moment")

    async with aclosing(house.coordinator.events.follow(None)) as stream:
        await anext(stream)
        (id,) = await house.submit()
        with monkeypatch.context() as patch:
            patch.setattr(house.store, "summaries", unavailable)
            with pytest.raises(StoreUnavailable):
                await house.close_window()
        await house.close_window()
        update = await an_event(stream)
        assert [job.id for job, _ in update.jobs] == [id]
        assert update.tally["submitted"] == 1


async def test_workers_and_queues_come_when_they_change(house: House) -> None:
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        await anext(stream)
        await house.close_window()
        await an_event(stream)
        await house.store.open_session(a_session(house.store))
        await house.close_window()
        update = await an_event(stream)
        assert [row.id for row in update.workers or []] == ["w1"]
        assert update.queues is None
        await house.coordinator.queues.set_paused("mail", True)
        await house.close_window()
        update = await an_event(stream)
        assert [(queue.name, queue.paused_at is not None) for queue in update.queues or []] == [
            ("mail", True)
        ]
        assert update.workers is None


async def test_who_watches_one_job_is_woken_by_it_alone(house: House) -> None:
    mine, other = await house.submit(2)
    with house.events.watch_job(mine) as news:
        assert (house.events.heeded, house.events.wanted) == (True, False)
        await house.coordinator.jobs.cancel(other)
        assert not news.is_set()
        await house.coordinator.jobs.cancel(mine)
        assert news.is_set()
    assert not house.events.heeded


async def test_a_coordinator_that_stops_lets_go_of_who_watches(house: House) -> None:
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream, None))
        await asyncio.sleep(0)
        await house.coordinator.stop()
        assert await waiting is None


# ── several coordinators ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_others_are_told_only_while_they_want_to_know(house: House) -> None:
    house.events.heard_interest()
    (id,) = await house.submit()
    await house.close_window()
    assert house.bus.published == [Happened([id], 0, {"submitted": 1}, {}, {})]
    house.clock.advance(LISTEN_SECONDS)
    await house.close_window()
    assert not house.events.wanted
    await house.submit()
    await house.close_window()
    assert len(house.bus.published) == 1


async def test_who_is_watched_asks_the_others_again_and_again(house: House) -> None:
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        await anext(stream)
        for _ in range(60):
            house.clock.advance(LISTEN_SECONDS / 20)
            await house.close_window()
        assert 10 <= house.bus.published.count(Listen()) <= 20


async def test_what_happened_elsewhere_is_told_and_not_passed_on(house: House) -> None:
    (id,) = await house.submit()
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        await anext(stream)
        house.events.heard_interest()
        house.events.heard(Happened([id, new_id()], 4, {"completed": 6}, {in_one_second(): 6}, {}))
        await house.close_window()
        update = await an_event(stream)
        assert [job.id for job, _ in update.jobs] == [id]
        assert (update.more, update.tally["completed"]) == (5, 6)
        assert update.gauges.wait_p95_sec == pytest.approx(1.0, rel=0.1)
        assert all(not isinstance(news, Happened) for news in house.bus.published)


def in_one_second() -> int:
    return bucket_of(1_000_000)


async def test_after_others_stopped_watching_there_is_still_no_way_back(house: House) -> None:
    """Interest from elsewhere keeps the hooks busy, but not the ring: who was away then has missed something."""
    async with aclosing(house.coordinator.events.follow(None)) as stream:
        hello = await anext(stream)
        assert isinstance(hello, StreamHello)
    house.clock.advance(LINGER_SECONDS + 1)
    house.events.heard_interest()
    await house.close_window()
    assert house.events.wanted
    await house.submit()
    await house.close_window()
    async with aclosing(house.coordinator.events.follow(f"{hello.epoch}:{hello.seq}")) as stream:
        assert isinstance(await anext(stream), StreamHello)
        assert isinstance(await anext(stream), Reset)


def test_structs_of_updates_can_be_encoded() -> None:
    assert msgspec.json.encode(an_update())
