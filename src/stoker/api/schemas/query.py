"""Query strings: the same rules as bodies. A parameter that is unknown, repeated or wrong is refused by name, because a
filter that is silently ignored answers another question than the one asked."""

import base64
import binascii
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import fields as struct_fields

from stoker.api.problems import InvalidField, invalid, invalid_field
from stoker.api.schemas.times import parse_moment
from stoker.api.server.decode import friendly, shortened, unknown
from stoker.api.server.locate import join
from stoker.domain.job import Ident, Label, Priority, StringMap
from stoker.domain.lifecycle import STATUSES, Status
from stoker.domain.nearest import nearest
from stoker.store.reads import JobFilter, JobQuery
from stoker.wire.http import MAX_LEASE_JOBS, MAX_LEASE_WAIT_SEC

MAX_LIMIT: Final = 1_000
DEFAULT_LIMIT: Final = 50
MAX_OFFSET: Final = 10_000_000
MAX_WAIT_SEC: Final = 60.0
_MAX_PARAMETERS: Final = 50
METADATA: Final = "metadata."
"""Begins the name of a parameter that asks for an entry of metadata."""
_MAX_SEQ: Final = 2**63 - 1

Q = TypeVar("Q", bound=msgspec.Struct)

Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT, description="Jobs per page.")]
Offset = Annotated[
    int,
    msgspec.Meta(
        ge=0,
        le=MAX_OFFSET,
        description="Jobs to skip; too far into a list this is refused, follow `next_cursor`.",
    ),
]
Page = Annotated[
    int,
    msgspec.Meta(
        ge=1,
        le=MAX_OFFSET,
        description="The page, counted from 1, as another way to write `offset`; its size is `per_page`, or `limit`.",
    ),
]
Cursor = Annotated[
    str,
    msgspec.Meta(max_length=64, description="`next_cursor` of the page before; not together with `offset`."),
]


_OTHER_NAMES: Final = {"pending": "queued"}
_ONE_STATUS: Final = f"({'|'.join([*STATUSES, *_OTHER_NAMES])})"
Statuses = Annotated[
    str,
    msgspec.Meta(
        max_length=100,
        description=f"Only jobs in one of these: {', '.join(STATUSES)}; several with commas, `queued,running`. `pending` "
        "is another name for `queued`.",
        extra_json_schema={"pattern": f"^{_ONE_STATUS}(,{_ONE_STATUS})*$"},
    ),
]
Worker = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=256,
        description="Only jobs that this worker runs or ran last, by its id or name.",
    ),
]
Moment = Annotated[
    str, msgspec.Meta(max_length=64, description="RFC 3339, or how long ago: `10m`, `2h`, `7d`.")
]
Text = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=256,
        description="The beginning of an id, or a part of a name, a type, or the error of a failed job. Where more than "
        "20,000 jobs have names, a text of eight or more characters that begins an id is not looked for in names.",
    ),
]


Fingerprint = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=256,
        pattern=r"\A[^\x00]*\Z",
        description="Only jobs that failed in this way; `GET /dlq/groups` lists them.",
    ),
]


Search = Annotated[
    str,
    msgspec.Meta(
        max_length=1_000,
        description="A search as it is typed in the dashboard, such as `status:failed type:resize age:>10m`; instead of"
        " the other filters. A word that is not understood is refused.",
    ),
]


class GroupsQuery(msgspec.Struct, frozen=True):
    """`GET /dlq/groups`."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT, description="The most groups to list.")] = 100


class DeadLettersQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /dlq`."""

    limit: Limit = DEFAULT_LIMIT
    offset: Offset = 0
    page: Page | None = None
    per_page: Limit | None = None
    cursor: Cursor | None = None
    type: Ident | None = None
    queue: Ident | None = None
    priority: Priority | None = None
    name: Label | None = None
    worker: Worker | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    text: Text | None = None
    fingerprint: Fingerprint | None = None
    metadata: StringMap = {}
    """Given as `metadata.KEY=VALUE`; several must all match."""
    summary: Annotated[
        bool,
        msgspec.Meta(
            description="Leave out what can be large: `payload` and `result` are null, of `error` there are `type` and"
            " the beginning of `message`."
        ),
    ] = False


class JobsQuery(DeadLettersQuery, frozen=True, kw_only=True):
    """`GET /jobs`."""

    status: Statuses | None = None
    q: Search | None = None


class WaitQuery(msgspec.Struct, frozen=True):
    """`GET /jobs/{id}`."""

    wait: Annotated[
        float,
        msgspec.Meta(
            ge=0, le=MAX_WAIT_SEC, description="Seconds to wait for the job to end before answering."
        ),
    ] = 0.0


class OpenApiQuery(msgspec.Struct, frozen=True):
    """`GET /openapi.json`."""

    version: Annotated[
        Literal["3.1", "3.0"],
        msgspec.Meta(description="Of OpenAPI: 3.1.0, or 3.0.3 for tools that know nothing later."),
    ] = "3.1"


class LeaseQuery(msgspec.Struct, frozen=True):
    """`POST /workers/{id}/lease`."""

    wait: Annotated[
        float, msgspec.Meta(ge=0, le=MAX_LEASE_WAIT_SEC, description="Seconds to wait for the first job.")
    ] = 0.0
    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEASE_JOBS, description="The most jobs to lease.")] = 1


class NoQuery(msgspec.Struct, frozen=True):
    """For endpoints that take no parameters."""


class PageQuery(msgspec.Struct, frozen=True):
    """For pages, whose parameters are read by the page itself: `/dashboard/jobs?q=status:failed`."""


def parse_query(kind: type[Q], query: bytes) -> Q:
    """Return the parameters as a struct of `kind`; raises a 422 that names every wrong one."""
    if kind is PageQuery:
        return kind()
    known = {field.encode_name: field for field in struct_fields(kind)}
    values: dict[str, Any] = {}
    errors: list[InvalidField] = []
    for name, text in _pairs(query):
        if "metadata" in known and name.startswith(METADATA):
            _add_metadata(values.setdefault("metadata", {}), name, text, errors)
        elif name not in known or name == "metadata":
            errors.append(InvalidField(shortened(name), unknown(name, known, "parameter")))
        elif known[name].name in values:
            errors.append(InvalidField(name, "is given more than once"))
        else:
            values[known[name].name] = _converted(known[name].type, name, text, errors)
    if errors:
        raise invalid(errors)
    return kind(**values)


def _add_metadata(found: dict[str, str], name: str, text: str, errors: list[InvalidField]) -> None:
    key = name.removeprefix(METADATA)
    if key in found:
        errors.append(InvalidField(name, "is given more than once"))
        return
    try:
        found |= msgspec.convert({key: text}, StringMap)
    except msgspec.ValidationError as error:
        errors.append(InvalidField(shortened(name), friendly(error, StringMap)))


def metadata_entries(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Entries of metadata as a filter has them, in one order."""
    return tuple(sorted(given.items()))


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
        )
    except UnicodeError:
        raise invalid_field("query", "is not valid UTF-8") from None
    except ValueError:
        raise invalid_field("query", f"has more than {_MAX_PARAMETERS} parameters") from None


def _converted(kind: Any, name: str, text: str, errors: list[InvalidField]) -> Any:
    """Return the value of one parameter; what is wrong with it goes to `errors`."""
    try:
        return msgspec.convert(text, present_type(kind), strict=False)
    except msgspec.ValidationError as error:
        errors.append(InvalidField(name, friendly(error, kind)))
        return None


def present_type(kind: Any) -> Any:
    """Return the type of a parameter that was given: that of an optional one without None, which a URL cannot express."""
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    arms = [arm for arm in get_args(kind) if arm is not type(None)]
    return arms[0] if len(arms) == 1 else kind


class Filtering(Protocol):
    """Parameters, or a part of a body, that say which jobs."""

    @property
    def type(self) -> str | None: ...
    @property
    def queue(self) -> str | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def worker(self) -> str | None: ...
    @property
    def created_after(self) -> str | None: ...
    @property
    def created_before(self) -> str | None: ...
    @property
    def text(self) -> str | None: ...
    @property
    def fingerprint(self) -> str | None: ...
    @property
    def metadata(self) -> dict[str, str]: ...


def job_query(query: DeadLettersQuery, wanted: JobFilter) -> JobQuery:
    """Return what the store is asked for a page of the jobs that are wanted."""
    limit, offset = _span(query)
    if query.cursor is not None and offset:
        raise invalid_field("cursor", "cannot be combined with offset; a cursor already says where to go on")
    before = None if query.cursor is None else decode_cursor(query.cursor)
    return JobQuery(wanted, limit, offset, before, query.summary)


def _span(query: DeadLettersQuery) -> tuple[int, int]:
    """Limit and offset, also from `page` and `per_page`."""
    limit = query.limit if query.per_page is None else query.per_page
    if query.per_page is not None and query.limit not in (DEFAULT_LIMIT, limit):
        raise invalid_field("per_page", "cannot be combined with limit; send one of them")
    if query.page is None:
        return limit, query.offset
    if query.offset:
        raise invalid_field("page", "cannot be combined with offset; send one of them")
    offset = (query.page - 1) * limit
    if offset > MAX_OFFSET:
        raise invalid_field("page", f"is beyond the first {MAX_OFFSET:,} jobs; follow next_cursor")
    return limit, offset


def filter_of(
    given: Filtering,
    status: str | Sequence[Status] | None,
    now: int,
    *,
    dead_letters: bool = False,
    path: str = "",
) -> JobFilter:
    """Return which jobs are meant. Raises 422 for what makes no sense, naming the field at `path`."""
    return JobFilter(
        status=parse_statuses(status, join(path, "status")),
        type=given.type,
        queue=given.queue,
        priority=given.priority,
        name=given.name,
        dead_letters=dead_letters,
        worker=_plain(given.worker, join(path, "worker")),
        created_after=moment_of(given.created_after, join(path, "created_after"), now),
        created_before=moment_of(given.created_before, join(path, "created_before"), now),
        fingerprint=given.fingerprint,
        text=_plain(given.text, join(path, "text")),
        metadata=metadata_entries(given.metadata),
    )


def parse_statuses(given: str | Sequence[Status] | None, field: str) -> Status | tuple[Status, ...] | None:
    """Return one status, or several: a list, or a text with commas between them. Raises 422 for what is none."""
    if given is None:
        return None
    names = list(
        dict.fromkeys(
            _OTHER_NAMES.get(name, name) for name in (given.split(",") if isinstance(given, str) else given)
        )
    )
    try:
        found = msgspec.convert(names, tuple[Status, ...])
    except msgspec.ValidationError:
        wrong = next((name for name in names if name not in STATUSES), "")
        meant = nearest(wrong[:64], frozenset(STATUSES))
        hint = "" if meant is None else f"; did you mean {meant}?"
        raise invalid_field(
            field, f"must be one of {', '.join(STATUSES)}, or several with commas{hint}"
        ) from None
    return found[0] if len(found) == 1 else found


def moment_of(text: str | None, field: str, now: int) -> int | None:
    if text is None:
        return None
    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise invalid_field(field, str(error)) from None


def _plain(text: str | None, field: str) -> str | None:
    """PostgreSQL refuses NUL in any text, and no name has one."""
    if text is not None and "\x00" in text:
        raise invalid_field(field, "cannot contain a NUL character")
    return text


def encode_cursor(seq: int | None) -> str | None:
    """Opaque on purpose: clients hand it back and never take it apart."""
    return None if seq is None else base64.urlsafe_b64encode(str(seq).encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> int:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        seq = int(text) if text.isdigit() else -1
    except (binascii.Error, ValueError):
        seq = -1
    if not 0 <= seq <= _MAX_SEQ:
        raise invalid_field("cursor", "is not a cursor; use next_cursor as it was given")
    return seq
