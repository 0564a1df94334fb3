"""A job makes no more system calls and transactions than bounds.toml allows, and the guard notices when it does."""

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from bench.cost.calls import HOW_TO_COUNT, Counter, find_counter
from bench.cost.measure import Cost, Revision, bench_of, without_idle
from bench.cost.stores import SETTINGS, OnPostgres, Sqlite, Store
from bench.cost.workloads import BY_SDK, DRAIN, ONE_BY_ONE, SUBMIT, Workload
from tests.support.servers import QUICK, postgres

BOUNDS: Final[Mapping[str, Mapping[str, Mapping[str, float]]]] = tomllib.loads(
    (Path(__file__).parent / "bounds.toml").read_text()
)
JOBS: Final = {ONE_BY_ONE: 100, SUBMIT: 2_000, BY_SDK: 200, DRAIN: 2_000}
IDLE_SECONDS: Final = 2.0
AS_IT_IS: Final = Revision("as it is")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")


@pytest.fixture(scope="module")
def counter() -> Counter | None:
    """Where calls cannot be counted, transactions still can. In CI both must be."""
    found = find_counter()
    assert found is not None or os.environ.get("CI") != "true", HOW_TO_COUNT
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        yield Sqlite(tmp_path)
    else:
        with postgres(settings={**QUICK, **SETTINGS}) as server:
            yield OnPostgres(tmp_path, server)


def costs_of(
    store: Store, counter: Counter | None, workloads: Mapping[Workload, int], revision: Revision = AS_IT_IS
) -> dict[str, Cost]:
    with bench_of(revision, store, counter) as bench:
        idle = bench.idle(IDLE_SECONDS)
        quick = {workload: bench.cost(workload, jobs) for workload, jobs in workloads.items()}
        return {
            workload.name: without_idle(bench.counted(workload, workloads[workload], cost), idle)
            for workload, cost in quick.items()
        }


def exceeded(store: str, costs: Mapping[str, Cost], *, slowed: bool) -> list[str]:
    """A line for each bound that is exceeded. `slowed`: the calls were counted on processes that ran slower."""
    found = []
    for workload, cost in costs.items():
        bounds = BOUNDS[store][workload]
        counted = {} if slowed and workload == DRAIN.name else cost.working
        for name, value in {"transactions": cost.transactions, **counted}.items():
            if value > bounds.get(name, float("inf")):
                found.append(f"{store}, {workload}, {name}: {value:.3f} a job, at most {bounds[name]}")
    return found


def test_a_job_makes_no_more_calls_and_transactions_than_the_bounds_allow(
    store: Store, counter: Counter | None
) -> None:
    costs = costs_of(store, counter, JOBS)
    assert exceeded(store.name, costs, slowed=counter is not None and counter.disturbs) == []


def planted(what: str) -> Revision:
    return Revision(what, (sys.executable, "-m", "tests.cost.planted", what))


def test_one_more_commit_for_each_transaction_is_noticed(tmp_path: Path) -> None:
    store = Sqlite(tmp_path)
    costs = costs_of(store, None, {ONE_BY_ONE: 50, SUBMIT: 1_000}, planted("commit"))
    lines = exceeded(store.name, costs, slowed=False)
    assert [line.partition(":")[0] for line in lines] == [
        "SQLite, one by one, transactions",
        "SQLite, submit, transactions",
    ]


def test_one_more_call_for_each_submitted_job_is_noticed(tmp_path: Path, counter: Counter | None) -> None:
    if counter is None:
        pytest.skip(HOW_TO_COUNT)
    store = Sqlite(tmp_path)
    costs = costs_of(store, counter, {SUBMIT: 1_000}, planted("write"))
    lines = exceeded(store.name, costs, slowed=counter.disturbs)
    assert [line.partition(":")[0] for line in lines] == ["SQLite, submit, coordinator"]
