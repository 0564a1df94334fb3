"""Every error of the SDK, to be imported: `from stoker.errors import JobFailed, NotFound`.

`stoker.client.errors` defines them and draws the tree; those that most programs need are also names of `stoker`.
"""

from stoker.client.errors import (
    ArgumentError,
    Conflict,
    ConnectionFailed,
    FieldError,
    InvalidInput,
    JobCancelled,
    JobFailed,
    NotFound,
    PipelineError,
    Problem,
    ProblemError,
    RateLimited,
    ResultTimeout,
    ResultTypeError,
    StokerError,
    SubmitFailure,
    TaskError,
    Unauthorized,
    Unavailable,
)

__all__ = [
    "ArgumentError",
    "Conflict",
    "ConnectionFailed",
    "FieldError",
    "InvalidInput",
    "JobCancelled",
    "JobFailed",
    "NotFound",
    "PipelineError",
    "Problem",
    "ProblemError",
    "RateLimited",
    "ResultTimeout",
    "ResultTypeError",
    "StokerError",
    "SubmitFailure",
    "TaskError",
    "Unauthorized",
    "Unavailable",
]
