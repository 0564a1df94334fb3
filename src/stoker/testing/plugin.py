"""The pytest plugin: the fixture `stoker_test`. Installed with Stoker; it imports nothing until a test asks for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stoker.testing.kit import Kit


@pytest.fixture
def stoker_test() -> Iterator[Callable[..., "Kit"]]:
    """Open the test kit for an app until the end of the test: `t = stoker_test(app)`."""
    with ExitStack() as stack:

        def enter(app: Any, **options: Any) -> "Kit":
            kit: Kit = stack.enter_context(app.testing(**options))
            return kit

        yield enter
