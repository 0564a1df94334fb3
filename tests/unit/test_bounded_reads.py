"""Reads stay bounded: how the sources of a page are merged, what is kept of dead-letter groups, and that no slow read of the
embedded store runs on the event loop."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.clock import SystemClock
from stoker.coordinator.dead_groups import COUNTED_FRESH, RENEW_SECONDS, RENEW_TIMES, DeadGroups
from stoker.domain.errors import TooDeep
from stoker.store.base import Store
from stoker.store.reads import Count, DeadLetterGroups, JobFilter, JobQuery
from stoker.store.sqlite.reads import SqliteReader
from stoker.store.sqlite.store import SqliteStore
from stoker.store.walks import CHUNK, WALK, Abreast, Halving, Merging, Span, present, ranks_of
from tests.support.turns import turns


def walked(merging: Merging, sources: list[list[int]]) -> int:
    """Walk lists of numbers, highest first; how many were looked at."""
    looked_at = 0
    while (walk := merging.next()) is not None:
        place, high, most = walk
        seen = [seq for seq in sources[place] if seq < high][:most]
        looked_at += len(seen)
        merging.walked(place, [seq for seq in seen if seq % 10 == 0], len(seen), min(seen, default=None))
    return looked_at


def test_a_page_has_the_newest_of_all_sources() -> None:
    sources = [list(range(100, 0, -2)), list(range(99, 0, -2))]
    merging = Merging([101, 100], [False, False], take=4)
    walked(merging, sources)
    assert merging.page(JobQuery(limit=3)).seqs == [100, 90, 80]


def test_a_page_that_ends_early_shows_nothing_below_what_was_looked_at() -> None:
    sparse = [seq for seq in range(10 * WALK, 0, -1) if seq % 10]
    merging = Merging([10 * WALK + 1, 1_001], [False, False], take=51)
    merging.ended(1, [1_000, 990])
    assert walked(merging, [sparse, []]) == WALK
    page = merging.page(JobQuery(limit=50))
    assert page.seqs == []
    assert page.next_before_seq == sparse[WALK - 1]
    assert merging.total() == (2, True)


def test_a_source_whose_jobs_lie_below_the_page_is_not_walked() -> None:
    deep = list(range(1_000_000, 0, -1))
    merging = Merging([2_000_000, 1_000_001], [False, False], take=10)
    walked(merging, [list(range(1_999_999, 1_000_000, -1)), deep])
    assert len(merging.page(JobQuery(limit=9)).seqs) == 9
    assert merging.page(JobQuery(limit=9)).seqs[-1] > 1_000_000


def test_an_offset_beyond_what_was_looked_at_is_refused() -> None:
    merging = Merging([10 * WALK], [False], take=1_000)
    walked(merging, [[seq for seq in range(10 * WALK - 1, 0, -1) if seq % 10]])
    with pytest.raises(TooDeep, match="next_cursor"):
        merging.page(JobQuery(offset=900))


def test_looking_up_costs_more_than_walking() -> None:
    sparse = [seq for seq in range(10 * WALK, 0, -1) if seq % 10]
    merging = Merging([10 * WALK + 1], [True], take=51)
    assert walked(merging, [sparse]) < WALK / 2
    assert CHUNK < WALK


@pytest.mark.parametrize("moment", [0, 1, 500, 777, 1_000, 2_000])
def test_a_moment_is_found_by_halving(moment: int) -> None:
    created = {seq: seq * 10 for seq in range(1, 101) if seq % 3}
    halving = Halving(moment, Span(1, 101))
    probes = 0
    while (probe := halving.probe) is not None:
        seq = min(seq for seq in created if seq >= probe)
        halving.tell(seq, created[seq])
        probes += 1
    assert probes <= 8
    assert all(at < moment for seq, at in created.items() if seq < halving.low)
    assert all(at >= moment for seq, at in created.items() if seq >= halving.low)


def test_counters_say_where_jobs_can_be() -> None:
    counts = [Count("q", "a", "queued", 3), Count("q", "a", "failed", 2), Count("q", "b", "completed", 1)]
    assert present(JobFilter(type="a"), counts) == {"queued": 3, "failed": 2}
    assert present(JobFilter(type="a", dead_letters=True), counts) == {"failed": 2}
    assert present(JobFilter(type="none"), counts) == {}
    assert present(JobFilter(worker="w"), counts) == {"failed": 2, "completed": 1}


class Groups:
    """A store that counts how often groups are counted, once `open` lets it."""

    def __init__(self, failed: int) -> None:
        self.failed = failed
        self.counted = 0
        self.open = asyncio.Event()
        self.open.set()

    async def counts(self) -> list[Count]:
        return [Count("q", "a", "failed", self.failed)]

    async def dead_letter_groups(self, limit: int) -> DeadLetterGroups:
        await self.open.wait()
        self.counted += 1
        return DeadLetterGroups([], self.counted, limit, 0)


class Asking:
    """Asks a keeper of such a store, at a time that the test sets."""

    def __init__(self, failed: int) -> None:
        self.now = 0.0
        self.store = Groups(failed)
        self.keeper = DeadGroups(self.store, lambda: self.now)  # type: ignore[arg-type]

    async def __call__(self) -> int:
        return (await self.keeper.get(10)).total_groups


async def test_few_dead_letters_are_counted_for_every_request() -> None:
    ask = Asking(COUNTED_FRESH)
    assert [await ask(), await ask()] == [1, 2]


async def test_groups_of_many_dead_letters_are_kept_and_counted_anew_when_they_are_asked_for_later() -> None:
    ask = Asking(COUNTED_FRESH + 1)
    assert [await ask(), await ask()] == [1, 1]
    ask.now = RENEW_SECONDS
    assert [await ask(), await ask()] == [2, 2]


async def test_groups_that_take_long_to_count_are_kept_longer() -> None:
    ask = Asking(COUNTED_FRESH + 1)
    ask.store.open.clear()
    first = asyncio.create_task(ask())
    await turns(3)
    ask.now = 2.0
    ask.store.open.set()
    assert await first == 1
    ask.now = 2.0 * RENEW_TIMES - 1
    assert await ask() == 1
    ask.now = 2.0 * RENEW_TIMES
    assert await ask() == 2


async def test_no_request_waits_long_for_groups_while_an_earlier_answer_is_there() -> None:
    ask = Asking(COUNTED_FRESH + 1)
    await ask()
    ask.store.open.clear()
    ask.keeper.outdated()
    assert [await ask(), await ask()] == [1, 1]
    ask.store.open.set()
    await turns(5)
    assert (await ask(), ask.store.counted) == (2, 2)


async def test_a_change_while_groups_are_counted_makes_them_counted_again() -> None:
    ask = Asking(COUNTED_FRESH + 1)
    ask.store.open.clear()
    first = asyncio.create_task(ask())
    await turns(3)
    ask.keeper.outdated()
    ask.store.open.set()
    assert (await first, await ask(), ask.store.counted) == (1, 2, 2)


async def test_groups_are_counted_before_anything_asks_for_them() -> None:
    ask = Asking(COUNTED_FRESH + 1)
    running = asyncio.create_task(ask.keeper.run())
    await turns(5)
    running.cancel()
    assert ask.store.counted == 1
    assert (await ask(), ask.store.counted) == (1, 1)


async def test_what_can_be_slow_is_read_in_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Store = await SqliteStore.open(tmp_path / "stoker.db", SystemClock())
    where: dict[str, str] = {}
    for name in (
        "oldest_due",
        "counts",
        "sessions",
        "page",
        "dead_letter_groups",
        "bulks",
        "noted_types",
        "series",
    ):
        real = getattr(SqliteReader, name)

        def noted(
            self: SqliteReader,
            *args: object,
            name: str = name,
            real: Callable[..., object] = real,
            **more: object,
        ) -> object:
            where.setdefault(name, threading.current_thread().name)
            return real(self, *args, **more)

        monkeypatch.setattr(SqliteReader, name, noted)
    try:
        await store.oldest_due()
        await store.counts()
        await store.sessions()
        await store.bulks(5)
        await store.noted_types()
        await store.series(10, 0, 1)
        await store.page(JobQuery())
        await store.dead_letter_groups(5)
    finally:
        await store.close()
    assert len(where) == 8
    assert {name for name, thread in where.items() if not thread.startswith("stoker-")} == set()


def abreast(sources: list[list[int]], take: int) -> tuple[list[int], int]:
    """The newest of these sources, and how many numbers were read for them."""
    reading, read = Abreast(len(sources), 1_000_000, take), 0
    while (going := reading.next())[0]:
        reached, each = going
        found = {
            place: [seq for seq in sources[place] if seq < high][:each] for place, high in reached.items()
        }
        read += sum(map(len, found.values()))
        reading.read(found)
    return reading.seqs, read


@pytest.mark.parametrize("take", [0, 1, 51, 1_001, 100_000])
def test_sources_that_are_read_abreast_give_the_newest_of_all(take: int) -> None:
    sources = [list(range(50_000, 0, -place)) for place in range(7, 200)] + [
        [],
        [999_999],
        list(range(90, 0, -1)),
    ]
    newest = sorted((seq for source in sources for seq in source), reverse=True)
    assert abreast(sources, take)[0] == newest[:take]


def test_reading_abreast_costs_the_sources_and_the_page_but_not_their_product() -> None:
    even = [list(range(200_000 + place, 0, -200)) for place in range(200)]
    assert abreast(even, 1_001)[1] < 200 * 16 + 4 * 1_001
    one_above = [list(range(900_000, 800_000, -1)), *even]
    assert abreast(one_above, 1_001)[1] < 201 * 16 + 4 * 1_001


def test_ranks_that_can_stand_for_a_priority() -> None:
    assert ranks_of(3) == [3, 97]
    assert ranks_of(50) == [50]
