"""Options of `stoker submit` for retries, retention and webhooks, and how they become values."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from stoker.cli.options import finite
from stoker.client.errors import ArgumentError
from stoker.client.retry import Retry
from stoker.domain.retry_rules import RetryRules

Backoff = Annotated[
    str | None,
    typer.Option("--backoff", metavar="KIND", help="How retries wait: exponential, linear or fixed."),
]
RetryBase = Annotated[
    float | None,
    typer.Option(
        "--retry-base",
        metavar="SECONDS",
        min=0,
        callback=finite,
        help="The delay that the backoff begins with.",
    ),
]
RetryCap = Annotated[
    float | None,
    typer.Option(
        "--retry-cap", metavar="SECONDS", min=0, callback=finite, help="The longest delay of the backoff."
    ),
]
RetryJitter = Annotated[
    float | None,
    typer.Option(
        "--retry-jitter",
        metavar="PART",
        min=0,
        max=1,
        callback=finite,
        help="Spread each delay by ± this part of it.",
    ),
]
RetryDelays = Annotated[
    str | None,
    typer.Option(
        "--retry-delays",
        metavar="SECONDS,…",
        help="The delay before each retry, such as 1,5,30: four attempts.",
    ),
]
RetryOn = Annotated[
    list[str] | None,
    typer.Option("--retry-on", metavar="ERROR", help="Retry only after this exception; repeatable."),
]
RetryNever = Annotated[
    list[str] | None,
    typer.Option("--retry-never", metavar="ERROR", help="Do not retry after this exception; repeatable."),
]
Keep = Annotated[
    float | None,
    typer.Option(
        "--keep", metavar="SECONDS", min=0, callback=finite, help="Keep the job for so long after its end."
    ),
]
NotifyUrl = Annotated[
    str | None, typer.Option("--notify-url", metavar="URL", help="Send a signed webhook when the job ends.")
]


def retry_option(
    backoff: str | None,
    base: float | None,
    cap: float | None,
    delays: str | None,
    on: list[str] | None,
    never: list[str] | None,
    jitter: float | None = None,
) -> RetryRules | msgspec.UnsetType:
    """The retry policy that these options ask for; UNSET for none."""
    if not any(
        given is not None and given != [] for given in (backoff, base, cap, delays, on, never, jitter)
    ):
        return msgspec.UNSET
    hint = "--retry-delays" if delays is not None else "--backoff"
    try:
        return Retry(
            backoff,  # type: ignore[arg-type]  # checked by Retry
            base,
            cap,
            jitter,
            delays_sec=None if delays is None else [float(part) for part in delays.split(",")],
            on=on or (),
            never=never or (),
        ).rules
    except ArgumentError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None
    except ValueError:
        raise typer.BadParameter(
            f"{delays!r} is no list of seconds such as 1,5,30", param_hint=hint
        ) from None
