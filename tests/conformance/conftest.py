import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from stoker.store.base import Store
from tests.conformance.stores import STORES, StoreKind, fast_folder, opened
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop


@pytest.fixture(params=STORES, ids=lambda kind: kind.name)
def store_kind(request: pytest.FixtureRequest) -> StoreKind:
    return cast(StoreKind, request.param)


@pytest.fixture
def place() -> Iterator[Path]:
    """Where a store may live during one test."""
    with tempfile.TemporaryDirectory(prefix="stoker-", dir=fast_folder()) as folder:
        yield Path(folder)


@pytest.fixture
def store(store_kind: StoreKind, place: Path, clock: FakeClock) -> Store:
    """An empty store, whose books are checked after the test."""
    return in_loop(lambda: opened(store_kind, place, clock))
