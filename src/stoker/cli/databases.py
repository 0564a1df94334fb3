"""Commands that work on a database itself, without a coordinator: how they find it, and how they fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from stoker.cli import output
from stoker.cli.exits import Exit
from stoker.domain.errors import StokerDomainError, StoreUnavailable, StoreUnreachable
from stoker.settings import Settings, load


def settings_for(database: str | None) -> Settings:
    """Return the settings, with the database from the command line if it was named there."""
    settings = load(os.environ, {"database_url": database})
    for warning in settings.warnings:
        output.note(f"warning: {warning}")
    return settings


def shown(settings: Settings) -> str:
    """Return the database as it may be printed: without a password."""
    if not settings.on_postgres:
        return str(settings.database_path)
    from stoker.store.postgres.database import shown as without_password

    return without_password(settings.database_url)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn an error of a store into a line on stderr and an exit code."""
    try:
        yield
    except StoreUnreachable as error:
        output.error(str(error))
        raise typer.Exit(Exit.UNREACHABLE) from None
    except StoreUnavailable as error:
        output.error(str(error))
        raise typer.Exit(Exit.REFUSED) from None
    except StokerDomainError as error:
        output.error(str(error))
        raise typer.Exit(Exit.ERROR) from None
