"""The job types that every worker knows, in Python."""

import time
from typing import Any

import msgspec

from stoker.context import current_job


class Refused(ValueError):
    """The payload cannot be used; no retry will change that."""

    error_type = "invalid_payload"
    retryable = False


def echo(payload: bytes) -> bytes:
    """Gives the payload back, byte for byte."""
    return payload


class _Sleep(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float = 1.0


def sleep(payload: bytes) -> bytes:
    """Sleeps for `seconds` and says so."""
    wanted = _read(payload, _Sleep).seconds
    if not 0 <= wanted <= 86_400 * 30:
        raise Refused("seconds must be between 0 and 2592000")
    time.sleep(wanted)
    return msgspec.json.encode({"slept": wanted})


class _Fail(msgspec.Struct, forbid_unknown_fields=True):
    times: int | None = None
    message: str = "this job fails on purpose"


def fail(payload: bytes) -> bytes:
    """Fails `times` times, counted over all attempts and replays, then succeeds; without `times`, always fails."""
    wanted = _read(payload, _Fail)
    claim = current_job().claim_id
    if wanted.times is None or claim <= wanted.times:
        raise RuntimeError(wanted.message)
    return msgspec.json.encode({"failed": wanted.times})


BUILTINS: dict[str, Any] = {"echo": echo, "sleep": sleep, "fail": fail}


def _read(payload: bytes, type: type[Any]) -> Any:
    """The payload as `type`; a missing or null payload means all defaults."""
    try:
        return type() if payload == b"null" else msgspec.json.decode(payload, type=type)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Refused(f"unusable payload: {error}") from None
