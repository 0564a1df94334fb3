"""What every test may use: async tests, a clock that a test owns, and Hypothesis made repeatable."""

import pytest
from hypothesis import HealthCheck, settings

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


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
