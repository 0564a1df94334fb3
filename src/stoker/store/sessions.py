"""Sessions of workers: what the stores keep of them, and what ends with one that falls silent."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from stoker.domain.lifecycle import Status
from stoker.domain.retry import Claim
from stoker.store.queries import json_text

NO_NOTE: Final = b"{ }"
"""The note of a type of which a worker says nothing but its name."""
ANY_TYPE: Final = "*"


class Session(msgspec.Struct, frozen=True):
    """One life of a worker process: a fresh id at every start, whatever the worker is called."""

    id: str
    name: str
    threads: int
    types: tuple[str, ...]
    queues: tuple[str, ...] | None
    labels: dict[str, str]
    status: str
    """`live`, `draining`, `lost` (silent beyond the timeout) or `gone` (said goodbye)."""
    registered_at: int
    last_heartbeat_at: int
    threads_used: int = 0
    endpoint: str | None = None
    host: str | None = None
    pid: int | None = None
    secret_hash: bytes | None = None
    """See `stoker.domain.session_secret`. Never shown."""
    any_type: bool = False
    """Takes every type that no session of the last minute names, besides `types`."""

    @property
    def speaks_run(self) -> bool:
        """Whether its endpoint is of the `/run` shapes (`stoker.wire.run`); only such workers have an endpoint and take any
        type."""
        return self.any_type and self.endpoint is not None


class Renewal(msgspec.Struct, frozen=True):
    session_id: str
    threads_used: int


class Lost(msgspec.Struct, frozen=True):
    """A claim taken from a session that fell silent, and what became of its job."""

    claim: Claim
    status: Status


class Expired(msgspec.Struct, frozen=True):
    sessions: list[str]
    losses: list[Lost]


def session_texts(session: Session) -> tuple[str, str | None, str]:
    """Types, queues and labels as they are stored. A session that takes any type has one more, which no type is called."""
    queues = None if session.queues is None else json_text(session.queues)
    types = (*session.types, ANY_TYPE) if session.any_type else session.types
    return json_text(types), queues, json_text(session.labels)


def session_of(row: Iterable[Any]) -> Session:
    fields = list(row)
    types = msgspec.json.decode(fields[3], type=tuple[str, ...])
    any_type = ANY_TYPE in types
    fields[3] = tuple(type for type in types if type != ANY_TYPE) if any_type else types
    fields[4] = None if fields[4] is None else msgspec.json.decode(fields[4], type=tuple[str, ...])
    fields[5] = msgspec.json.decode(fields[5], type=dict[str, str])
    session = Session(*fields)
    return replace(session, any_type=True) if any_type else session
