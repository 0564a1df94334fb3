"""Who may call, over every route of the table: default deny."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from stoker.api.app import create_app
from stoker.api.endpoints import ENDPOINTS, Endpoint
from stoker.api.server.security import _ALLOWED_METHODS, without_port
from stoker.settings import Settings
from tests.unit.test_api_service import TOKEN, FakeService, ask

HTTP = [endpoint for endpoint in ENDPOINTS if endpoint.method != "WEBSOCKET"]
PUBLIC = {"/health", "/ready", "/", "/dashboard", "/dashboard/{path}"}
GUARDED = Settings(token=TOKEN)


def url(endpoint: Endpoint) -> str:
    return re.sub(r"\{\w+\}", "00000000-0000-7000-8000-000000000000", endpoint.path)


def send(settings: Settings, method: str, path: str, headers: list[tuple[str, str]]) -> httpx.Response:
    """One request with exactly these headers."""

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=create_app(FakeService(settings)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(run())


def is_problem(answer: httpx.Response, status: int) -> bool:
    return answer.status_code == status == answer.json()["status"] and "x-request-id" in answer.headers


@pytest.mark.parametrize("endpoint", HTTP, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_every_route_by_token(endpoint: Endpoint) -> None:
    public = endpoint.path in PUBLIC
    assert (endpoint.scope == "public") is public
    for value in (
        None,
        "Bearer wrong",
        "Bearer ",
        "Bearer",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
    ):
        headers = [] if value is None else [("Authorization", value)]
        answer = send(GUARDED, endpoint.method, url(endpoint), headers)
        if public:
            assert answer.status_code in (200, 307)
        else:
            assert is_problem(answer, 401)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert TOKEN not in answer.text
            assert "STOKER_TOKEN" in answer.json()["detail"]
    for value in (f"Bearer {TOKEN}", f"bearer {TOKEN}"):
        assert send(GUARDED, endpoint.method, url(endpoint), [("Authorization", value)]).status_code != 401


@pytest.mark.parametrize("endpoint", HTTP, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_every_route_by_host_and_origin(endpoint: Endpoint) -> None:
    for headers in (
        [("Host", "evil.example")],
        [("Host", "localhost.evil.example:8080")],
        [("Host", "127.0.0.1.evil.example")],
        [("Host", "")],
        [("Origin", "http://evil.example")],
        [("Origin", "null")],
        [("Origin", "https://localhost")],
        [("Origin", "http://localhost:9999")],
    ):
        answer = send(Settings(), endpoint.method, url(endpoint), headers)
        assert is_problem(answer, 403), headers
        assert not any(name.startswith("access-control") for name in answer.headers)
    for headers in ([], [("Origin", "http://localhost")]):
        assert send(Settings(), endpoint.method, url(endpoint), headers).status_code != 403


@pytest.mark.parametrize(
    "method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "WEBSOCKET"]
)
@pytest.mark.parametrize("path", ["/jobs", "/nothing", "/workers/connect", "/jobs/x/y/z"])
def test_nothing_outside_the_table_answers_without_a_token(method: str, path: str) -> None:
    assert is_problem(send(GUARDED, method, path, []), 401)
    answer = send(GUARDED, method, path, [("Authorization", f"Bearer {TOKEN}")])
    assert answer.status_code in (200, 400, 404, 405, 426)


@pytest.mark.parametrize(
    ("settings", "host", "allowed"),
    [
        (Settings(), "localhost", True),
        (Settings(), "LOCALHOST:8080", True),
        (Settings(), "127.0.0.1:1", True),
        (Settings(), "[::1]:8080", True),
        (Settings(), "[::2]:8080", False),
        (Settings(), "jobs.example", False),
        (Settings(host="::1"), "[::1]", True),
        (Settings(host="::1"), "jobs.example", False),
        (Settings(allowed_hosts=("jobs.example",)), "jobs.example:8080", True),
        (Settings(allowed_hosts=("jobs.example",)), "localhost", True),
        (Settings(allowed_hosts=("jobs.example:81",)), "jobs.example:81", True),
        (Settings(allowed_hosts=("jobs.example:81",)), "jobs.example:80", False),
        (Settings(host="0.0.0.0"), "anything.example", True),
        (Settings(host="0.0.0.0", allowed_hosts=("jobs.example",)), "jobs.example", True),
        (Settings(host="0.0.0.0", allowed_hosts=("jobs.example",)), "other.example", False),
    ],
    ids=str,
)
def test_hosts(settings: Settings, host: str, allowed: bool) -> None:
    for _ in range(2):  # the second time from memory
        assert send(settings, "GET", "/health", [("Host", host)]).status_code == (200 if allowed else 403)


@pytest.mark.parametrize(
    ("host", "bare"), [("a", "a"), ("a:1", "a"), ("[::1]", "[::1]"), ("[::1]:8080", "[::1]"), ("", None)]
)
def test_without_port(host: str, bare: str | None) -> None:
    assert without_port(host) == bare


@pytest.mark.parametrize(
    "host",
    [
        "localhost:80@evil.com",
        "localhost@evil.com",
        "user:secret@localhost",
        "localhost:80:80",
        "localhost:",
        "localhost:http",
        "localhost:-1",
        "localhost:+80",
        "localhost:65536",
        "localhost:٨٠",
        "localhost:80/jobs",
        "localhost/",
        "localhost?x",
        "localhost#x",
        "localhost\\evil.com",
        "localhost evil.com",
        "localhost,evil.com",
        "localhost.",
        "localhost..",
        ".localhost",
        "127.0.0.1.",
        "[::1]evil.com",
        "[::1]:80@evil.com",
        "[::1",
        "::1",
        "[]",
        "[:]",
        "[::1%25lo]",
        "[localhost]",
        "[[::1]]",
        "http://localhost",
        "local%68ost",
    ],
)
@pytest.mark.parametrize("settings", [Settings(), Settings(host="0.0.0.0")], ids=["loopback", "open"])
def test_what_is_no_host_is_refused(settings: Settings, host: str) -> None:
    header = (b"Host", host.encode())
    answer = send(settings, "GET", "/health", [header])  # type: ignore[list-item]
    assert is_problem(answer, 400)
    assert "Host" in answer.json()["detail"]


def test_a_listed_host_is_taken_as_it_was_listed() -> None:
    settings = Settings(allowed_hosts=("jobs.example.",))
    assert send(settings, "GET", "/health", [("Host", "jobs.example.")]).status_code == 200


def test_own_origin_is_the_host_with_its_port() -> None:
    host = ("Host", "localhost:8080")
    assert send(Settings(), "GET", "/jobs", [host, ("Origin", "http://localhost:8080")]).status_code == 200
    assert send(Settings(), "GET", "/jobs", [host, ("Origin", "http://localhost")]).status_code == 403


@pytest.mark.parametrize("path", ["/jobs", "/jobs/00000000-0000-0000-0000-000000000000"])
def test_a_listed_origin_may_delete(path: str) -> None:
    settings = Settings(allowed_origins=("https://jobs.example",))
    asking = [("Origin", "https://jobs.example"), ("Access-Control-Request-Method", "DELETE")]
    preflight = send(settings, "OPTIONS", path, asking)
    assert "DELETE" in preflight.headers["access-control-allow-methods"]


def test_every_method_of_the_api_is_allowed_to_listed_origins() -> None:
    methods = {endpoint.method for endpoint in ENDPOINTS} - {"WEBSOCKET"}
    assert methods | {"HEAD"} == set(_ALLOWED_METHODS.decode().split(", "))


def test_cors_only_for_listed_origins() -> None:
    settings = Settings(allowed_origins=("https://jobs.example",), token=TOKEN)
    origin = ("Origin", "https://jobs.example")
    asking = ("Access-Control-Request-Method", "POST")
    preflight = send(settings, "OPTIONS", "/jobs", [origin, asking])
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://jobs.example"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    assert "last-event-id" in preflight.headers["access-control-allow-headers"]
    answer = send(settings, "GET", "/jobs", [origin, ("Authorization", f"Bearer {TOKEN}")])
    assert answer.headers["access-control-allow-origin"] == "https://jobs.example"
    assert answer.headers["vary"] == "Origin"
    refused = send(settings, "GET", "/jobs", [origin])
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://jobs.example"
    foreign = send(settings, "OPTIONS", "/jobs", [("Origin", "https://evil.example"), asking])
    assert foreign.status_code == 403
    assert "access-control-allow-origin" not in foreign.headers
    own = send(Settings(), "OPTIONS", "/jobs", [("Origin", "http://localhost"), asking])
    assert is_problem(own, 405)


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "Content-Type", "Idempotency-Key"])
def test_headers_that_decide_may_come_only_once(name: str) -> None:
    value = "http://localhost" if name == "Origin" else "localhost"
    answer = send(Settings(), "GET", "/jobs", [(name, value), (name, value)])
    assert answer.status_code == 400
    assert name.lower() in answer.json()["detail"]


def test_405_names_what_is_allowed() -> None:
    for path, allow in {
        "/jobs": "GET, HEAD, POST",
        "/jobs/batch": "POST",
        "/jobs/x/cancel": "POST",
        "/jobs/x": "DELETE, GET, HEAD, PATCH",
    }.items():
        answer = ask(FakeService(), "PUT", path)
        assert is_problem(answer, 405)
        assert answer.headers["allow"] == allow


def test_404_is_a_problem() -> None:
    for path in ("/nope", "/jobs/", "/jobs/a/b/c", "/JOBS"):
        assert is_problem(ask(FakeService(), "GET", path), 404), path


def test_a_websocket_path_asks_for_an_upgrade() -> None:
    answer = ask(FakeService(), "GET", "/workers/connect")
    assert is_problem(answer, 426)
    assert answer.headers["upgrade"] == "websocket"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("abc-123", True),
        ("x" * 128, True),
        ("with space", True),
        ("x" * 129, False),
        ("tab\tinside", False),
        ("\x7f", False),
        ("é", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("path", ["/health", "/nope", "/jobs/x"])
def test_request_ids_are_taken_or_made(path: str, given: str, kept: bool) -> None:
    answer = ask(FakeService(), "GET", path, headers={"X-Request-ID": given.encode()})
    assert (answer.headers["x-request-id"] == given) is kept
    assert answer.headers["x-request-id"]
    if answer.status_code >= 400:
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_the_dashboard_is_public_and_holds_no_inline_code() -> None:
    page = send(GUARDED, "GET", "/dashboard", [])
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|style=", page.text)
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    parts = re.findall(r'(?:src|href)="(/dashboard/[^"]+)"', page.text)
    assert {Path(part).suffix for part in parts} == set(types)
    for part in parts:
        assert send(GUARDED, "GET", part, []).headers["content-type"].startswith(types[Path(part).suffix])
    assert send(GUARDED, "GET", "/", []).headers["location"] == "/dashboard"


def test_a_place_inside_the_dashboard_is_its_page_but_a_missing_script_is_not() -> None:
    page = send(GUARDED, "GET", "/dashboard", [])
    for path in (
        "/dashboard/",
        "/dashboard/jobs",
        "/dashboard/jobs?q=status:failed&at=7",
        "/dashboard/jobs/0192f0c1-2345-7abc-8def-0123456789ab",
    ):
        assert send(GUARDED, "GET", path, []).text == page.text
    assert page.headers["cache-control"] == "no-cache"
    assert send(GUARDED, "GET", "/dashboard/assets/gone-abc.js", []).status_code == 404
    assert send(GUARDED, "GET", "/dashboard/..%2fsettings.py", []).text == page.text


def test_assets_are_kept_for_ever_and_sent_small() -> None:
    script = re.findall(r'src="(/dashboard/assets/[^"]+\.js)"', send(GUARDED, "GET", "/dashboard", []).text)[
        0
    ]
    plain = send(GUARDED, "GET", script, [])
    small = send(GUARDED, "GET", script, [("accept-encoding", "gzip, br")])
    assert "immutable" in plain.headers["cache-control"]
    assert small.headers["content-encoding"] == "gzip"
    assert small.content == plain.content, "httpx unpacks it"
