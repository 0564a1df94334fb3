"""The `type` of an error that a job can have, declared once: `docs/reference/errors.md` has a row for each, and a test finds
those that have none. Whatever else a job's own code raises goes by the name of the exception, as in `ValueError`.

Programs match on them, so a name that is here does not change its meaning.
"""

from typing import Final, NamedTuple


class ErrorType(NamedTuple):
    name: str
    retried: str
    """Whether the job is tried again while it has attempts left."""
    text: str


TABLE: Final = [
    ErrorType("timeout", "yes", "The attempt took longer than `timeout_sec`; its process was killed."),
    ErrorType("expired", "no", "The job had not started by `expires_at`; it is cancelled."),
    ErrorType(
        "deadline", "no", "The job, retries included, had not ended by `deadline_at`; an attempt was killed."
    ),
    ErrorType("memory_limit", "yes", "The attempt used more than `memory_mb`; its process was killed."),
    ErrorType(
        "crash",
        "yes, at most 3 crashes",
        "The job's process ended by itself; `signal` or `exit_code` says how.",
    ),
    ErrorType("lost", "yes", "The worker fell silent, or lost the result, while it ran the job."),
    ErrorType("error", "yes", "The attempt failed, and its worker gave no readable error."),
    ErrorType(
        "invalid",
        "no",
        "The attempt failed in a way that no retry can mend, and its worker gave no readable error.",
    ),
    ErrorType("Fail", "no", "The task raised `stoker.Fail`; the message is its reason."),
    ErrorType("RetryAfter", "yes, after the time that it names", "The task raised `stoker.RetryAfter`."),
    ErrorType("Snooze", "yes, uncharged", "The task raised `stoker.Snooze`: it cannot be done yet."),
    ErrorType("webhook_refused", "yes, but not after 410", "The receiver of a webhook answered with no 2xx."),
    ErrorType("webhook_unreachable", "yes", "The receiver of a webhook could not be reached."),
    ErrorType("webhook_timeout", "yes", "The receiver of a webhook did not answer in time."),
    ErrorType(
        "webhook_not_allowed",
        "no",
        "The host of a webhook is not listed in `STOKER_WEBHOOK_HOSTS`, or leads to an address that is not public.",
    ),
    ErrorType("too_many_snoozes", "no", "The task raised `stoker.Snooze` more than 1,000 times."),
    ErrorType(
        "handed_back", "yes, uncharged", "The worker gave the job back: it drained, or had no time for it."
    ),
    ErrorType("snoozed", "yes, uncharged", "The task asked to be run again later."),
    ErrorType("cancelled", "no", "The job was cancelled while it ran."),
    ErrorType("invalid_payload", "no", "The payload does not fit the type; the message says where."),
    ErrorType(
        "invalid_result",
        "yes",
        "What came as the result is not JSON, or breaks its bounds of depth and digits; the message says which.",
    ),
    ErrorType("result_not_json", "no", "The function returned something that JSON cannot express."),
    ErrorType(
        "result_type",
        "no",
        "The function returned something else than it is annotated to; the message says where.",
    ),
    ErrorType("result_too_large", "no", "Store it elsewhere and return a reference."),
    ErrorType("unknown_type", "yes", "The worker that got the job does not have its type."),
    ErrorType(
        "exit_code", "by the code", "The command ended with an [exit code](exit-codes.md) other than 0."
    ),
    ErrorType("cannot_start", "yes", "The command cannot be started."),
    ErrorType(
        "bad_answer",
        "yes",
        "The endpoint of a worker that is dialled answered unusably; `body` is its beginning.",
    ),
    ErrorType(
        "dispatch_failed", "yes", "A worker that is dialled could not be reached, or takes no jobs now."
    ),
    ErrorType(
        "connection_lost", "yes", "The connection to a worker that is dialled broke before it had answered."
    ),
    ErrorType(
        "worker_error",
        "yes",
        "A worker of the `/run` shapes reported that the job failed; the message is its own.",
    ),
    ErrorType("failed_on_purpose", "yes", "The type `fail` did what it is for."),
    ErrorType("io_error", "yes", "A load type could not write or read its files."),
    ErrorType("network_error", "yes", "A load type could not make its calls."),
]
