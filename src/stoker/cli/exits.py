"""Exit codes: what a script can tell from a command without reading its output."""

from __future__ import annotations

from enum import IntEnum

from stoker.client import errors
from stoker.settings import SettingsError


class Exit(IntEnum):
    """The codes; `MEANINGS` says in words what each stands for."""

    OK = 0
    ERROR = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    JOB_FAILED = 5
    JOB_CANCELLED = 6
    TIMED_OUT = 7


MEANINGS = {
    Exit.OK: "It worked.",
    Exit.ERROR: "Something else went wrong; for `doctor`, something is broken.",
    Exit.USAGE: "The command line or a setting is wrong.",
    Exit.UNREACHABLE: "The coordinator cannot be reached.",
    Exit.REFUSED: "The coordinator refused the request: not found, in conflict, not allowed, too many.",
    Exit.JOB_FAILED: "The job failed.",
    Exit.JOB_CANCELLED: "The job was cancelled.",
    Exit.TIMED_OUT: "The job had not finished within `--wait-timeout`; it goes on.",
}


def exit_for(error: errors.StokerError | SettingsError) -> Exit:
    """The code for an error."""
    match error:
        case SettingsError() | errors.ArgumentError():
            return Exit.USAGE
        case errors.ConnectionFailed():
            return Exit.UNREACHABLE
        case errors.ProblemError() if 400 <= error.status < 500:
            return Exit.REFUSED
        case errors.JobFailed():
            return Exit.JOB_FAILED
        case errors.JobCancelled():
            return Exit.JOB_CANCELLED
        case errors.ResultTimeout():
            return Exit.TIMED_OUT
    return Exit.ERROR


def exit_for_status(status: str) -> Exit:
    """The code for a job that has ended."""
    return {"failed": Exit.JOB_FAILED, "cancelled": Exit.JOB_CANCELLED}.get(status, Exit.OK)
