"""`put_series` and `series`: what coordinators counted, bucket by bucket."""

from stoker.clock import SECOND
from stoker.domain.series import COARSE_SEC, FINE_SEC, KEPT_SEC, GaugeRow, Gauges, Tally, TallyRow
from stoker.store.base import Store
from stoker.store.upkeep import Retention
from tests.conformance.steps import HOUR
from tests.support.clock import FakeClock

AT = 1_700_000_000 * SECOND
KEEP = Retention(HOUR, HOUR)


def a_row(
    at: int = AT, queue: str = "q", type: str = "t", bucket: int = FINE_SEC, **numbers: object
) -> TallyRow:
    return TallyRow(bucket, at, queue, type, Tally(**numbers))  # type: ignore[arg-type]


async def test_what_was_put_is_read_again(store: Store) -> None:
    tally = a_row(
        submitted=9,
        completed=3,
        failed=1,
        cancelled=2,
        retried=4,
        queue_depth_max=7,
        wait={0: 1, 90: 2},
        run={63: 3},
    )
    gauge = GaugeRow(FINE_SEC, AT, Gauges(5, 4, 8, 2, None))
    wanted = GaugeRow(FINE_SEC, AT + 10 * SECOND, Gauges(5, 4, 8, 2, 3))
    await store.put_series(1, [tally], [gauge, wanted])
    assert await store.series(FINE_SEC, AT, AT + 20 * SECOND) == ([tally], [gauge, wanted])
    assert await store.series(COARSE_SEC, AT, AT + 20 * SECOND) == ([], [])
    await store.put_series(1, [], [])


async def test_a_row_is_put_in_the_place_of_the_one_before(store: Store) -> None:
    await store.put_series(1, [a_row(completed=1)], [GaugeRow(FINE_SEC, AT, Gauges(1))])
    await store.put_series(1, [a_row(completed=3)], [GaugeRow(FINE_SEC, AT, Gauges(3))])
    assert await store.series(FINE_SEC, AT, AT + 1) == (
        [a_row(completed=3)],
        [GaugeRow(FINE_SEC, AT, Gauges(3))],
    )


async def test_rows_in_which_jobs_only_waited_are_folded_into_one(store: Store) -> None:
    later, last = AT + 10 * SECOND, AT + 20 * SECOND
    happened = [
        a_row(AT, submitted=2, queue_depth_max=9),
        a_row(later, run={3: 1}),
        a_row(later, "other", retried=1),
    ]
    waited = [
        a_row(later, "busy", queue_depth_max=8),
        a_row(last, "busy", queue_depth_max=5),
        a_row(last, "other"),
    ]
    gauge = GaugeRow(FINE_SEC, AT, Gauges(5))
    await store.put_series(1, [*happened, *waited], [gauge])
    tallies, gauges = await store.series(FINE_SEC, AT, last + 1, folded=True)
    folded = [a_row(last, "busy", queue_depth_max=8), a_row(last, "other")]
    assert sorted(tallies, key=lambda row: (row.queue, row.at)) == sorted(
        [*happened, *folded], key=lambda row: (row.queue, row.at)
    )
    assert gauges == [gauge]
    assert (await store.series(FINE_SEC, AT, later, folded=True))[0] == happened[:1]


async def test_coordinators_have_rows_of_their_own(store: Store) -> None:
    for shard in (1, 2**62):
        await store.put_series(shard, [a_row(completed=2)], [GaugeRow(FINE_SEC, AT, Gauges(1))])
    tallies, gauges = await store.series(FINE_SEC, AT, AT + 1)
    assert (len(tallies), len(gauges)) == (2, 2)


async def test_series_are_read_by_time_queue_and_type(store: Store) -> None:
    rows = [a_row(AT + n * 10 * SECOND, queue, type) for n in range(3) for queue in "ab" for type in "xy"]
    await store.put_series(1, rows, [])

    async def read(*where: object) -> list[TallyRow]:
        tallies, _ = await store.series(FINE_SEC, *where)  # type: ignore[arg-type]
        return sorted(tallies, key=lambda row: (row.at, row.queue, row.type))

    assert await read(AT, AT + 30 * SECOND) == rows
    assert await read(AT + 10 * SECOND, AT + 20 * SECOND) == rows[4:8]
    assert await read(AT, AT + 1, "a") == rows[:2]
    assert await read(AT, AT + 1, None, "y") == [rows[1], rows[3]]
    assert await read(AT, AT + 1, "b", "y") == [rows[3]]


async def test_what_is_too_old_is_purged(store: Store, clock: FakeClock) -> None:
    now = store.now_us()
    for bucket in (FINE_SEC, COARSE_SEC):
        old = now - KEPT_SEC[bucket] * SECOND
        rows = [a_row(at, bucket=bucket) for at in (old - SECOND, old - HOUR, old + SECOND)]
        await store.put_series(1, rows, [GaugeRow(bucket, row.at, Gauges()) for row in rows])
    for _ in range(3):
        await store.purge(KEEP, 100)
    for bucket in (FINE_SEC, COARSE_SEC):
        tallies, gauges = await store.series(bucket, 0, now)
        assert len(tallies) == len(gauges) == 1
