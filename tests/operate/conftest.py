"""Tests that need programs of an operator (Prometheus, a Docker engine) and minutes: in CI, and when asked for."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.system import System

ASKED_BY = {"test_docker.py": ("DOCKER_TESTS", "make docker-test")}
"""The variable that asks for the tests of a file, and the command that sets it. What is named here is a step of its own in
CI too: it takes ten minutes."""
QUICK = {
    "test_every_panel_has_data",
    "test_a_job_that_nobody_serves",
    "test_there_is_a_scenario_for_every_alert",
}
"""What runs in CI without being asked for: the others let time pass until an alert fires."""
OTHERWISE = ("OPERATE_TESTS", "make operate-test")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        variable, command = ASKED_BY.get(item.path.name, OTHERWISE)
        in_ci = os.environ.get("CI") == "true" and item.name in QUICK
        if here in item.path.parents and not in_ci and os.environ.get(variable) != "1":
            item.add_marker(pytest.mark.skip(reason=f"needs an operator's programs: {command}"))


@pytest.fixture
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with System(tmp_path_factory.mktemp("operated")) as system:
        yield system
