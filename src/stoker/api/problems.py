"""What can be answered instead of what was asked: RFC 9457 problem documents.

One table gives every kind of problem its name, title and status. The `type` is stable: programs match on it, people read
`detail`, which says what happened and what to do next. Everything that goes wrong inside a request is raised as
`RequestProblem`, or as one of the coordinator's own errors, which `from_domain` translates; nothing else may reach a client.

`docs/reference/errors.md` is made from that table and the one of jobs' errors: `python -m stoker.api.problems`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from stoker.domain import error_types
from stoker.domain.errors import (
    EndpointNotListed,
    IdempotencyMismatch,
    IdMismatch,
    JobPruned,
    MissingError,
    Overloaded,
    StateConflict,
    StokerDomainError,
    StoreUnavailable,
    TooDeep,
    UniqueConflict,
    WrongSecret,
)

CONTENT_TYPE: Final = b"application/problem+json"
URN: Final = "urn:stoker:problem:"

Headers = list[tuple[bytes, bytes]]


class _Row(NamedTuple):
    name: str
    status: int
    title: str
    text: str
    """More of what it means, or what to do."""


class Kind(Enum):
    """Every kind of problem there is."""

    UNREADABLE = _Row(
        "unreadable",
        400,
        "The request cannot be read",
        "The body is not JSON, a header comes twice, or the request is not HTTP as it should be. Mend the client.",
    )
    UNAUTHORIZED = _Row(
        "unauthorized", 401, "A token is needed", "Send the server's token as `Authorization: Bearer TOKEN`."
    )
    FORBIDDEN = _Row(
        "forbidden",
        403,
        "This caller is not allowed",
        "The `Host` or `Origin` is not one that the server was told to accept.",
    )
    ENDPOINT_NOT_LISTED = _Row(
        "endpoint-not-listed",
        403,
        "The operator has not listed this endpoint",
        "The operator adds the endpoint to `STOKER_ENDPOINTS`.",
    )
    WRONG_SECRET = _Row(
        "wrong-secret",
        403,
        "The session belongs to another worker process",
        "It was registered with a `secret`: send that as `X-Stoker-Secret`, or register again.",
    )
    NOT_FOUND = _Row("not-found", 404, "There is no such thing", "No such job, worker or path.")
    METHOD_NOT_ALLOWED = _Row(
        "method-not-allowed", 405, "This path does not know that method", "`Allow` names the methods."
    )
    TOO_SLOW = _Row(
        "too-slow",
        408,
        "The request took too long to arrive",
        "A head has 30 seconds, and a body may pause for 60. The connection is closed.",
    )
    CONFLICT = _Row(
        "conflict",
        409,
        "The job's status does not fit the request",
        "As in cancelling a job that has ended. Look at the job again.",
    )
    UNIQUE_KEY_TAKEN = _Row(
        "unique-key-taken",
        409,
        "Another job holds the unique key",
        "`detail` names the job. Wait until it has ended, cancel it, or submit with another `unique_key` or `on_conflict`.",
    )
    AMBIGUOUS_ID = _Row(
        "ambiguous-id",
        409,
        "The shortened id fits several",
        "`errors` lists them, the newest first: `field` is the id. Give more of it.",
    )
    PRUNED = _Row(
        "pruned",
        410,
        "The job has ended and was deleted",
        "A submission was repeated with the `id` or the idempotency key of a job that was accepted before, has ended, and "
        "was deleted after its retention. Nothing was stored now. A new job needs a new one; `errors` says which.",
    )
    TOO_LARGE = _Row(
        "too-large", 413, "The request is too large", "The bounds are in the [settings](settings.md)."
    )
    URL_TOO_LONG = _Row(
        "url-too-long", 414, "The URL is too long", "16 KiB are allowed. The connection is closed."
    )
    UNSUPPORTED_MEDIA_TYPE = _Row(
        "unsupported-media-type", 415, "The body must be JSON", "Send `Content-Type: application/json`."
    )
    INVALID = _Row(
        "invalid", 422, "The request is not valid", "`errors` names every field and what is wrong with it."
    )
    IDEMPOTENCY_MISMATCH = _Row(
        "idempotency-mismatch",
        422,
        "The idempotency key or id belongs to another request",
        "The same key, or the same `id`, came with another body: a new job needs a new one. `errors` says which of the two.",
    )
    UPGRADE_REQUIRED = _Row(
        "upgrade-required", 426, "This path speaks WebSocket", "Only workers connect here."
    )
    RATE_LIMITED = _Row(
        "rate-limited",
        429,
        "Too many jobs",
        "Try again after `Retry-After` seconds; `RATE_LIMIT_JOBS_PER_MIN` is the limit.",
    )
    HEAD_TOO_LARGE = _Row(
        "head-too-large",
        431,
        "The headers are too large",
        "64 KiB are allowed for the head of a request. The connection is closed.",
    )
    INTERNAL = _Row(
        "internal",
        500,
        "Something went wrong on the server",
        "A defect. The server's log has the stack under the `request_id`.",
    )
    UNAVAILABLE = _Row(
        "unavailable",
        503,
        "Not now",
        "The store does not answer, too much waits for it, or the server stops: try again after `Retry-After` seconds.",
    )

    @property
    def urn(self) -> str:
        return URN + self.value.name

    @property
    def status(self) -> int:
        return self.value.status

    @property
    def title(self) -> str:
        return self.value.title


STATUSES: Final = frozenset(kind.status for kind in Kind)


class InvalidField(msgspec.Struct, frozen=True):
    """What is wrong with one field, named as in `jobs[3].priority`."""

    field: str
    message: str


class ProblemDocument(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[InvalidField] | msgspec.UnsetType = msgspec.UNSET


class RequestProblem(Exception):
    """Ends a request with a problem document."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        errors: Sequence[InvalidField] = (),
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = errors
        self.headers = headers

    def document(self, request_id: str) -> bytes:
        kind = self.kind
        errors = list(self.errors) or msgspec.UNSET
        return msgspec.json.encode(
            ProblemDocument(kind.urn, kind.title, kind.status, self.detail, request_id, errors)
        )


def invalid(errors: Sequence[InvalidField]) -> RequestProblem:
    """422 for one or more fields. The detail repeats the first, for callers that read nothing else."""
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    where = f"{first.field}: " if first.field else ""
    return RequestProblem(Kind.INVALID, f"{where}{first.message}{more}", errors=errors)


def invalid_field(field: str, message: str) -> RequestProblem:
    return invalid([InvalidField(field, message)])


def retry_after(seconds: int) -> tuple[bytes, bytes]:
    return b"retry-after", str(max(1, seconds)).encode()


def _taken(error: IdempotencyMismatch | IdMismatch | JobPruned, field: str) -> RequestProblem:
    kind = Kind.PRUNED if isinstance(error, JobPruned) else Kind.IDEMPOTENCY_MISMATCH
    keyed = isinstance(error, IdempotencyMismatch) or (isinstance(error, JobPruned) and error.key is not None)
    name = "idempotency_key" if keyed else field
    return RequestProblem(kind, str(error), errors=[InvalidField(name, str(error))])


def from_domain(error: StokerDomainError, field: str = "id") -> RequestProblem:
    """Return the coordinator's own errors, as answers. `field` is the one with the id of a job that was submitted."""
    detail = str(error)
    match error:
        case MissingError():
            return RequestProblem(Kind.NOT_FOUND, detail)
        case UniqueConflict():
            return RequestProblem(Kind.UNIQUE_KEY_TAKEN, detail, errors=[InvalidField("unique_key", detail)])
        case StateConflict():
            return RequestProblem(Kind.CONFLICT, detail)
        case IdempotencyMismatch() | IdMismatch() | JobPruned():
            return _taken(error, field)
        case TooDeep():
            return invalid_field("offset", detail)
        case WrongSecret():
            return RequestProblem(Kind.WRONG_SECRET, detail)
        case EndpointNotListed():
            endpoint = InvalidField("endpoint", detail)
            return RequestProblem(Kind.ENDPOINT_NOT_LISTED, detail, errors=[endpoint])
        case Overloaded():
            return RequestProblem(Kind.UNAVAILABLE, detail, headers=[retry_after(error.retry_after_seconds)])
        case StoreUnavailable():
            return RequestProblem(Kind.UNAVAILABLE, detail, headers=[retry_after(1)])
        case _:
            raise error


_INTRO: Final = """\
# Errors

<!-- Generated by `python -m stoker.api.problems`; edit src/stoker/api/problems.py and src/stoker/domain/error_types.py
instead. -->

## Answers

Whatever is not a success is a problem document (RFC 9457, `application/problem+json`). Match on `type`.

| `type` | Status | Title | Meaning |
|---|---|---|---|
"""

_OF_JOBS: Final = """
## Jobs

The `type` of a job's `error`, and of those of its attempts. What a job's own code raises goes by the name of the exception,
as in `ValueError`, and is tried again.

| `type` | Tried again | Meaning |
|---|---|---|
"""


def reference() -> str:
    """Return the page."""
    answers = "".join(f"| `{k.urn}` | {k.status} | {k.title} | {k.value.text} |\n" for k in Kind)
    jobs = "".join(f"| `{error.name}` | {error.retried} | {error.text} |\n" for error in error_types.TABLE)
    return f"{_INTRO}{answers}{_OF_JOBS}{jobs}"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
