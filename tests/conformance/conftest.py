from pathlib import Path
from typing import cast

import pytest

from stoker.store.base import Store
from tests.conformance.stores import STORES, StoreKind, opened
from tests.support.clock import FakeClock
from tests.support.in_loop import in_loop


@pytest.fixture(params=STORES, ids=lambda kind: kind.name)
def store_kind(request: pytest.FixtureRequest) -> StoreKind:
    return cast(StoreKind, request.param)


@pytest.fixture
def store(store_kind: StoreKind, tmp_path: Path, clock: FakeClock) -> Store:
    """An empty store, whose books are checked after the test."""
    return in_loop(lambda: opened(store_kind, tmp_path, clock))
