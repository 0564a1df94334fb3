"""`stoker migrate`: the schema of the database, as a step of its own.

A coordinator brings its database up to date when it starts. An operator who wants that done earlier, or by a database role
with more rights, does it here.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import typer

from stoker.cli import output
from stoker.cli.databases import refusals, settings_for, shown
from stoker.cli.exits import Exit
from stoker.cli.options import Json
from stoker.cli.run_commands import Database
from stoker.settings import Settings

if TYPE_CHECKING:
    from stoker.store.schema import Migration

migrate_app = typer.Typer(rich_markup_mode=None)


@migrate_app.callback(invoke_without_command=True)
def migrate(context: typer.Context, database: Database = None, as_json: Json = False) -> None:
    """The schema of the database: a coordinator brings it up to date when it starts. Alone, lists the migrations.

    \b
    Examples:
      stoker migrate
      stoker migrate up
    """
    if context.invoked_subcommand is None:
        status(database, as_json)


@migrate_app.command()
def up(database: Database = None, as_json: Json = False) -> None:
    """Apply the migrations that are pending. Several at once wait for each other.

    \b
    Examples:
      stoker migrate up
      stoker migrate up --database postgresql://stoker@db.example.com/jobs
    """
    settings = settings_for(database)
    with refusals():
        applied = asyncio.run(_up(settings))
    if as_json:
        output.print_json({"applied": applied})
    elif applied:
        print(f"applied {', '.join(f'{version:04}' for version in applied)} to {shown(settings)}")
    else:
        print(f"{shown(settings)} is up to date")


@migrate_app.command()
def status(database: Database = None, as_json: Json = False) -> None:
    """List the migrations, applied and pending; exit 8 when some are pending.

    \b
    Examples:
      stoker migrate status
      stoker migrate status --json --database postgresql://stoker@db.example.com/jobs
    """
    settings = settings_for(database)
    with refusals():
        found = asyncio.run(_status(settings))
    if as_json:
        output.print_json({"migrations": [_fields(migration) for migration in found]})
    else:
        rows = [(f"{m.version:04}", m.name, m.state, _time(m.applied_at)) for m in found]
        output.print_table(["VERSION", "NAME", "STATE", "APPLIED AT"], rows)
    if any(migration.state == "unknown" for migration in found):
        output.error(f"{shown(settings)} was made by a later Stoker; upgrade this one")
        raise typer.Exit(Exit.ERROR)
    if any(migration.state == "pending" for migration in found):
        raise typer.Exit(Exit.PENDING)


async def _up(settings: Settings) -> list[int]:
    if settings.on_postgres:
        from stoker.store.postgres import schema as postgres

        return await postgres.up(settings.database_url)
    from stoker.store.sqlite import schema as sqlite

    return await sqlite.up(settings.database_path)


async def _status(settings: Settings) -> list[Migration]:
    if settings.on_postgres:
        from stoker.store.postgres import schema as postgres

        return await postgres.status(settings.database_url)
    from stoker.store.sqlite import schema as sqlite

    return sqlite.status(settings.database_path)


def _fields(migration: Migration) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(migration)
    return fields | {"applied_at": _time(migration.applied_at)}


def _time(us: int | None) -> str | None:
    if us is None:
        return None
    return datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
