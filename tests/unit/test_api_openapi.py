"""The document says what the table says, and the answers are as the document says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker.api.endpoints import ENDPOINTS, Endpoint, problems_of
from stoker.api.openapi import document
from stoker.api.problems import STATUSES, Kind
from stoker.api.reference import reference
from stoker.domain.extras import Extras
from stoker.domain.job import JobDefaults
from tests.unit.test_api_service import FakeService, ask

DOCUMENT: dict[str, Any] = msgspec.json.decode(document(ENDPOINTS))
SHOWN = [endpoint for endpoint in ENDPOINTS if endpoint.documented]


def refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from refs(value)


def test_every_endpoint_is_there_once_and_nothing_else() -> None:
    table = {(endpoint.path, endpoint.method.lower()) for endpoint in SHOWN}
    assert len(table) == len(SHOWN)
    assert {(path, method) for path, item in DOCUMENT["paths"].items() for method in item} == table


def test_what_is_not_documented_is_the_page_and_the_websocket() -> None:
    hidden = {endpoint.path for endpoint in ENDPOINTS if not endpoint.documented}
    assert hidden == {"/", "/dashboard", "/dashboard/{path}", "/workers/connect"}


def test_references_resolve_and_names_are_unique() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    wanted = {ref.rpartition("/")[2] for ref in refs(DOCUMENT)}
    assert wanted <= set(schemas)
    operations = [operation for item in DOCUMENT["paths"].values() for operation in item.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    for name in ids:
        assert re.fullmatch(r"[a-z_]+", name)


@pytest.mark.parametrize("endpoint", SHOWN, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_operations_carry_what_the_table_says(endpoint: Endpoint) -> None:
    operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
    statuses = {endpoint.status, *problems_of(endpoint)} | ({endpoint.also} if endpoint.also else set())
    assert {int(status) for status in operation["responses"]} == statuses
    assert set(problems_of(endpoint)) <= STATUSES
    assert ("requestBody" in operation) is (endpoint.body is not None)
    assert operation["x-scope"] == endpoint.scope
    in_path = re.findall(r"\{(\w+)\}", endpoint.path)
    assert [
        parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"
    ] == in_path


def test_patterns_are_portable_and_compile() -> None:
    patterns = re.findall(r'"pattern":"((?:[^"\\]|\\.)*)"', document(ENDPOINTS).decode())
    assert patterns
    for pattern in patterns:
        text = msgspec.json.decode(f'"{pattern}"')
        assert "\\A" not in text
        assert "\\Z" not in text
        re.compile(text)


def test_jobs_are_described_as_they_are_sent() -> None:
    view = DOCUMENT["components"]["schemas"]["JobView"]
    sent = set(ask(FakeService(), "POST", "/jobs", json={}).json())
    assert sent == set(view["required"])
    assert set(view["properties"]) - sent == {
        *("warnings", "attempts", "next_attempt_at", "unique"),
        *Extras.__struct_fields__,
    }
    spec = DOCUMENT["components"]["schemas"]["JobSpec"]
    assert spec["additionalProperties"] is False
    assert spec["properties"]["payload"] == {"default": None}
    priority = spec["properties"]["priority"]
    assert {"type": "integer", "minimum": 0, "maximum": 100, "x-otherwise": 1}.items() <= priority.items()


@pytest.mark.parametrize("name", ["JobSpec", "SubmitJob"])
def test_what_workers_may_announce_has_no_default_that_a_client_would_send(name: str) -> None:
    fields = DOCUMENT["components"]["schemas"][name]["properties"]
    announced = fields.keys() & set(JobDefaults.__struct_fields__)
    assert announced
    for field in announced:
        assert "default" not in fields[field]
        assert fields[field]["x-otherwise"] == msgspec.to_builtins(getattr(JobDefaults(), field))


def test_every_kind_of_event_is_described() -> None:
    def data(path: str) -> list[str]:
        content = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]
        return [ref.rpartition("/")[2] for ref in refs(content["text/event-stream"])]

    assert data("/events") == ["UpdateView", "HelloView", "ResetView"]
    assert data("/jobs/{id}/events") == ["JobView", "EndView"]


def test_descriptions_do_not_depend_on_how_the_source_is_indented() -> None:
    described = [schema.get("description", "") for schema in DOCUMENT["components"]["schemas"].values()]
    assert any("\n" in text for text in described)
    assert not any("\n " in text for text in described)


def test_limits_of_parameters_are_described() -> None:
    parameters = {p["name"]: p for p in DOCUMENT["paths"]["/jobs"]["get"]["parameters"]}
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50}
    pattern = re.compile(parameters["status"]["schema"]["pattern"])
    assert pattern.fullmatch("failed")
    assert pattern.fullmatch("queued,running")
    assert not pattern.fullmatch("done")


def test_problem_types_are_stable_and_distinct() -> None:
    urns = [kind.urn for kind in Kind]
    assert len(urns) == len(set(urns))
    for urn in urns:
        assert re.fullmatch(r"urn:stoker:problem:[a-z-]+", urn)


def test_it_is_served() -> None:
    answer = ask(FakeService(), "GET", "/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["openapi"].startswith("3.1")


def test_the_reference_page_is_not_stale() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"
    assert page.read_text() == reference(), "run: python -m stoker.api.reference > docs/reference/rest.md"
