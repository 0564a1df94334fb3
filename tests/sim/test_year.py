"""One year of schedules with every run of the tests; `make schedule-years` lives through many."""

import pytest

from tests.sim import year


def test_each_tick_of_a_year_is_recorded_once_and_fires_when_the_rules_say() -> None:
    assert year.run_year(seed=1, count=50, often=1) == []


@pytest.mark.parametrize("bug", year.BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    assert year.seeds_to_find(bug, limit=6, count=8) is not None


def test_the_oracle_agrees_with_the_product_on_every_expression() -> None:
    from stoker.domain.recurrence import Recurrence

    for zone in year.ZONES:
        for cron in (*year.RARE, *year.OFTEN):
            ticks = list(Recurrence(cron=cron, timezone=zone).between(year.BEGIN + 1, year.END))
            assert ticks == year.cron_ticks(cron, zone, year.BEGIN, year.END), (cron, zone)
