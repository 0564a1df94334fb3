"""`examples/flask_app` and `examples/sentry`: their own tests pass."""

import pytest

from tests.frameworks.example_tests import EXAMPLES, run_tests


@pytest.mark.parametrize("name", ["flask_app", "sentry"])
def test_the_tests_of_the_example_pass(name: str) -> None:
    done = run_tests(EXAMPLES / name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
