"""Reads `.sql` files of named queries: `-- name: claim_candidates`, then comment lines that say why, then the statement."""

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


def load(package: str, filename: str = "queries.sql") -> dict[str, str]:
    """The statements of one file by name, without their comments."""
    text = files(package).joinpath(filename).read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: _statement(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _statement(body: str) -> str:
    lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
    return "\n".join(lines)
