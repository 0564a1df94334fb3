"""Errors as they are stored on jobs and attempts."""

import msgspec


def problem(type: str, message: str, **details: object) -> bytes:
    """An error as it is stored on a job and shown to people: JSON with at least `type` and `message`."""
    return msgspec.json.encode({"type": type, "message": message, **details})
