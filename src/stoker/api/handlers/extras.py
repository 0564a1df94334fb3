"""The optional features of a submission (`stoker.domain.extras`), checked, with errors that name the field."""

from stoker.api.problems import invalid_field
from stoker.api.schemas.times import parse_rfc3339
from stoker.api.server.locate import join
from stoker.clock import SECOND
from stoker.domain.extras import InvalidOption, extras_of
from stoker.domain.job import MAX_DELAY_SEC, JobDefaults, JobSpec


def checked_extras(spec: JobSpec, defaults: JobDefaults, now: int, path: str) -> str | None:
    """Return the extras of a job as they are stored, None where it uses none. Raises 422 naming the field."""
    try:
        return extras_of(spec, defaults, now, None if spec.expires_at is None else _moment(spec, now, path))
    except InvalidOption as error:
        raise invalid_field(join(path, error.field), error.message) from None


def _moment(spec: JobSpec, now: int, path: str) -> int:
    try:
        moment = parse_rfc3339(spec.expires_at or "")
    except ValueError as error:
        raise invalid_field(join(path, "expires_at"), str(error)) from None
    if moment - now > MAX_DELAY_SEC * SECOND:
        raise invalid_field(join(path, "expires_at"), "is more than ten years ahead")
    return moment
