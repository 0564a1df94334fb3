import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.executors.native_binary import find_runner
from tests.runner.serving import Serving, serving


@pytest.fixture(scope="session")
def binary() -> Path:
    """The C++ runner. Without a compiler there is none, and that is fine everywhere but where we promised to test it."""
    named = os.environ.get("STOKER_TEST_RUNNER")
    found = Path(named) if named else find_runner()
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the C++ runner was not built, and CI must not pass without it")
        pytest.skip("the C++ runner was not built (no compiler or no CMake when Stoker was installed)")
    return found


@pytest.fixture(scope="module")
def warm(binary: Path) -> Iterator[Serving]:
    with serving(binary) as runner:
        yield runner
