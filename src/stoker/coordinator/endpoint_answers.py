"""Turns the answers of workers that are web services into reports. Pure functions."""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from stoker.coordinator.http_workers import assignment_of, report_of
from stoker.domain.job import NULL
from stoker.domain.retry import Kind, problem
from stoker.wire.frames import Assignment, ClaimRef, Report
from stoker.wire.http import HttpAnswer, HttpReport
from stoker.wire.run import RunOutcome, run_job

REST_MAX_SECONDS: Final = 30.0
EXCERPT_CHARS: Final = 200

OK: Final = 200
LATER: Final = 202
BUSY: Final = frozenset({429, 503})

_ANSWER: Final = msgspec.json.Decoder(HttpAnswer)


class EndpointAnswer(msgspec.Struct, frozen=True):
    """The answer of an endpoint. `body` is None when it was longer than the limit."""

    status: int
    body: bytes | None


def read_answer(ref: ClaimRef, answer: EndpointAnswer) -> Report | None:
    """Return the report that an answer stands for; None when the worker will report later."""
    status, body = answer.status, answer.body
    if status == LATER:
        return None
    if status in BUSY:
        return failure(ref, "dispatch_failed", f"the endpoint answered {status}: it takes no jobs now")
    if body is None:
        return _too_long(ref, status)
    if 300 <= status < 400:
        return failure(ref, "bad_answer", f"the endpoint answered {status}; redirects are not followed")
    try:
        said = _ANSWER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _bad(ref, answer, str(error))
    return _understood(ref, answer, said)


def _understood(ref: ClaimRef, answer: EndpointAnswer, said: HttpAnswer) -> Report:
    result = said.result
    if said.error is not None:
        if isinstance(result, msgspec.Raw) and bytes(result) != NULL:
            return _bad(ref, answer, "it has both a result and an error")
        if answer.status == OK or answer.status >= 400:
            return report_of(HttpReport(ref.id, ref.claim_id, "failed", error=said.error))
    elif isinstance(result, msgspec.Raw) and answer.status == OK:
        return report_of(HttpReport(ref.id, ref.claim_id, "completed", result))
    return _bad(ref, answer, 'expected 200 with {"result": …}, an {"error": {"type", "message"}}, or 202')


def _bad(ref: ClaimRef, answer: EndpointAnswer, why: str) -> Report:
    excerpt = (answer.body or b"")[: 4 * EXCERPT_CHARS].decode("utf-8", "replace")[:EXCERPT_CHARS]
    return failure(ref, "bad_answer", f"the endpoint answered {answer.status}, unusably: {why}", body=excerpt)


def _too_long(ref: ClaimRef, status: int) -> Report:
    if status != OK:
        return failure(ref, "bad_answer", f"the endpoint answered {status} with more than an error may have")
    message = "the answer is longer than a result may be; store it elsewhere and return a reference"
    return Report(ref.id, ref.claim_id, "invalid", error=problem("result_too_large", message))


def failure(ref: ClaimRef, type: str, message: str, kind: Kind = "error", **more: object) -> Report:
    return Report(ref.id, ref.claim_id, kind, error=problem(type, message, **more))


def read_run_answer(ref: ClaimRef, answer: EndpointAnswer) -> Report | None:
    """Like `read_answer`, for a worker of the `/run` shapes: every 2xx means that it will report later."""
    if 200 <= answer.status < 300:
        return None
    if answer.status in BUSY:
        return read_answer(ref, answer)
    return _bad(ref, answer, "expected any 2xx, which means that the job is accepted")


def run_report(ref: ClaimRef, outcome: RunOutcome) -> Report:
    """Return the report of a worker of the `/run` shapes."""
    if not outcome.success:
        return failure(ref, "worker_error", outcome.error or "the worker gave no reason")
    result = NULL if outcome.result is msgspec.UNSET else bytes(outcome.result)
    return Report(ref.id, ref.claim_id, "completed", result)


class Shape(NamedTuple):
    """A protocol for endpoints: the path, the body of the request, and how answers are read."""

    path: str
    body: Callable[[Assignment], object]
    read: Callable[[ClaimRef, EndpointAnswer], Report | None]
    hears: bool
    """Whether the answers to its heartbeats carry orders: to cancel, to drop."""


OWN: Final = Shape("", assignment_of, read_answer, hears=True)
RUN: Final = Shape("/run", run_job, read_run_answer, hears=False)


def rest_seconds(failures: int) -> float:
    """Return how long a worker rests after this many dispatch failures in a row."""
    return min(REST_MAX_SECONDS, 2.0 ** min(failures - 1, 10))
