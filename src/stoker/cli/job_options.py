"""The options that describe a job, of `stoker submit` and `stoker schedules set`, and how they become request fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from stoker.cli.options import (
    JobQueue,
    MaxAttempts,
    Priority,
    finite,
    moment,
    pairs,
    pairs_option,
    priority_of,
    seconds_option,
    time_option,
)
from stoker.client.errors import ArgumentError
from stoker.client.requests import SubmitOptions
from stoker.client.retry import Retry
from stoker.domain.retry_rules import RetryRules


@dataclass(frozen=True)
class JobOptions:
    """What jobs are submitted with, by hand or by a schedule. Fields that the API has too are named as there."""

    priority: Priority = None
    queue: JobQueue = None
    timeout_sec: Annotated[
        float | None, seconds_option("--timeout", "Kill an attempt that runs longer.", at_least=None)
    ] = None
    max_attempts: MaxAttempts = None
    metadata: Annotated[list[str] | None, pairs_option("--metadata", "A note on the job")] = None
    labels: Annotated[list[str] | None, pairs_option("--label", "A label that the worker must have")] = None
    backoff: Annotated[
        str | None,
        typer.Option("--backoff", metavar="KIND", help="How retries wait: exponential, linear or fixed."),
    ] = None
    retry_base: Annotated[
        float | None, seconds_option("--retry-base", "The delay that the backoff begins with.")
    ] = None
    retry_cap: Annotated[float | None, seconds_option("--retry-cap", "The longest delay of the backoff.")] = (
        None
    )
    retry_delays: Annotated[
        str | None,
        typer.Option(
            "--retry-delays",
            metavar="SECONDS,…",
            help="The delay before each retry, such as 1,5,30: four attempts.",
        ),
    ] = None
    retry_on: Annotated[
        list[str] | None,
        typer.Option("--retry-on", metavar="ERROR", help="Retry only after this exception; repeatable."),
    ] = None
    retry_never: Annotated[
        list[str] | None,
        typer.Option("--retry-never", metavar="ERROR", help="Do not retry after this exception; repeatable."),
    ] = None
    retry_jitter: Annotated[
        float | None,
        typer.Option(
            "--retry-jitter",
            metavar="PART",
            min=0,
            max=1,
            callback=finite,
            help="Spread each delay by ± this part of it.",
        ),
    ] = None
    keep_sec: Annotated[float | None, seconds_option("--keep", "Keep the job for so long after its end.")] = (
        None
    )
    notify_url: Annotated[
        str | None,
        typer.Option("--notify-url", metavar="URL", help="Send a signed webhook when the job ends."),
    ] = None
    unique_key: Annotated[
        str | None,
        typer.Option("--unique-key", metavar="KEY", help="At most one unfinished job has this key."),
    ] = None
    on_conflict: Annotated[
        Literal["return", "reject", "replace"] | None,
        typer.Option(
            "--on-conflict",
            help="While another job has the key: return that job (default), reject this one, or replace its payload "
            "and times.",
            show_default=False,
        ),
    ] = None
    unique_until: Annotated[
        Literal["finished", "started"] | None,
        typer.Option(
            "--unique-until",
            help="Hold the key until the job has finished (default) or started.",
            show_default=False,
        ),
    ] = None
    expires_in_sec: Annotated[
        float | None, seconds_option("--expires-in", "Cancel the job if it has not started in this time.")
    ] = None
    deadline_sec: Annotated[
        float | None,
        seconds_option("--deadline", "Fail the job, retries included, if it has not ended in this time."),
    ] = None
    soft_timeout_sec: Annotated[
        float | None, seconds_option("--soft-timeout", "Raise SoftTimeout in a Python task that runs longer.")
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return what was given, by the names of the API, parsed. Raises `typer.BadParameter` for what cannot be used."""
        values: dict[str, Any] = {
            **{name: value for name, value in vars(self).items() if name in SubmitOptions.__struct_fields__},
            "priority": priority_of(self.priority),
            "labels": pairs(self.labels, "--label") or None,
            "metadata": pairs(self.metadata, "--metadata") or None,
            "retry": self._retry(),
        }
        return {name: value for name, value in values.items() if value is not None}

    def _retry(self) -> RetryRules | None:
        base, cap, jitter, delays = self.retry_base, self.retry_cap, self.retry_jitter, self.retry_delays
        given = (self.backoff, base, cap, jitter, delays, self.retry_on or None, self.retry_never or None)
        if all(value is None for value in given):
            return None
        hint = "--retry-delays" if delays is not None else "--backoff"
        try:
            return Retry(
                self.backoff,  # type: ignore[arg-type]  # checked by Retry
                base,
                cap,
                jitter,
                delays_sec=None if delays is None else [float(part) for part in delays.split(",")],
                on=self.retry_on or (),
                never=self.retry_never or (),
            ).rules
        except ArgumentError as error:
            raise typer.BadParameter(str(error), param_hint=hint) from None
        except ValueError:
            raise typer.BadParameter(
                f"{delays!r} is no list of seconds such as 1,5,30", param_hint=hint
            ) from None


@dataclass(frozen=True)
class NewJobOptions(JobOptions):
    """What one job is submitted with."""

    name: Annotated[str | None, typer.Option("--name", help="A label for people.")] = None
    thread_demand: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads that the job needs.")
    ] = None
    memory_mb: Annotated[
        int | None,
        typer.Option(
            "--memory-mb", metavar="MB", min=1, help="End an attempt that needs more memory than this."
        ),
    ] = None
    delay_sec: Annotated[float | None, seconds_option("--delay", "Start no earlier than in this time.")] = (
        None
    )
    run_at: Annotated[str | None, time_option("--run-at", "Start no earlier: 2030-01-31T12:00:00Z.")] = None
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key returns the same job.")
    ] = None
    expires_at: Annotated[
        str | None,
        time_option("--expires-at", "Cancel the job if it has not started by then: 2030-01-31T12:00:00Z."),
    ] = None

    def for_request(self) -> SubmitOptions:
        """Return the options with their values parsed. Raises `typer.BadParameter` for one that cannot be used."""
        if self.delay_sec is not None and self.run_at is not None:
            raise typer.BadParameter(
                "--delay and --run-at exclude each other; give one", param_hint="--delay"
            )
        times = {
            "run_at": moment(self.run_at, "--run-at"),
            "expires_at": moment(self.expires_at, "--expires-at"),
        }
        return SubmitOptions(**self.fields() | {name: at for name, at in times.items() if at is not None})
