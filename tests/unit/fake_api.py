"""A small stand-in for the coordinator's REST API, over real HTTP, for tests of the SDK and the command line.

It knows just enough to answer as documented: jobs live in a dict, ids and idempotency keys return the same job, and a
long poll waits on a condition instead of sleeping. Tests script the rest: `fail_next` breaks connections,
`answers` overrides a path. Every request is kept in `requests`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

FINAL = {"completed", "failed", "cancelled"}
NOW = "2026-01-02T03:04:05.678901Z"


class Seen(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str] = MappingProxyType({})


class FakeApi:
    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        self.requests: list[Seen] = []
        self.answers: dict[tuple[str, str], Answer | Callable[[Seen], Answer]] = {}
        self.refusals: dict[str, Answer] = {}
        """By type: jobs that are not accepted."""
        self.fail_next = 0
        self.token: str | None = None
        self.waiting = threading.Event()
        self.changed = threading.Condition()
        self.url = ""
        self.is_old = False
        """A server of a release without `POST /jobs/wait`."""
        self.wait_limit = 10_000
        self.held = 0
        """How many `POST /jobs/wait` are held now; one whose client has left counts until something happens."""
        self.held_ids = 0
        """Of the largest one."""
        self.stopping = False
        self.connections = 0
        self._born: dict[str, Any] = {}

    # --- what tests do to it

    def finish(self, job_id: str, status: str = "completed", **fields: Any) -> None:
        with self.changed:
            self.jobs[job_id].update(status=status, completed_at=NOW, **fields)
            self.changed.notify_all()

    def auto_finish(self, status: str = "completed", **fields: Any) -> None:
        """From now on jobs are born finished."""
        self._born = {"status": status, **fields}

    def stop_waiting(self) -> None:
        """Answer all that is held, as a coordinator does that stops."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    # --- what it answers

    def answer(self, seen: Seen) -> Answer:
        if self.token is not None and seen.headers.get("authorization") != f"Bearer {self.token}":
            return problem(401, "Unauthorized", "a token is needed")
        scripted = self.answers.get((seen.method, seen.path))
        if scripted is not None:
            return scripted(seen) if callable(scripted) else scripted
        head, *rest = seen.path.strip("/").split("/")
        if head == "jobs":
            return self._jobs(seen, rest)
        return problem(404, "Not Found", f"there is no {seen.path}")

    def _jobs(self, seen: Seen, rest: list[str]) -> Answer:
        match (seen.method, rest):
            case ("POST", []):
                return self._submit(seen)
            case ("POST", ["batch"]):
                return self._submit_batch(seen)
            case ("POST", ["wait"]):
                return self._wait_for_any(seen.body)
            case ("GET", []):
                return Answer(200, page(list(self.jobs.values())))
        job = self.jobs.get(rest[0])
        if job is None:
            return problem(404, "Not Found", f"there is no job {rest[0]}")
        match (seen.method, rest[1:]):
            case ("GET", []):
                self._wait(job, float(seen.query.get("wait", "0")))
                return Answer(200, job)
            case ("POST", ["cancel"]) if job["status"] in {"completed", "failed"}:
                return problem(409, "Conflict", f"job {job['id']} is {job['status']} already")
            case ("POST", ["cancel"]):
                self.finish(job["id"], "cancelled")
                return Answer(200, job)
            case ("POST", ["retry"]):
                job["status"] = "queued"
                return Answer(202, job)
        return problem(405, "Method Not Allowed", "")

    def _wait_for_any(self, body: dict[str, Any]) -> Answer:
        """As `POST /jobs/wait`, with at most `wait_limit` jobs in an answer."""
        if self.is_old:
            return problem(405, "Method Not Allowed", "this path knows DELETE, GET, not POST")
        ids = list(dict.fromkeys(body["ids"]))
        missing = [id for id in ids if id not in self.jobs]
        deadline = time.monotonic() + body.get("timeout_sec", 30)
        with self.changed:
            self.held += 1
            self.changed.notify_all()
            while not (ended := self._ended(ids)) and not missing and not self.stopping:
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self.held_ids = max(self.held_ids, len(ids))
                self.waiting.set()
                self.changed.wait(left)
            self.held -= 1
            counts = Counter(self.jobs[id]["status"] for id in ids if id in self.jobs)
        shown = ended[: min(body.get("limit", self.wait_limit), self.wait_limit)]
        pending = len(ids) - len(missing) - len(shown)
        return Answer(200, {"jobs": shown, "pending": pending, "missing": missing, "counts": counts})

    def _ended(self, ids: list[str]) -> list[dict[str, Any]]:
        return [self.jobs[id] for id in ids if id in self.jobs and self.jobs[id]["status"] in FINAL]

    def _submit(self, seen: Seen) -> Answer:
        refused = self.refusals.get(seen.body["type"])
        if refused is not None:
            return refused
        key = seen.headers.get("idempotency-key") or seen.body.get("idempotency_key")
        job = self._insert(seen.body, key)
        minimal = seen.headers.get("prefer") == "return=minimal"
        return Answer(202, {"id": job["id"]} if minimal else job)

    def _submit_batch(self, seen: Seen) -> Answer:
        """As `POST /jobs/batch`: all or none, or with `"atomic": false` each for itself."""
        minimal = seen.headers.get("prefer") == "return=minimal"
        refusals = [self.refusals.get(job["type"]) for job in seen.body["jobs"]]
        first = next((refusal for refusal in refusals if refusal is not None), None)
        if first is not None and seen.body.get("atomic", True):
            return first
        answers: list[dict[str, Any]] = []
        headers = {name: value for refusal in refusals if refusal for name, value in refusal.headers.items()}
        headers.pop("Content-Type", None)
        for spec, refusal in zip(seen.body["jobs"], refusals, strict=True):
            if refusal is not None:
                answers.append({"problem": refusal.body})
                continue
            job = self._insert(spec, spec.get("idempotency_key"))
            answers.append({"id": job["id"]} if minimal else job)
        return Answer(202, {"jobs": answers}, headers)

    def _insert(self, spec: dict[str, Any], key: str | None) -> dict[str, Any]:
        with self.changed:
            if key is not None and key in self.keys:
                return self.jobs[self.keys[key]]
            job_id = spec.get("id") or f"01890000-0000-7000-8000-{len(self.jobs):012d}"
            if key is not None:
                self.keys[key] = job_id
            if job_id not in self.jobs:
                self.jobs[job_id] = {**job_fields(job_id), **spec, **self._born}
            return self.jobs[job_id]

    def _wait(self, job: dict[str, Any], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self.changed:
            if seconds:
                self.waiting.set()
            while job["status"] not in FINAL and (left := deadline - time.monotonic()) > 0:
                self.changed.wait(left)


def job_fields(job_id: str) -> dict[str, Any]:
    return {
        "id": job_id,
        "type": "echo",
        "name": None,
        "queue": "default",
        "priority": 1,
        "status": "queued",
        "payload": None,
        "result": None,
        "error": None,
        "attempt": 0,
        "max_attempts": 4,
        "thread_demand": 1,
        "timeout_sec": None,
        "worker_id": None,
        "created_at": NOW,
        "run_at": NOW,
        "started_at": None,
        "completed_at": None,
        "a_field_of_a_later_release": True,
    }


def page(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"jobs": jobs, "total": len(jobs), "limit": 50, "offset": 0, "next_cursor": None}


def problem(status: int, title: str, detail: str, **more: Any) -> Answer:
    headers = more.pop("headers", {})
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "request_id": "req-1"}
    return Answer(status, {**body, **more}, {"Content-Type": "application/problem+json", **headers})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.api.connections += 1

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_GET  # noqa: N815 - the names that http.server looks for
    do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _handle(self) -> None:
        api = self.server.api
        seen = self._seen()
        api.requests.append(seen)
        answer = api.answer(seen)
        if api.fail_next > 0:  # the request had its effect, and the answer is lost: the hard case
            api.fail_next -= 1
            self.close_connection = True
            return
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _seen(self) -> Seen:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Seen(self.command, parts.path, query, headers, body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: FakeApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave while its answer is on the way."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def fake_api() -> Iterator[FakeApi]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.api = FakeApi()
    server.api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.api
    finally:
        server.api.stop_waiting()
        server.shutdown()
        server.server_close()
        thread.join()
