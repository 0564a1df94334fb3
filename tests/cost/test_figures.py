"""Quotients of two revisions, and which of them are too much."""

from bench.cost.figures import ALL, Bounds, Subject, cost_table, quotient_table, quotients
from bench.cost.measure import IDLE, Cost, without_idle
from bench.cost.workloads import ONE_BY_ONE

SINGLES = Subject("SQLite", "singles")


def cost(cpu: float = 100.0, calls: float = 10.0, transactions: float = 0.5, rate: float = 1_000.0) -> Cost:
    roles = {"coordinator": 0.75, "worker children": 0.25}
    return Cost(
        {role: cpu * share for role, share in roles.items()},
        {role: calls * share for role, share in roles.items()},
        {role: calls * share / 2 for role, share in roles.items()},
        transactions,
        rate,
        rate,
    )


def exceeded(this: list[Cost], base: list[Cost], subject: Subject = SINGLES) -> list[str]:
    found = quotients({subject: this}, {subject: base}, Bounds())
    return [quotient.metric for quotient in found if quotient.exceeded]


def test_the_same_again_exceeds_nothing() -> None:
    assert exceeded([cost()] * 3, [cost()] * 3) == []


def test_each_metric_has_its_bound() -> None:
    assert exceeded([cost(cpu=104)], [cost()]) == ["CPU"]
    assert exceeded([cost(calls=10.4)], [cost()]) == ["calls", "working calls"]
    assert exceeded([cost(transactions=0.52)], [cost()]) == ["transactions"]
    assert exceeded([cost(rate=890)], [cost()]) == ["rate"]
    assert exceeded([cost(102, 10.2, 0.51, 910)], [cost()]) == []


def test_the_median_of_the_pairs_decides() -> None:
    slow_machine = [cost(100), cost(200), cost(100)]
    assert exceeded([cost(101), cost(202), cost(300)], slow_machine) == []
    assert exceeded([cost(104), cost(208), cost(100)], slow_machine) == ["CPU"]


def test_what_idles_is_shown_and_not_judged() -> None:
    assert exceeded([cost(cpu=200)], [cost()], Subject("SQLite", IDLE)) == []


def test_of_a_workload_that_mostly_waits_only_counts_are_judged() -> None:
    dearer = [cost(cpu=200, calls=20, transactions=1, rate=500)]
    metrics = exceeded(dearer, [cost()], Subject("SQLite", ONE_BY_ONE.name))
    assert metrics == ["calls", "working calls", "transactions"]


def test_what_the_clock_brings_in_is_taken_off() -> None:
    idle = cost(cpu=10_000, calls=500, transactions=5, rate=1)
    slow = without_idle(cost(cpu=600, calls=35, transactions=0.75, rate=20), idle)
    assert slow == cost(cpu=100, calls=10, transactions=0.5, rate=20)


def test_uncounted_calls_are_left_out() -> None:
    blind = Cost({"coordinator": 1.0}, {}, {}, 0.5, 1_000.0, 1_000.0)
    metrics = {quotient.metric for quotient in quotients({SINGLES: [blind]}, {SINGLES: [blind]}, Bounds())}
    assert metrics == {"CPU", "transactions", "rate"}


def test_tables_have_a_row_for_each_process_and_one_for_all() -> None:
    costs = {SINGLES: [cost(100), cost(110), cost(90)]}
    table = cost_table(costs).splitlines()
    assert [line.split()[2] for line in table[2:]] == ["coordinator", "worker", ALL]
    assert "100 ±10%" in table[-1]
    dearer = quotient_table(quotients({SINGLES: [cost(110)]}, {SINGLES: [cost()]}, Bounds()))
    assert "1.100 !" in dearer.splitlines()[-1]
