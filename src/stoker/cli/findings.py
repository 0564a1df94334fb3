"""What one check of `stoker doctor` found."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """It is `ok`, a `warning` (it works, but not well) or `broken`; then `fix` says what to do."""

    check: str
    state: Literal["ok", "warning", "broken"]
    detail: str
    fix: str = ""
