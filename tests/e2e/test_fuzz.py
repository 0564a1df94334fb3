"""Requests of every shape at every route of the OpenAPI document: nothing is answered with 5xx, and each answer is one that
the document describes, to the last field.

Schemathesis makes the requests: right ones, wrong ones, and the values at the edges. The coordinator is a real one without
workers; jobs in every status are there beforehand, and a session of a plain-HTTP worker. Two things are bent, because they
would not end in time by themselves: `wait` is cut short, and output is only followed of a job that has ended. Streams of
events are read up to their first event. The WebSocket is no route of the document; its frames have tests of their own.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from stoker.api.endpoints import ENDPOINTS
from stoker.api.openapi import document
from stoker.api.schemas.query import MAX_WAIT_SEC
from tests.e2e.system import Server, System

CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
AnyCase = schemathesis.Case[Any]
AT_THE_DOOR: Final = {400, 404, 405, 415, 422}
"""An operation that only ever got these answers was not tested: all its requests were turned away before it was asked."""
EXAMPLES: Final = 10
SHORT_SECONDS: Final = 0.01
NOWHERE: Final = "http://127.0.0.1:9"
ON_TIME: Final = {"cron": "0 * * * *", "every_sec": None, "timezone": "UTC", "start_at": None, "end_at": None}
"""The times of a schedule, which no generator would guess."""
SCHEDULE: Final = {"cron": "0 * * * *", "job": {"type": "echo", "payload": 1}}

CONFIG: Final = schemathesis.Config(
    seed=1,
    projects=ProjectsConfig(
        default=ProjectConfig(
            max_stream_events=1,
            request_timeout=20,
            generation=GenerationConfig(max_examples=EXAMPLES, deterministic=True),
        )
    ),
)
SCHEMA: Final = schemathesis.openapi.from_dict(msgspec.json.decode(document(ENDPOINTS)), config=CONFIG)


class Stage:
    """A coordinator, and the ids of what it knows."""

    def __init__(self, server: Server) -> None:
        self.url = server.url
        self.met: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._server = server
        self._worker: str = server.post("/workers", {"name": "fuzzed", "threads": 4, "types": ["echo"]})["id"]
        self.ended = self._job(outcome="completed", result={"x": 1})
        failed: dict[str, Any] = {"outcome": "failed", "error": {"type": "ValueError", "message": "no"}}
        self._known: dict[str, list[str]] = {
            "/jobs": [
                self.ended,
                self._job(**failed, max_attempts=1),
                self._job(**failed),
                self._job(outcome="cancelled"),
                server.submit(delay_sec=3600)["id"],
                server.submit()["id"],
            ],
            "/workers": [self._worker],
            "/bulk": [server.post("/bulk", {"action": "cancel", "filter": {"queue": "nobody"}})["id"]],
            "/schedules": ["hourly", "often"],
        }
        server.post("/workers", {"id": "of-another-system", "endpoint": NOWHERE})
        server.http.put("/schedules/often", json=SCHEDULE).raise_for_status()

    def _job(self, *, max_attempts: int = 3, **report: Any) -> str:
        """A job that was run, and of which this was reported."""
        self._server.submit(max_attempts=max_attempts)
        (job,) = self._server.post(f"/workers/{self._worker}/lease?wait=5")["jobs"]
        named = {"id": job["id"], "claim_id": job["claim_id"], **report}
        self._server.post(f"/workers/{self._worker}/report", {"reports": [named]})
        return str(job["id"])

    def schedule(self, name: str) -> None:
        """Make this schedule unless it is there."""
        if name in self._known["/schedules"]:
            self._server.http.put(f"/schedules/{name}", json=SCHEDULE).raise_for_status()

    def known(self, path: str, id: str) -> str:
        """The id of something that is there, for most of the ids that somebody made up."""
        known = self._known[path.removeprefix("/db").partition("/{")[0]]
        return [id, *known, *known][zlib.crc32(id.encode(errors="replace")) % (2 * len(known) + 1)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with System(tmp_path_factory.mktemp("fuzzed")) as system:
        stage = Stage(system.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=600, STOKER_ENDPOINTS=NOWHERE))
        yield stage
        assert [label for label, met in stage.met.items() if met.keys() <= AT_THE_DOOR] == []


@SCHEMA.parametrize()
def test_every_answer_is_as_the_document_says(case: AnyCase, stage: Stage) -> None:
    _aim(case, stage)
    _let_it_end(case, stage)
    checks = CHECKS[1:] if case.path == "/ready" else CHECKS  # which says 503 when it has something to say
    answer = case.call_and_validate(base_url=stage.url, checks=checks)
    stage.met[case.operation.label][answer.status_code] += 1


def _aim(case: AnyCase, stage: Stage) -> None:
    """Made-up ids are of nothing; so most of them are exchanged for those of something."""
    if isinstance(id := case.path_parameters.get("id"), str):
        case.path_parameters["id"] = stage.known(case.path, id)
    if isinstance(name := case.path_parameters.get("name"), str) and case.path.startswith("/schedules"):
        case.path_parameters["name"] = stage.known("/schedules", name)
        if case.method != "PUT":  # the request before may have deleted it
            stage.schedule(case.path_parameters["name"])
        if case.method == "PUT" and isinstance(case.body, dict) and isinstance(case.body.get("job"), dict):
            case.body = {**case.body, **ON_TIME}
        if case.path.endswith("/backfill") and isinstance(case.body, dict):
            case.body = {**case.body, "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z"}
    if case.path == "/schedules/preview":
        case.query = {**case.query, **ON_TIME}
    if "job_id" in case.path_parameters:
        case.path_parameters["job_id"] = f"{stage.ended}.1"
    if case.path == "/workers/heartbeat" and isinstance(case.body, dict) and "id" in case.body:
        case.body["id"] = "of-another-system"


def _let_it_end(case: AnyCase, stage: Stage) -> None:
    if SHORT_SECONDS < _seconds(case.query.get("wait")) <= MAX_WAIT_SEC:
        case.query["wait"] = SHORT_SECONDS
    if "follow" in case.query and case.path == "/jobs/{id}/logs":
        case.path_parameters["id"] = stage.ended


def _seconds(given: object) -> float:
    try:
        return float(str(given))
    except ValueError:
        return 0.0
