"""What can go wrong, as one tree. Every message says what happened and what to do next.

StokerDomainError
├── MissingError         no such job or worker
├── StateConflict        the job is in a status that the request does not fit
│   ├── StaleClaim       a later claim owns the job now: discard this result
│   └── UniqueConflict   another unfinished job holds the unique key
├── IdempotencyMismatch  the key was used before with another body
├── IdMismatch           the id of a new job belongs to a job of another request
├── JobPruned            the id or the key belongs to a job that has ended and was deleted
├── TooDeep              a list cannot be counted through that far: follow its cursor
├── WrongSecret          the session of a worker belongs to another process
├── EndpointNotListed    a worker wants to be dialled at an address that the operator has not listed
├── StoreUnavailable     the store did not commit; nothing was changed, try again
│   └── StoreUnreachable the store does not answer; whether it committed is not known
└── Overloaded           too much is waiting to be committed; try again later
    └── Stopping         the coordinator is told to stop and takes nothing new
"""


class StokerDomainError(Exception):
    """The root of everything that this package raises on purpose inside a coordinator."""


class MissingError(StokerDomainError):
    pass


class StateConflict(StokerDomainError):
    pass


class StaleClaim(StateConflict):
    pass


class UniqueConflict(StateConflict):
    """`job_id` is the job that holds the key."""

    def __init__(self, key: str, job_id: str, status: str, *, replacing: bool = False) -> None:
        why = ", has started and cannot be replaced" if replacing else ""
        super().__init__(
            f"unique key {key!r} is held by job {job_id}, which is {status}{why}; wait until it has ended, or cancel it"
        )
        self.key = key
        self.job_id = job_id


class IdempotencyMismatch(StokerDomainError):
    def __init__(self, key: str) -> None:
        super().__init__(
            f"idempotency key {key!r} was already used with a different request; use a new key for a new job"
        )
        self.key = key


class IdMismatch(StokerDomainError):
    def __init__(self, job_id: str) -> None:
        super().__init__(f"id {job_id} belongs to a job of a different request; make a new id for a new job")
        self.job_id = job_id


class JobPruned(StokerDomainError):
    """`key` is the idempotency key that led to the job; None where its id did."""

    def __init__(self, job_id: str, key: str | None = None) -> None:
        super().__init__(
            f"job {job_id} was accepted before, has ended, and was deleted after its retention; nothing was stored now"
        )
        self.job_id = job_id
        self.key = key


class TooDeep(StokerDomainError):
    def __init__(self, offset: int) -> None:
        super().__init__(
            f"{offset} is too far into this list; follow next_cursor from page to page, or narrow the filter"
        )


class WrongSecret(StokerDomainError):
    def __init__(self) -> None:
        super().__init__(
            "this session belongs to another worker process: it began with a secret that was not given; start a new one"
        )


class EndpointNotListed(StokerDomainError):
    def __init__(self, endpoint: str) -> None:
        super().__init__(
            f"the endpoint {endpoint} is not on the list of those that may be dialled; the operator adds it, or "
            "the scheme, host and port of it, to STOKER_ENDPOINTS and restarts the coordinator"
        )


class StoreUnavailable(StokerDomainError):
    pass


class StoreUnreachable(StoreUnavailable):
    pass


class Overloaded(StokerDomainError):
    def __init__(self, detail: str, retry_after_seconds: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class Stopping(Overloaded):
    def __init__(self) -> None:
        super().__init__(
            "this coordinator is shutting down and accepts no new jobs; try again when it is back, or ask another one",
            retry_after_seconds=5,
        )
