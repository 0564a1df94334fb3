"""Tests on the portable implementation (`STOKER_PORTABLE=1`, or any system but Linux): what cannot hold there is skipped by
name, with the reason that docs/portability.md gives."""

from typing import Final

import pytest

from stoker.system import SYSTEM

PORTABLE: Final = SYSTEM.name == "portable"


def linux_only(reason: str) -> pytest.MarkDecorator:
    """Skip on the portable implementation."""
    return pytest.mark.skipif(PORTABLE, reason=f"portable: {reason}")
