"""What is known of a database's migrations, whichever store it belongs to."""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, Literal

import msgspec

State = Literal["applied", "pending", "unknown"]

_MIGRATION: Final = re.compile(r"^(\d{4})_(\w+)\.sql$")


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema. `unknown` was applied by a later Stoker than this one."""

    version: int
    name: str
    state: State
    applied_at: int | None = None
    """When, where the store keeps that."""


def names(package: str) -> Iterator[tuple[int, str]]:
    """The migrations that a store's package brings: (version, name), in order."""
    folder = files(package).joinpath("migrations")
    for name in sorted(entry.name for entry in folder.iterdir()):
        if match := _MIGRATION.match(name):
            yield int(match[1]), match[2]


def last_version(package: str) -> int:
    """Return the latest version of the schema that this Stoker knows."""
    return max(version for version, _ in names(package))


def pending(migrations: list[Migration]) -> list[Migration]:
    return [migration for migration in migrations if migration.state == "pending"]
