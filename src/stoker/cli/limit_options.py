"""The options of `stoker submit` for unique keys, expiry and deadlines."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from stoker.cli.options import finite

UniqueKey = Annotated[
    str | None,
    typer.Option("--unique-key", metavar="KEY", help="At most one unfinished job has this key."),
]
OnConflictOption = Annotated[
    Literal["return", "reject", "replace"] | None,
    typer.Option(
        "--on-conflict",
        help="While another job has the key: return that job (default), reject this one, or replace its payload and times.",
        show_default=False,
    ),
]
UniqueUntilOption = Annotated[
    Literal["finished", "started"] | None,
    typer.Option(
        "--unique-until",
        help="Hold the key until the job has finished (default) or started.",
        show_default=False,
    ),
]
ExpiresIn = Annotated[
    float | None,
    typer.Option(
        "--expires-in",
        metavar="SECONDS",
        min=0,
        callback=finite,
        help="Cancel the job if it has not started in this time.",
    ),
]
ExpiresAt = Annotated[
    str | None,
    typer.Option(
        "--expires-at",
        metavar="TIME",
        help="Cancel the job if it has not started by then: 2030-01-31T12:00:00Z.",
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        metavar="SECONDS",
        min=0,
        callback=finite,
        help="Fail the job, retries included, if it has not ended in this time.",
    ),
]
SoftTimeout = Annotated[
    float | None,
    typer.Option(
        "--soft-timeout",
        metavar="SECONDS",
        min=0,
        callback=finite,
        help="Raise SoftTimeout in a Python task that runs longer.",
    ),
]
