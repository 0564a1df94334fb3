"""Checks of settings that are each fine alone: those that must agree, and names that are no setting."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from stoker.settings.parsers import NEW_TOKEN, NEW_WEBHOOK_SECRET, NUMBERED
from stoker.settings.table import PREFIX, table

# Set by Stoker for the jobs it runs, or used by its tools; never read as settings, and no reason for a warning.
_NOT_SETTINGS = frozenset(
    {
        "STOKER_THREADS",
        "STOKER_UP_PID",
        "STOKER_WORKER_SESSION",
        "STOKER_WORKER_CHILD",
        "STOKER_JOB_ID",
        "STOKER_ATTEMPT",
    }
)


def disagreements(values: Mapping[str, Any], broken: set[str]) -> list[str]:
    """Problems of settings that are each fine alone, judged with the defaults behind what was given.

    A setting that is already reported is not reported again for what its default would have caused.
    """
    defaults = {entry.field: entry.default for entry in table()}
    return [problem for fields, problem in _cross_checks({**defaults, **values}) if broken.isdisjoint(fields)]


def _cross_checks(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    low, high = values["min_workers"], values["max_workers"]
    if low > high:
        yield (
            ("min_workers", "max_workers"),
            f"MIN_WORKERS={low} and MAX_WORKERS={high} disagree: the minimum must not exceed the maximum; "
            "lower the first or raise the second",
        )
    low, high = values["queue_threshold_low"], values["queue_threshold_high"]
    if low >= high:
        yield (
            ("queue_threshold_low", "queue_threshold_high"),
            f"QUEUE_THRESHOLD_LOW={low} and QUEUE_THRESHOLD_HIGH={high} disagree: the low one must be below "
            "the high one, or the autoscaler would add and remove at the same depth",
        )
    payload, body = values["max_payload_bytes"], values["max_body_bytes"]
    if payload > body:
        yield (
            ("max_payload_bytes", "max_body_bytes"),
            f"STOKER_MAX_PAYLOAD_BYTES={payload} and STOKER_MAX_BODY_BYTES={body} disagree: a payload "
            "travels inside a body; raise the second",
        )
    bodies = values["max_bodies_bytes"]
    if body > bodies - bodies // 8:
        yield (
            ("max_body_bytes", "max_bodies_bytes"),
            f"STOKER_MAX_BODY_BYTES={body} and STOKER_MAX_BODIES_BYTES={bodies} disagree: the largest body must fit into "
            "seven eighths of what may be under way; raise the second",
        )
    if values["webhook_hosts"] and not values["webhook_secret"]:
        yield (
            ("webhook_hosts", "webhook_secret"),
            f"STOKER_WEBHOOK_HOSTS is set, so webhooks must be signed: set {NEW_WEBHOOK_SECRET}",
        )
    if not is_loopback(values["host"]) and not values["token"]:
        yield (
            ("host", "token"),
            f"STOKER_HOST={values['host']} is reachable from other machines, so a token is needed: "
            f"set {NEW_TOKEN}, or listen on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address. A name we cannot judge counts as reachable."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def unknown(environ: Mapping[str, str]) -> Iterator[str]:
    known = {variable for entry in table() for variable in entry.variables} | _NOT_SETTINGS
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and not NUMBERED.fullmatch(name):
            close = difflib.get_close_matches(name, known, n=1)
            yield f"{name} is not a setting" + (
                f"; did you mean {close[0]}?" if close else " and was ignored"
            )
