"""Tests of tasks without servers: `with app.testing() as t:`. See `docs/howto/testing.md`.

Stoker's own simulation (`tests/sim`) uses the same parts: the event loop in virtual time (`loop`), simulated connections
(`net`) and simulated children (`stand_in`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.testing.kit import Call, Kit

__all__ = ["Call", "Kit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'stoker.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("stoker.testing.kit"), name)
