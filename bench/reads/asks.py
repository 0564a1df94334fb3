"""Every GET of the API, with every parameter that it documents, made from the table of endpoints.

A parameter or a part of a path that has no values here makes `asks` fail, so a new one needs a line here.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import fields

from bench.reads import population
from stoker.api.endpoints import ENDPOINTS, Endpoint
from stoker.api.schemas.query import DeadLettersQuery, encode_cursor

LIST_MS: Final = 100.0
OTHER_MS: Final = 50.0

Values = Mapping[str, Sequence[str]]


class Ask(msgspec.Struct, frozen=True):
    """One request, and within how many milliseconds it must be answered."""

    path: str
    bound_ms: float
    stream: bool = False
    """Answered when the first of it has come."""


class Known(msgspec.Struct, frozen=True):
    """What the database holds: for requests about one job, one bulk operation or one schedule."""

    jobs: int
    ids: Sequence[str]
    """Of a queued and of a finished job."""
    bulk: str
    schedule: str = "no-such-schedule"


class NotCovered(Exception):
    """The API has something that nothing here asks for."""


def values_of(known: Known) -> Values:
    """Values for each parameter: what is common, what is rare and lies deep, and what does not exist."""
    queued, finished = known.ids
    return {
        "status": [
            *("queued", "scheduled", "running", "blocked", "completed", "failed", "cancelled"),
            *("queued,running", "completed,failed,cancelled"),
        ],
        "type": ["type-0", "type-7", population.RARE, "no-such-type"],
        "queue": ["queue-0", "queue-3", population.RARE, "no-such-queue"],
        "priority": ["5", "3", "77"],
        "name": ["common", "name-5", "no-such-name"],
        "worker": ["worker-3", population.RARE_WORKER, "no-such-worker"],
        "created_after": ["10m", "30h"],
        "created_before": ["10m", "47h"],
        "text": [
            "name-12",
            "type-7",
            "ValueError",
            "no-such-text",
            queued,
            finished,
            finished[:8],
            finished[:3],
        ],
        "fingerprint": ["error-5", "no-such-error"],
        "metadata": ["customer=common", "customer=rare", "customer=no-such-customer"],
        "q": ["status:failed type:type-7 age:>10m", "status:queued no-such-text", "type-7", finished],
        "summary": ["true"],
        "limit": ["1", "1000"],
        "offset": ["1000", "100000", str(known.jobs - 100)],
        "page": ["2", "2000", str(known.jobs // 50)],
        "per_page": ["1", "1000"],
        "cursor": [str(encode_cursor(known.jobs + known.jobs // 2)), str(encode_cursor(1000))],
        "wait": ["0"],
        "from": ["1h", "25h", "7d"],
        "to": ["1m"],
        "step": ["10", "300"],
        "by": ["type", "queue"],
        "format": ["json"],
        "attempt": ["1"],
        "claim": ["1"],
        "tail": ["10"],
        "follow": ["true"],
        "after": ["0"],
        "version": ["3.0"],
        "orphaned": ["true"],
        "app": ["no-such-app"],
        "count": ["1", "100"],
        "before": ["2026-01-31T12:00:00Z"],
        "cron": ["0 9 * * 1-5", "@yearly"],
        "every_sec": ["900"],
        "timezone": ["Europe/Berlin"],
        "start_at": ["2026-01-31T12:00:00Z"],
        "end_at": ["2026-01-31T12:00:00Z"],
    }


COMBINED: Final = {
    "status": "failed",
    "type": population.RARE,
    "queue": "queue-3",
    "priority": "3",
    "name": "common",
    "worker": population.RARE_WORKER,
    "created_after": "40h",
    "created_before": "30h",
    "text": "no-such-text",
    "fingerprint": "error-5",
    "metadata": "customer=common",
}
"""Any two of these are asked for together."""
_NOT_ALIKE: Final = {"/events": {"after"}}
"""Parameters of which the values above make no sense to this path."""


def asks(known: Known) -> list[Ask]:
    return [ask for endpoint in ENDPOINTS if endpoint.method == "GET" for ask in _of(endpoint, known)]


def _of(endpoint: Endpoint, known: Known) -> Iterator[Ask]:
    values = values_of(known)
    names = [field.encode_name for field in fields(endpoint.query)]
    missing = [name for name in names if name not in values]
    if missing:
        raise NotCovered(f"GET {endpoint.path} has parameters without values: {', '.join(missing)}")
    is_list = issubclass(endpoint.query, DeadLettersQuery)
    bound = LIST_MS if is_list else OTHER_MS
    stream = bool(endpoint.events) or endpoint.or_text
    for path in _paths(endpoint.path, known):
        yield Ask(path, bound, stream)
        for name in names:
            if name not in _NOT_ALIKE.get(endpoint.path, ()):
                for value in values[name]:
                    yield Ask(f"{path}?{_parameter(name, value)}", bound, stream)
        if is_list:
            for pair in itertools.combinations([name for name in names if name in COMBINED], 2):
                yield Ask(f"{path}?{'&'.join(_parameter(name, COMBINED[name]) for name in pair)}", bound)


def _parameter(name: str, value: str) -> str:
    """A parameter; an entry of metadata is `metadata.KEY=VALUE`."""
    if name == "metadata":
        return f"metadata.{value}"
    return urlencode({name: value})


def _paths(path: str, known: Known) -> list[str]:
    if path.startswith("/bulk/"):
        return [path.replace("{id}", known.bulk)]
    if "{id}" in path:
        return [path.replace("{id}", quote(id)) for id in known.ids]
    found = path.replace("{path}", "jobs").replace("{name}", quote(known.schedule))
    if "{" in found:
        raise NotCovered(f"GET {path} has a part without a value")
    return [found]
