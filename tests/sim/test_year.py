"""One year of schedules with every run of the tests; `make schedule-years` lives through many.

The planted bugs are looked for in three weeks of spring. The same weeks must be clean without them, so that what is found
there is the bug."""

from typing import Final

import pytest

from stoker.domain.recurrence import Recurrence
from tests.sim import year

SPRINGS: Final = 3


def test_each_tick_of_a_year_is_recorded_once_and_fires_when_the_rules_say() -> None:
    assert year.run_year(seed=1, count=50, often=1) == []


@pytest.mark.parametrize("seed", range(SPRINGS))
def test_nothing_is_found_without_a_planted_bug(seed: int) -> None:
    assert year.run_year(seed, count=20, often=2, span=year.SPRING) == []


@pytest.mark.parametrize("bug", year.BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert year.seeds_to_find(bug, limit=SPRINGS, count=20, span=year.SPRING) is not None


@pytest.mark.parametrize("zone", year.ZONES)
def test_the_oracle_agrees_with_the_product_on_every_expression(zone: str) -> None:
    begin, end = year.YEAR
    for cron in (*year.RARE, *year.OFTEN):
        ticks = list(Recurrence(cron=cron, timezone=zone).between(begin + 1, end))
        assert ticks == year.cron_ticks(cron, zone, year.YEAR), cron
