"""Systems for the tests: one that most share, and fresh ones for those that break theirs."""

from collections.abc import Iterator

import pytest

from tests.e2e.system import Server, System

HEARTBEAT_TIMEOUT_SECONDS = 2
RETRY_BASE_SECONDS = 1


@pytest.fixture
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system of the test's own, with nothing running yet."""
    with System(tmp_path_factory.mktemp("system")) as system:
        yield system


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The system that tests share. A test that wants a worker to itself starts one with a queue of its own."""
    with System(tmp_path_factory.mktemp("town")) as town:
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
