"""What may go from one process to another: errors, tasks by their name, and of a job its id."""

from __future__ import annotations

import multiprocessing
import pickle
from typing import Any

import pytest

from stoker import Fail, RetryAfter, Snooze, SoftTimeout, Stoker
from stoker.client.errors import Problem, SubmitFailure, problem_error
from stoker.client.requests import JobError, JobInfo
from stoker.errors import (
    ArgumentError,
    ConnectionFailed,
    JobCancelled,
    JobFailed,
    PipelineError,
    RateLimited,
    ResultTimeout,
    ResultTypeError,
    TaskError,
)

app = Stoker("http://127.0.0.1:9")
INFO = JobInfo(id="j", type="t", status="failed", error=JobError("ValueError", "no", "Traceback"))


@app.task
def double(n: int) -> int:
    return 2 * n


ERRORS = [
    ConnectionFailed("http://x", "refused", "an-id"),
    problem_error(429, Problem("Too many", "slow down"), 1.5),
    problem_error(422, Problem("Wrong", "no")),
    JobFailed(INFO),
    JobCancelled(INFO),
    ResultTimeout(INFO, 1.5, "no worker"),
    ResultTypeError(INFO, int, "it is text"),
    ArgumentError("no", "x"),
    TaskError("no"),
    RetryAfter(5, "later"),
    Snooze(5),
    Fail("never"),
    SoftTimeout(5),
]


def _sent(value: object) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_in_another_process(error: Exception) -> None:
    again = _sent(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def _refused(_: int) -> None:
    raise problem_error(429, Problem("Too many", "slow down"), 1.5)


def test_an_error_in_a_process_of_a_pool_reaches_the_caller() -> None:
    """A pool whose process sends an error that cannot be made again never answers."""
    with (
        multiprocessing.get_context("spawn").Pool(1) as pool,
        pytest.raises(RateLimited, match="slow down") as caught,
    ):
        pool.map_async(_refused, [1]).get(30)
    assert caught.value.retry_after == 1.5


def test_a_task_is_pickled_by_its_name() -> None:
    assert _sent(double) is double
    assert _sent(double.submit).__self__ is double
    with pytest.raises(pickle.PicklingError, match="double"):
        pickle.dumps(double.options(priority=0))


def test_a_handle_says_what_to_send_instead() -> None:
    handle = double.job("an-id")
    with pytest.raises(TypeError, match=r"an-id .* send its id, and make a handle .* task\.job"):
        pickle.dumps(handle)
    failure = SubmitFailure(0, handle, ConnectionFailed("http://x", "refused"))
    with pytest.raises(TypeError, match="send its id"):
        pickle.dumps(PipelineError([failure]))
