"""Systems for the tests: one that most share, and fresh ones for those that break theirs."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.e2e.system import Server, System
from tests.support.servers import databases

HEARTBEAT_TIMEOUT_SECONDS = 2
RETRY_BASE_SECONDS = 1


STORES: dict[str, Callable[[Path], str | None]] = {"sqlite": lambda _: None, "postgres": databases.url}
"""The stores that whole systems are tested on: a name, and the URL of the database for a folder."""

ABOUT_JOBS = {
    "test_coordinator_death",
    "test_ending_jobs",
    "test_events",
    "test_http_worker",
    "test_operate_api",
    "test_order",
    "test_queues",
    "test_sdk_death",
    "test_submit",
    "test_task_options",
}
"""Modules that run on every store each time."""
ABOUT_STORES = ABOUT_JOBS | {
    "test_failures",
    "test_leaving",
    "test_logs",
    "test_routing",
    "test_sdk",
    "test_worker_death",
}
"""Modules that run on every store with `make test-stores`. The others are about what happens beside it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        module = metafunc.module.__name__.rpartition(".")[2]
        both = ABOUT_STORES if os.environ.get("E2E_STORES") == "all" else ABOUT_JOBS
        names = list(STORES) if module in both else ["sqlite"]
        metafunc.parametrize("store", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def store(request: pytest.FixtureRequest) -> str:
    """The name of the store that the test's systems keep their jobs in."""
    return cast(str, request.param)


@pytest.fixture
def system(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system of the test's own, with nothing running yet."""
    folder = tmp_path_factory.mktemp("system")
    with System(folder, STORES[store](folder)) as system:
        yield system


@pytest.fixture(scope="session")
def town(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The system that tests share. A test that wants a worker to itself starts one with a queue of its own."""
    folder = tmp_path_factory.mktemp("town")
    with System(folder, STORES[store](folder)) as town:
        yield town


@pytest.fixture(scope="session")
def server(town: System) -> Server:
    """The shared coordinator: short leases, and retries after about a second."""
    return town.serve(
        WORKER_HEARTBEAT_TIMEOUT_SEC=HEARTBEAT_TIMEOUT_SECONDS,
        STOKER_RETRY_BACKOFF_BASE_SEC=RETRY_BASE_SECONDS,
    )


@pytest.fixture(scope="session")
def crew(town: System, server: Server) -> str:
    """The queue of the shared worker, which has four threads and all tasks of `jobs_app`."""
    town.worker(server, "--queues", "default,crew", name="crew", threads=4)
    return "crew"
