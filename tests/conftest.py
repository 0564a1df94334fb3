"""What every test may use: async tests, a clock that a test owns, logging put back, and Hypothesis made repeatable."""

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from stoker.context import leave_job
from tests.support import in_loop
from tests.support.clock import FakeClock

settings.register_profile(
    "stoker",
    deadline=None,  # a busy machine is not a defect
    derandomize=True,  # the same examples each time: a red run is red again
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("stoker")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return in_loop.call(pyfuncitem)


@pytest.fixture(autouse=True)
def no_job_stays_entered() -> Iterator[None]:
    """Some tests run what a child runs, and a child never leaves a job but for the next one."""
    yield
    leave_job()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """`stoker.logs.log.configure` is for a whole process: put the process back as it was."""
    before = structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
