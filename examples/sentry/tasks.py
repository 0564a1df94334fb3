"""Errors of tasks in Sentry: `SENTRY_DSN=... stoker worker --app tasks:app`.

Each child process of a worker starts the SDK in its lifespan. A middleware reports what a task raises, with the job beside
it. Attempts that are followed by another are warnings; the last one is an error.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import sentry_sdk

from stoker import Fail, JobContext, Snooze, Stoker

SENTRY: dict[str, Any] = {
    "dsn": os.environ.get("SENTRY_DSN"),  # without one, nothing is sent
    "auto_enabling_integrations": False,  # a worker has no web framework to look into
}


def sentry_in_each_child(_: Stoker) -> Iterator[None]:
    """Start Sentry before the first job, and send what is left when the child retires."""
    sentry_sdk.init(**SENTRY)
    yield
    sentry_sdk.flush(timeout=2)


app = Stoker(lifespan=sentry_in_each_child)


@app.middleware
def report_errors(job: JobContext, call_next: Callable[[], Any]) -> Any:
    with sentry_sdk.isolation_scope() as scope:
        scope.set_transaction_name(job.type)
        scope.set_tag("stoker.type", job.type)
        scope.set_tag("stoker.queue", job.queue)
        scope.set_context("job", {"id": job.id, "attempt": job.attempt, "max_attempts": job.max_attempts})
        try:
            return call_next()
        except Snooze:
            raise  # not now, which is no error
        except Exception as error:
            is_last = job.attempt >= job.max_attempts or isinstance(error, Fail)
            scope.set_level("error" if is_last else "warning")
            sentry_sdk.capture_exception(error)
            raise


@app.task(max_attempts=2)
def divide(x: int, y: int) -> float:
    return x / y


@app.task(max_attempts=1)
async def divide_async(x: int, y: int) -> float:
    return x / y


@app.task
def not_yet() -> None:
    raise Snooze(60)
