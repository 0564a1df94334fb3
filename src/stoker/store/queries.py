"""Reads `.sql` files of named queries: `-- name: claim_candidates`, then comment lines that say why, then the statement.

Also builds the texts that statements of both stores need: lists of statuses, LIKE patterns, JSON parameters.
"""

import re
from collections.abc import Iterable
from importlib.resources import files

import msgspec

from stoker.domain.lifecycle import STATUSES, Status

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


def load(package: str, filename: str = "queries.sql") -> dict[str, str]:
    """Return the statements of one file by name, without their comments."""
    text = files(package).joinpath(filename).read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: _statement(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _statement(body: str) -> str:
    lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
    return "\n".join(lines)


def status_list(statuses: Iterable[Status]) -> str:
    """Statuses for a statement. They are literals, because only then a partial index is used; and taken from the table, so
    that nothing else can be in them."""
    return ", ".join(f"'{STATUSES[STATUSES.index(status)]}'" for status in statuses)


def like_part(text: str) -> str:
    r"""A pattern for LIKE … ESCAPE '\' that finds this text anywhere."""
    return "%" + re.sub(r"([\\%_])", r"\\\1", text) + "%"


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
