"""The OpenAPI 3.1 document, made from the endpoint table and the types it names.

`python -m stoker.api.openapi` prints it without the paths: the dashboard's types of the API are generated from that
(`make web-types`).
"""

from collections.abc import Iterable
from http import HTTPStatus
from inspect import cleandoc
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec.structs import fields as struct_fields

from stoker import __version__
from stoker.api.endpoints import ENDPOINTS, Endpoint, problems_of
from stoker.api.handlers.batches import BatchSpec
from stoker.api.handlers.jobs import BATCH_SIZE
from stoker.api.handlers.prefer import PlaceView
from stoker.api.handlers.schedules import ScheduleBody
from stoker.api.problems import ProblemDocument
from stoker.api.schemas.query import present_type
from stoker.api.schemas.views import JobView
from stoker.api.server.decode import bare_type
from stoker.domain.job import NO_DEFAULTS, Ident, JobDefaults, JobSpec

Schema = dict[str, Any]

_REF: Final = "#/components/schemas/{name}"
_PUBLISHED: Final = {"BatchSpec": "Batch", "DeadLetterChoice": "DeadLetters", "InvalidField": "FieldError"}
_PROBLEM: Final = "application/problem+json"

_RETRY_AFTER: Final[Schema] = {
    "description": "Seconds after which the request would pass.",
    "schema": {"type": "integer", "minimum": 1},
}
_REPLAYED: Final[Schema] = {
    "description": "`true` when an earlier request under the same key had made this.",
    "schema": {"type": "string", "enum": ["true"]},
}
_PREFER: Final[Schema] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`return=minimal` (RFC 7240) asks for a short answer; other preferences are ignored.",
    "schema": {"type": "string"},
}
_APPLIED: Final[Schema] = {
    "description": "`return=minimal` when the answer is the short one.",
    "schema": {"type": "string", "enum": ["return=minimal"]},
}
_LOCATION: Final[Schema] = {"description": "Where the job is.", "schema": {"type": "string"}}
_ANSWER_HEADERS: Final[dict[int, Schema]] = {
    401: {"WWW-Authenticate": {"description": "How to be let in.", "schema": {"type": "string"}}},
    429: {"Retry-After": _RETRY_AFTER},
    503: {"Retry-After": _RETRY_AFTER},
}


def document(endpoints: Iterable[Endpoint]) -> bytes:
    """Return the document as JSON."""
    shown = [endpoint for endpoint in endpoints if endpoint.documented]
    paths: dict[str, Schema] = {}
    for endpoint in shown:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Stoker",
                "version": __version__,
                "description": "Submit jobs, and a pool of workers runs them.",
                "license": {"name": "MIT", "identifier": "MIT"},
            },
            "servers": [{"url": "/"}],
            "tags": [{"name": name} for name in dict.fromkeys(endpoint.tag for endpoint in shown)],
            "paths": paths,
            "components": {
                "schemas": components(shown),
                "securitySchemes": {
                    "token": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "Needed when the server runs with `STOKER_TOKEN`.",
                    }
                },
            },
        }
    )


def _operation(endpoint: Endpoint) -> Schema:
    operation: Schema = {
        "operationId": operation_id(endpoint),
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "parameters": [
            *_path_parameters(endpoint),
            *_query_parameters(endpoint),
            *_header_parameters(endpoint),
        ],
        "responses": _responses(endpoint),
        # Without a token on the server every caller is let in, so the empty requirement is an alternative.
        "security": [] if endpoint.scope == "public" else [{"token": []}, {}],
        "x-scope": endpoint.scope,
    }
    if endpoint.description:
        operation["description"] = endpoint.description
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _body(endpoint, endpoint.body)}},
        }
    return operation


def _body(endpoint: Endpoint, body: type[msgspec.Struct]) -> Schema:
    if endpoint.or_body is None:
        return _ref(body)
    return {"oneOf": [_ref(body), _ref(endpoint.or_body[0])]}


def operation_id(endpoint: Endpoint) -> str:
    """A name that generators turn into a function: `post_jobs_id_cancel`."""
    words = endpoint.path.replace("{", "").replace("}", "").replace(".", "_").strip("/").split("/")
    return "_".join([endpoint.method.lower(), *words])


def _path_parameters(endpoint: Endpoint) -> list[Schema]:
    names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": _in_path(name)} for name in names]


def _in_path(name: str) -> Schema:
    """Queues are named by submitters, within limits; ids are ours, and any other is simply not found."""
    return portable(msgspec.json.schema(Ident)) if name == "queue" else {"type": "string"}


def _query_parameters(endpoint: Endpoint) -> list[Schema]:
    # `metadata.KEY=VALUE` has no form in OpenAPI; the description of the endpoint tells of it.
    return [_query_parameter(field) for field in struct_fields(endpoint.query) if field.name != "metadata"]


def _query_parameter(field: msgspec.structs.FieldInfo) -> Schema:
    schema = portable(msgspec.json.schema(present_type(field.type)))
    description = schema.pop("description", None)
    if field.default is not None:
        schema["default"] = field.default
    parameter: Schema = {"name": field.encode_name, "in": "query", "required": False, "schema": schema}
    if description:
        parameter["description"] = description
    return parameter


def _header_parameters(endpoint: Endpoint) -> list[Schema]:
    if endpoint.tag == "plain-HTTP workers" and "{id}" in endpoint.path:
        return [{"name": "X-Stoker-Secret", "in": "header", "required": False, "schema": {"type": "string"}}]
    if not endpoint.idempotent_submit:
        return []
    schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"}
    keys = [
        {"name": name, "in": "header", "required": False, "schema": schema}
        for name in ("Idempotency-Key", "X-Idempotency-Key")
    ]
    return keys if endpoint.or_response is None else [*keys, _PREFER]


def _responses(endpoint: Endpoint) -> Schema:
    success = _success(endpoint)
    responses = {str(endpoint.status): success}
    if endpoint.also is not None:
        responses[str(endpoint.also)] = {**success, "description": HTTPStatus(endpoint.also).phrase}
    for status in problems_of(endpoint):
        responses[str(status)] = _refusal(status)
    return responses


def _success(endpoint: Endpoint) -> Schema:
    success: Schema = {"description": HTTPStatus(endpoint.status).phrase}
    if endpoint.response is str:
        success["content"] = {"text/plain": {"schema": {"type": "string"}}}
    elif endpoint.response is dict:
        success["content"] = {"application/json": {"schema": {"type": "object"}}}
    elif endpoint.or_response is not None:
        either = {"anyOf": [_ref(endpoint.response), _ref(endpoint.or_response)]}
        success["content"] = {"application/json": {"schema": either}}
    elif endpoint.response is not None:
        success["content"] = {"application/json": {"schema": _ref(endpoint.response)}}
    if endpoint.events:
        events = [_event(kind) for kind in (endpoint.response, *endpoint.events)]
        success["content"] = {"text/event-stream": {"schema": {"oneOf": events}}}
    if endpoint.or_text:
        lines = {"application/x-ndjson": {"schema": {"type": "string", "description": "A document a line."}}}
        success["content"] = {"text/plain": {"schema": {"type": "string"}}, **success["content"], **lines}
    if endpoint.idempotent_submit:
        success["headers"] = {"Idempotency-Replayed": _REPLAYED}
    if endpoint.or_response is not None:
        success["headers"]["Preference-Applied"] = _APPLIED
    if endpoint.idempotent_submit and endpoint.response is JobView:
        success["headers"]["Location"] = _LOCATION
    return success


def _event(kind: type[msgspec.Struct]) -> Schema:
    """Return one event of a stream, in the words in which later versions of OpenAPI describe them."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": _ref(kind)}
    name = {"const": kind.__name__.removesuffix("View").lower()}
    return {
        "type": "object",
        "required": ["event", "data"],
        "properties": {"event": name, "id": {"type": "string"}, "data": data},
    }


def _refusal(status: int) -> Schema:
    refusal: Schema = {
        "description": HTTPStatus(status).phrase,
        "content": {_PROBLEM: {"schema": _ref(ProblemDocument)}},
    }
    if status in _ANSWER_HEADERS:
        refusal["headers"] = _ANSWER_HEADERS[status]
    return refusal


# --- schemas -------------------------------------------------------------------------------------------


def components(endpoints: Iterable[Endpoint]) -> Schema:
    """Return the schemas of every struct that the endpoints name, by the struct's name."""
    named: dict[str, Any] = {ProblemDocument.__name__: ProblemDocument}
    for endpoint in endpoints:
        other = endpoint.or_body[0] if endpoint.or_body else None
        for kind in (endpoint.body, other, endpoint.response, endpoint.or_response, *endpoint.events):
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                named[kind.__name__] = _describable(kind)
    _, schemas = msgspec.json.schema_components(list(named.values()), ref_template=_REF)
    schemas = _published(portable(schemas))
    for schema in schemas.values():
        if "description" in schema:  # indented as in the source, or not, as the version of Python has it
            schema["description"] = cleandoc(schema["description"])
    _add_rules(schemas)
    return dict(sorted(schemas.items()))


def _add_rules(schemas: Schema) -> None:
    """What the handlers check beyond the types; each is there only when some endpoint names it."""
    if "JobSpec" in schemas:
        schemas["JobSpec"]["properties"]["run_at"] = {
            "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
            "default": None,
            "description": "When to run, as in RFC 3339, with an offset; not together with `delay_sec`.",
        }
        schemas["JobSpec"]["properties"]["id"] |= {
            "description": "An id of the client's own, a UUIDv7 whose time is at most a day ahead of the server's clock: "
            "sending the same request again with the same id is safe."
        }
        schemas["JobSpec"]["properties"]["traceparent"] |= {
            "description": "The W3C trace context that the job comes from, in place of that of the request."
        }
    if "BatchView" in schemas:
        jobs = schemas["BatchView"]["properties"]["jobs"]
        jobs["items"] = {"anyOf": [jobs["items"], _ref(PlaceView)]}
    for name in {"JobSpec", "SubmitJob"} & schemas.keys():
        for field in schemas[name]["properties"].keys() & set(JobDefaults.__struct_fields__):
            _left_out(schemas[name]["properties"], field)
    # In words, because generators of clients make nothing of conditions between fields, and drop what has them.
    if "HttpReport" in schemas:
        properties = schemas["HttpReport"]["properties"]
        properties["error"]["description"] = (
            "Required for the outcome `failed`, and not allowed for `completed`."
        )
        properties["result"]["description"] = "Only for the outcome `completed`."


def _left_out(properties: Schema, field: str) -> None:
    """Say what a field is that a submission leaves out. It is no `default`: clients made from this document would send it,
    and nothing that workers announce would ever count."""
    otherwise = msgspec.to_builtins(getattr(NO_DEFAULTS, field))
    properties[field] |= {
        "description": "Where it is left out, it is as the workers of the type announced it, else as `x-otherwise` says.",
        "x-otherwise": otherwise,
    }


def _ref(kind: Any) -> Schema:
    return {"$ref": _REF.format(name=published_name(bare_type(kind).__name__))}


def published_name(name: str) -> str:
    """Return the name of a struct in the document: clients may be generated from it, so it outlives the class's name."""
    return _PUBLISHED.get(name, name)


def _published(schemas: Schema) -> Schema:
    text = msgspec.json.encode(schemas).decode()
    for name, published in _PUBLISHED.items():
        text = text.replace(f'"{name}"', f'"{published}"').replace(
            f'"{_REF.format(name=name)}"', f'"{_REF.format(name=published)}"'
        )
    return cast(Schema, msgspec.json.decode(text))


def _without_raw_default(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A twin that msgspec can describe: it cannot write down a default that is raw JSON."""
    described: list[Any] = []
    for field in struct_fields(kind):
        if isinstance(field.default, msgspec.Raw):
            described.append((field.encode_name, Any, None))
        elif field.default_factory is not msgspec.NODEFAULT:
            described.append(
                (field.encode_name, field.type, msgspec.field(default_factory=field.default_factory))
            )
        else:
            described.append((field.encode_name, field.type, field.default))
    return msgspec.defstruct(
        kind.__name__, described, forbid_unknown_fields=True, namespace={"__doc__": kind.__doc__}
    )


_SPEC: Final = _without_raw_default(JobSpec)
_BATCH: Final = msgspec.defstruct(
    BatchSpec.__name__,
    [("jobs", Annotated[list[_SPEC], BATCH_SIZE]), ("atomic", bool, True)],  # type: ignore[valid-type]
    forbid_unknown_fields=True,
    namespace={"__doc__": BatchSpec.__doc__},
)
_SCHEDULE: Final = msgspec.defstruct(
    ScheduleBody.__name__,
    [
        (field.encode_name, _SPEC if field.type is JobSpec else field.type, field.default)
        for field in struct_fields(ScheduleBody)
    ],
    forbid_unknown_fields=True,
    kw_only=True,
    namespace={"__doc__": ScheduleBody.__doc__},
)


def _describable(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    return {JobSpec: _SPEC, BatchSpec: _BATCH, ScheduleBody: _SCHEDULE}.get(kind, kind)


def portable(schema: Any) -> Any:
    """Return the schema with patterns that every dialect of regular expressions understands, not only Python's."""
    if isinstance(schema, dict):
        return {
            key: _portable_pattern(value) if key == "pattern" else portable(value)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [portable(item) for item in schema]
    return schema


def _portable_pattern(pattern: str) -> str:
    """Anchors in the common spelling, and no word about lone surrogates, which JSON text in UTF-8 cannot carry anyway."""
    return pattern.replace("\\A", "^").replace("\\Z", "$").replace("\\ud800-\\udfff", "")


if __name__ == "__main__":
    print(msgspec.json.encode(msgspec.json.decode(document(ENDPOINTS)) | {"paths": {}}).decode())  # noqa: T201
