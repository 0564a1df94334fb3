"""`examples/shop`: its own tests pass, and they fail when a bug is planted into its code."""

import shutil
from pathlib import Path

import pytest

from tests.frameworks.example_tests import EXAMPLES, run_tests

SHOP = EXAMPLES / "shop"


def test_the_tests_of_the_shop_pass() -> None:
    done = run_tests(SHOP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "found_by"),
    [
        pytest.param(
            'charge(key=f"order-{order_id}"',
            'charge(key=f"order-{order_id}-{current_job().attempt}"',
            "test_a_worker_that_dies_after_the_charge_does_not_charge_twice",
            id="charges-twice",
        ),
        pytest.param(
            '"0 2 * * *"',
            '"0 3 * * *"',
            "test_the_report_is_written_at_two_in_the_morning_in_berlin",
            id="wrong-hour",
        ),
        pytest.param(
            '.options(unique_key=f"order-{order_id}")',
            "",
            "test_two_clicks_make_one_charge",
            id="not-unique",
        ),
        pytest.param(
            "on=BankUnavailable",
            "never=BankUnavailable",
            "test_a_bank_that_does_not_answer_is_asked_again",
            id="no-retry",
        ),
    ],
)
def test_a_bug_in_the_shop_is_found_by_its_tests(
    tmp_path: Path, right: str, wrong: str, found_by: str
) -> None:
    copy = tmp_path / "shop"
    shutil.copytree(SHOP, copy, ignore=shutil.ignore_patterns("__pycache__"))
    tasks = copy / "shop" / "tasks.py"
    code = tasks.read_text("utf-8")
    assert code.count(right) == 1
    tasks.write_text(code.replace(right, wrong), "utf-8")
    done = run_tests(copy, f"tests/test_shop.py::{found_by}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AssertionError" in done.stdout, done.stdout
    assert "1 failed" in done.stdout, done.stdout
