"""Retention of single jobs: until when a job with a `keep_sec` of its own is kept after its end."""

from stoker.domain import extras
from stoker.domain.job import Job

_SECOND = 1_000_000


def keeps(text: str | None) -> bool:
    """Return whether a job with these extras is kept for a time of its own."""
    return text is not None and extras.decode(text).keep_sec is not None


def kept_until(job: Job) -> int | None:
    """Return when an ended job may be deleted; None where the retention of the system says it."""
    keep_sec = extras.decode(job.extras).keep_sec
    if keep_sec is None or job.completed_at is None:
        return None
    return job.completed_at + round(keep_sec * _SECOND)


def leaves_something(text: str | None) -> bool:
    """Return whether the end of a job with these extras leaves something behind: a delivery of a webhook, or a time to
    be kept."""
    if text is None:
        return False
    used = extras.decode(text)
    return used.notify_url is not None or used.keep_sec is not None
