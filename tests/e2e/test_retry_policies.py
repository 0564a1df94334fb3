"""The tasks of docs/howto/retries.md on a real system: what they raise decides what becomes of their jobs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import STORES
from tests.e2e.system import Server, System

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "retries.md"


@pytest.fixture(scope="module")
def server(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("retries")
    block = re.search(r"^```python\n(# tasks\.py.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    (folder / "tasks.py").write_text(block[1])
    with System(folder, STORES[store](folder)) as system:
        server = system.serve()
        system.worker(server, app="tasks:app", threads=2)
        yield server


def test_a_rule_for_a_base_class_matches_what_is_derived_from_it(server: Server) -> None:
    job = server.ended(server.submit("fetch", {"name": "report"})["id"])
    assert (job["status"], job["result"]) == ("completed", "report, at attempt 2")
    (first, _) = job["attempts"]
    assert 0.07 <= first["retry_delay_sec"] <= 0.13


def test_an_error_that_is_never_retried_ends_the_job_at_once(server: Server) -> None:
    job = server.ended(server.submit("fetch", {"name": "missing"})["id"])
    assert (job["status"], job["attempt"], job["error"]["type"]) == ("failed", 1, "FileNotFoundError")


def test_retry_after_says_when_and_fail_says_never(server: Server) -> None:
    paid = server.ended(server.submit("charge", {"invoice": 1})["id"])
    assert (paid["status"], paid["attempt"], paid["max_attempts"]) == ("completed", 3, 4)
    assert [attempt["retry_delay_sec"] for attempt in paid["attempts"][:2]] == [0.05, 0.05]
    refused = server.ended(server.submit("charge", {"invoice": -1})["id"])
    assert (refused["status"], refused["attempt"]) == ("failed", 1)
    assert refused["error"]["message"] == "there is no invoice -1"


def test_a_snooze_of_an_async_task_costs_no_attempt(server: Server) -> None:
    job = server.ended(server.submit("poll", {})["id"])
    assert (job["status"], job["result"], job["attempt"], job["snoozes"]) == ("completed", 3, 1, 2)
    assert [(a["outcome"], a["charged"]) for a in job["attempts"]] == [
        ("snoozed", False),
        ("snoozed", False),
        ("completed", True),
    ]


def test_the_policy_of_a_single_job_goes_before_that_of_its_task(server: Server) -> None:
    job = server.submit("charge", {"invoice": 2}, retry={"delays_sec": [0.01]})
    assert (job["max_attempts"], job["retry"]) == (2, {"delays_sec": [0.01]})
    ended = server.ended(job["id"])
    assert (ended["status"], ended["error"]["type"]) == ("failed", "RetryAfter")
