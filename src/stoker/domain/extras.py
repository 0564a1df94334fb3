"""The optional features of a job: what a job uses beyond the plain columns, kept as one small JSON text.

Most jobs use none of these and have nothing in that column (`None`), so that they cost nothing. `Extras` is encoded with its
fields in order and without defaults: equal extras give equal texts, and a text is what a row, a claim and a batch carry.
Statements that look for one of these by an index use a table beside `jobs`, which only such jobs write.
"""

from functools import lru_cache
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import UNSET

from stoker.domain.job import JobDefaults, JobSpec, Key, Label, Timeout, UniqueUntil
from stoker.domain.retry_rules import RetryRules, attempts_of

SECOND: Final = 1_000_000
Moment = int
"""Microseconds since 1970, UTC."""


class Extras(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a job uses of the optional features. A field at its default is not used."""

    unique_key: Key | None = None
    unique_until: UniqueUntil = "finished"
    expires_at: Moment | None = None
    """A job that has not started by then never starts."""
    deadline_at: Moment | None = None
    """The whole job, retries included, has to end by then."""
    soft_timeout_sec: Timeout | None = None
    retry: RetryRules | None = None
    """The job's own rules for retries."""
    snoozes: int = 0
    keep_sec: float | None = None
    notify_url: str | None = None
    schedule: Label | None = None
    """The schedule that made this job, and the tick for which it did."""
    scheduled_for: Moment | None = None


NO_EXTRAS: Final = Extras()
MOMENTS: Final = frozenset({"expires_at", "deadline_at", "scheduled_for"})
"""The fields that are points in time."""


class InvalidOption(ValueError):
    """A field of a submission that cannot be used as it is; the message is for the submitter."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field
        self.message = message


def encode(extras: Extras) -> str | None:
    """Return the text to store; None where nothing is used."""
    return None if extras == NO_EXTRAS else msgspec.json.encode(extras).decode()


def decode(text: str | None) -> Extras:
    """Return what a stored text says; `NO_EXTRAS` for None."""
    return NO_EXTRAS if text is None else _decoded(text)


@lru_cache(maxsize=4_096)
def _decoded(text: str) -> Extras:
    return msgspec.json.decode(text, type=Extras)


def rested(text: str | None) -> str | None:
    """Return the extras of a job that begins anew: it may snooze as often as at first."""
    used = decode(text)
    return text if used.snoozes == 0 else encode(msgspec.structs.replace(used, snoozes=0))


_ASKED: Final = attrgetter(
    "unique_key", "on_conflict", "unique_until", "expires_in_sec", "expires_at", "deadline_sec", "soft_timeout_sec",
    "retry", "keep_sec", "notify_url",
)  # fmt: skip
_NOTHING_ASKED: Final = _ASKED(JobSpec())
_ANNOUNCED: Final = attrgetter(
    "expires_in_sec", "deadline_sec", "soft_timeout_sec", "retry", "keep_sec", "notify_url"
)
_NOTHING_ANNOUNCED: Final = _ANNOUNCED(JobDefaults())


def extras_of(
    spec: JobSpec, defaults: JobDefaults, now: Moment, expires_at: Moment | None = None
) -> str | None:
    """Return the extras of a job that is submitted now, as they are stored; None where nothing is used. `expires_at` is the
    point in time that the spec names as text. Raises `InvalidOption`."""
    if _ASKED(spec) == _NOTHING_ASKED and _ANNOUNCED(defaults) == _NOTHING_ANNOUNCED:
        return None
    return encode(
        Extras(
            unique_key=spec.unique_key,
            unique_until=_unique_until(spec, defaults),
            expires_at=_expires_at(spec, defaults, now, expires_at),
            deadline_at=_after(
                now, defaults.deadline_sec if spec.deadline_sec is UNSET else spec.deadline_sec
            ),
            soft_timeout_sec=_soft_timeout(spec, defaults),
            retry=_retry(spec, defaults),
            keep_sec=defaults.keep_sec if spec.keep_sec is UNSET else spec.keep_sec,
            notify_url=defaults.notify_url if spec.notify_url is UNSET else spec.notify_url,
        )
    )


def _unique_until(spec: JobSpec, defaults: JobDefaults) -> UniqueUntil:
    if spec.unique_key is None:
        for field in ("on_conflict", "unique_until"):
            if getattr(spec, field) is not UNSET:
                raise InvalidOption(field, "needs a unique_key; give both or neither")
        return "finished"
    until = defaults.unique_until if spec.unique_until is UNSET else spec.unique_until
    return until or "finished"


def _expires_at(
    spec: JobSpec, defaults: JobDefaults, now: Moment, expires_at: Moment | None
) -> Moment | None:
    if expires_at is None:
        return _after(now, defaults.expires_in_sec if spec.expires_in_sec is UNSET else spec.expires_in_sec)
    if spec.expires_in_sec is not UNSET and spec.expires_in_sec is not None:
        raise InvalidOption("expires_at", "cannot be combined with expires_in_sec; send one of them")
    if expires_at <= now:
        raise InvalidOption("expires_at", "is in the past; a job that expires before it is stored never runs")
    return expires_at


def _soft_timeout(spec: JobSpec, defaults: JobDefaults) -> float | None:
    asked = spec.soft_timeout_sec is not UNSET
    soft = spec.soft_timeout_sec if spec.soft_timeout_sec is not UNSET else defaults.soft_timeout_sec
    hard = (defaults.timeout_sec if spec.timeout_sec is UNSET else spec.timeout_sec) or None
    if soft is None or hard is None or soft < hard:
        return soft
    if asked:
        raise InvalidOption("soft_timeout_sec", f"must be less than timeout_sec, which is {hard:g}")
    return None


def _retry(spec: JobSpec, defaults: JobDefaults) -> RetryRules | None:
    if spec.retry is UNSET:
        return defaults.retry
    implied = attempts_of(spec.retry)
    if implied is not None and spec.max_attempts not in (UNSET, None, implied):
        message = f"disagrees with retry.delays_sec, which means {implied} attempts; leave it out"
        raise InvalidOption("max_attempts", message)
    return spec.retry


def _after(now: Moment, seconds: float | None) -> Moment | None:
    return None if seconds is None else now + round(seconds * SECOND)
