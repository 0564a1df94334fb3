"""Idempotency keys: a client's own name for a submission, so that sending it again is safe.

The key comes in a header (`Idempotency-Key`, which the standard puts in quotes, or `X-Idempotency-Key`) or in the job.
Beside it stands a digest of what was asked: the same key with another digest is a mistake that must be told. The digest
is taken from the decoded request, so that spaces and the order of names do not matter.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec

from stoker.api.problems import invalid_field
from stoker.clock import SECOND
from stoker.domain.job import DEFAULT_TYPE, NO_DEFAULTS, JobSpec
from stoker.store.submissions import IdempotencyKey

_MAX_CHARS: Final = 255
_FIELD: Final = "idempotency_key"
_PLACE: Final = "\x1f"
"""Between the key of a batch and the place of a job in it. No key of a client can hold it: it is not printable."""

NAMES: Final = ("id", "traceparent")
"""What a client calls a job, and where it comes from: no part of what is asked."""

_DIGESTED: Final = tuple(
    name for name in JobSpec.__struct_fields__ if name not in ("payload", _FIELD, *NAMES)
)

_values: Final = attrgetter(*_DIGESTED)

_sorted = msgspec.json.Encoder(order="sorted").encode


def header_key(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the key in the headers. Raises 422 for one that is unusable, or two that differ."""
    standard = headers.get(b"idempotency-key")
    plain = headers.get(b"x-idempotency-key")
    if standard is None and plain is None:
        return None
    given = {_parsed(value) for value in (standard, plain) if value is not None}
    if len(given) > 1:
        raise invalid_field("Idempotency-Key", "differs from X-Idempotency-Key; send one of them")
    return given.pop()


def _parsed(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise invalid_field("Idempotency-Key", "is not valid UTF-8") from None
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if not 1 <= len(text) <= _MAX_CHARS or not text.isprintable():
        raise invalid_field("Idempotency-Key", f"must have 1 to {_MAX_CHARS} printable characters")
    return text


def key_for_one(spec: JobSpec, header: str | None, *, client: str, expires_at: int) -> IdempotencyKey | None:
    """Return the key of a single job, from its header or its field."""
    field = spec.idempotency_key
    if header is not None and field is not None and header != field:
        raise invalid_field(_FIELD, "differs from the Idempotency-Key header; send one of them")
    name = header or field
    return None if name is None else IdempotencyKey(client, name, digest_of(spec), expires_at)


def keys_for_batch(
    specs: Sequence[JobSpec], header: str | None, *, client: str, expires_at: int
) -> Sequence[IdempotencyKey | None]:
    """Return one key per job. A header names the whole batch: it is repeated as a whole or not at all. Its first job
    bears the key itself, so that no single job can have it as well."""
    if header is None:
        return _own_keys(specs, client, expires_at)
    for index, spec in enumerate(specs):
        if spec.idempotency_key is not None:
            field = f"jobs[{index}].{_FIELD}"
            raise invalid_field(
                field, "cannot be combined with an Idempotency-Key header for the whole batch"
            )
    digest = hashlib.sha256(b"".join(map(digest_of, specs))).digest()
    names = [header, *(f"{header}{_PLACE}{index}" for index in range(1, len(specs)))]
    return [IdempotencyKey(client, name, digest, expires_at) for name in names]


def _own_keys(specs: Sequence[JobSpec], client: str, expires_at: int) -> Sequence[IdempotencyKey | None]:
    seen: dict[str, bytes] = {}
    keys: list[IdempotencyKey | None] = []
    for index, spec in enumerate(specs):
        name = spec.idempotency_key
        if name is None:
            keys.append(None)
            continue
        digest = digest_of(spec)
        if seen.setdefault(name, digest) != digest:
            raise invalid_field(f"jobs[{index}].{_FIELD}", "is used in this batch for a different job")
        keys.append(IdempotencyKey(client, name, digest, expires_at))
    return keys


def expiry(now_us: int, ttl_seconds: float) -> int:
    return now_us + int(ttl_seconds * SECOND)


def digest_of(spec: JobSpec) -> bytes:
    """Return a hash of what the submission asks for; its `id` and `traceparent` do not count. Defaults that workers
    announced for the type do not count either, or a submission that is sent again after a deploy would be a different
    one. A field that is left out counts as its default without announcements: releases before announcements made the same
    hash."""
    return hashlib.sha256(asked_for(spec) + b"\n" + canonical(bytes(spec.payload))).digest()


def asked_for(spec: JobSpec) -> bytes:
    """Return what is asked for, but for the payload, in a form that is the same for the same request."""
    values = _values(spec)
    try:
        return _written_once(*values)
    except TypeError:  # one of them cannot be hashed: metadata, say
        return _written(*values)


def _written(*values: object) -> bytes:
    parts = {name: _asked(name, value) for name, value in zip(_DIGESTED, values, strict=True)}
    text = _sorted({name: value for name, value in parts.items() if value is not None})
    return _sorted(_unsigned_zeros(msgspec.json.decode(text))) if b"-0.0" in text else text


def _unsigned_zeros(value: Any) -> Any:
    """Return the value with 0.0 for -0.0: they are equal, so `_written_once` may answer for the one with the other."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list):
        return [*map(_unsigned_zeros, value)]
    if isinstance(value, dict):
        return {name: _unsigned_zeros(inner) for name, inner in value.items()}
    return value


_written_once = lru_cache(maxsize=256, typed=True)(_written)
"""Most jobs of a program ask for the same, payloads and names aside. `typed`, because 1 and 1.0 are written differently."""


def _asked(name: str, value: object) -> object:
    if name == "type":
        return value or DEFAULT_TYPE
    if name == "timeout_sec":
        value = value or None
    return getattr(NO_DEFAULTS, name) if value is msgspec.UNSET else value


def canonical(payload: bytes) -> bytes:
    """Return the payload with sorted names; as it was sent where it holds what cannot be written again."""
    try:
        return _sorted(msgspec.json.decode(payload))
    except (msgspec.DecodeError, OverflowError, RecursionError, ValueError):
        return payload
