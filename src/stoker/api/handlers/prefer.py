"""`Prefer: return=minimal` (RFC 7240): short answers for clients that want no more than to know that a job is stored."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from stoker.api.problems import ProblemDocument
from stoker.api.server.exchange import Header
from stoker.domain.unique import Mark
from stoker.store.submissions import Accepted

APPLIED: Final[Header] = (b"preference-applied", b"return=minimal")

_encode = msgspec.json.Encoder().encode


class MinimalView(msgspec.Struct, frozen=True):
    """A job that is stored, in an answer to `Prefer: return=minimal`."""

    id: str
    replayed: bool | msgspec.UnsetType = msgspec.UNSET
    """True when an earlier request had made the job; left out otherwise."""
    warnings: Sequence[str] | msgspec.UnsetType = msgspec.UNSET
    unique: Mark | msgspec.UnsetType = msgspec.UNSET
    """Set when this is the job that holds the unique key."""


class PlaceView(msgspec.Struct, frozen=True):
    """A job of a batch in an answer to `Prefer: return=minimal`: its id, or with `"atomic": false` the problem it met."""

    id: str | msgspec.UnsetType = msgspec.UNSET
    replayed: bool | msgspec.UnsetType = msgspec.UNSET
    """True when an earlier request had made the job; left out otherwise."""
    problem: ProblemDocument | msgspec.UnsetType = msgspec.UNSET
    unique: Mark | msgspec.UnsetType = msgspec.UNSET


class MinimalBatchView(msgspec.Struct, frozen=True):
    """The jobs of a batch, in the order in which they were sent, in an answer to `Prefer: return=minimal`."""

    jobs: list[PlaceView]
    warnings: Sequence[str] | msgspec.UnsetType = msgspec.UNSET


def wants_minimal(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the client prefers a short answer. Other preferences, and what cannot be read, are ignored: nothing
    in this header can be a mistake."""
    value = headers.get(b"prefer")
    if value is None:
        return False
    for preference in value.split(b","):
        name, _, rest = preference.partition(b";")[0].partition(b"=")
        if name.strip().lower() == b"return":  # the first one counts
            return rest.strip().strip(b'"').lower() == b"minimal"
    return False


def _replayed(accepted: Accepted) -> bool:
    return accepted.repeated and accepted.unique is None


def render_minimal(accepted: Accepted, warnings: Sequence[str]) -> bytes:
    view = MinimalView(
        accepted.job.id,
        _replayed(accepted) or msgspec.UNSET,
        list(warnings) if warnings else msgspec.UNSET,
        accepted.unique or msgspec.UNSET,
    )
    return _encode(view)


def minimal_places(accepted: Accepted) -> bytes:
    """Return the jobs of a `JobBatch` as items of a list, without brackets around them."""
    end = b'","replayed":true}' if _replayed(accepted) else b'"}'
    if accepted.unique is not None:
        end = b'","unique":"%b"}' % accepted.unique.encode()
    return b'{"id":"' + (end + b',{"id":"').join([id.encode() for id in accepted.batch.ids]) + end


def render_places(places: Iterable[bytes], warnings: Sequence[str]) -> bytes:
    """Return the answer to a batch, from places that are rendered already."""
    tail = b',"warnings":' + _encode(list(warnings)) if warnings else b""
    return b"".join((b'{"jobs":[', b",".join(places), b"]", tail, b"}"))
