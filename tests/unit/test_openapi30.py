"""Both OpenAPI documents are valid, say the same, and can be made into clients that have every operation."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from stoker.api.endpoints import ENDPOINTS
from stoker.api.openapi import document, operation_id
from stoker.api.openapi30 import document_30, schema_30
from tests.unit.test_api_service import FakeService, ask

DOCUMENTS: dict[str, bytes] = {
    "3.1.0": document(ENDPOINTS),
    "3.0.3": document_30(document(ENDPOINTS)),
}
GENERATOR = os.environ.get("OPENAPI_PYTHON_CLIENT")
"""The program, which `make openapi-test` installs beside our own environment: it holds back Typer, which we need."""


@pytest.fixture(params=DOCUMENTS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def schemas_of(node: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document that may be a schema."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from schemas_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from schemas_of(value)


def test_the_document_is_valid(version: str) -> None:
    decoded = msgspec.json.decode(DOCUMENTS[version])
    assert decoded["openapi"] == version
    validate(decoded)


def test_both_have_the_same_operations_and_schemas() -> None:
    new, old = (msgspec.json.decode(text) for text in DOCUMENTS.values())
    assert {path: set(item) for path, item in new["paths"].items()} == {
        path: set(item) for path, item in old["paths"].items()
    }
    assert set(new["components"]["schemas"]) == set(old["components"]["schemas"])


def test_there_is_nothing_that_generators_drop(version: str) -> None:
    for schema in schemas_of(msgspec.json.decode(DOCUMENTS[version])["components"]["schemas"]):
        if schema.get("type") == "array":
            assert "items" in schema, schema
        if isinstance(schema.get("properties"), dict):
            assert not {"oneOf", "anyOf"} & schema.keys(), schema


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string", "nullable": True}),
        (
            {"anyOf": [{"$ref": "#/x"}, {"type": "null"}], "default": None},
            {"allOf": [{"$ref": "#/x"}], "nullable": True, "default": None},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            {"anyOf": [{"type": "string", "nullable": True}, {"type": "integer", "nullable": True}]},
        ),
        (
            {"anyOf": [{"enum": ["a"]}, {"type": "null"}]},
            {"enum": ["a", None], "nullable": True},
        ),
        ({"const": "job"}, {"enum": ["job"]}),
        (
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        ),
        ({"type": "string", "examples": ["a", "b"]}, {"type": "string", "example": "a"}),
        ({"type": "object", "required": []}, {"type": "object"}),
        ({"type": "object", "propertyNames": {"maxLength": 9}}, {"type": "object"}),
        (
            {"type": "object", "properties": {"const": {"const": 1}}, "required": ["const"]},
            {"type": "object", "properties": {"const": {"enum": [1]}}, "required": ["const"]},
        ),
        (
            {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            {"type": "array", "items": {"type": "integer", "nullable": True}},
        ),
        ({"type": "string", "contentMediaType": "application/json", "contentSchema": {}}, {"type": "string"}),
    ],
)
def test_a_schema_is_said_in_the_words_of_3_0(new: dict[str, Any], old: dict[str, Any]) -> None:
    assert schema_30(new) == old


def test_the_version_is_chosen_by_the_client() -> None:
    def served(path: str) -> Any:
        answer = ask(FakeService(), "GET", path)
        assert answer.headers["content-type"] == "application/json"
        return answer.json()["openapi"]

    assert served("/openapi.json") == served("/openapi.json?version=3.1") == "3.1.0"
    assert served("/openapi.json?version=3.0") == "3.0.3"
    refused = ask(FakeService(), "GET", "/openapi.json?version=2.0")
    assert refused.status_code == 422
    assert "3.1, 3.0" in refused.text


@pytest.mark.skipif(
    GENERATOR is None, reason="`make openapi-test` installs openapi-python-client and runs this"
)
def test_a_generated_client_has_every_operation(version: str, tmp_path: Path) -> None:
    source, client, config = tmp_path / "openapi.json", tmp_path / "client", tmp_path / "config.yml"
    source.write_bytes(DOCUMENTS[version])
    config.write_text("post_hooks: []")
    words: list[str | Path] = [
        "generate",
        "--path",
        source,
        "--meta",
        "none",
        "--output-path",
        client,
        "--config",
        config,
    ]
    done = subprocess.run([str(GENERATOR), *words], capture_output=True, text=True, check=True)
    assert "WARNING" not in done.stdout + done.stderr
    made = {path.stem for path in (client / "api").rglob("*.py")} - {"__init__"}
    assert made == {operation_id(endpoint) for endpoint in ENDPOINTS if endpoint.documented}
