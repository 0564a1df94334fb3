"""The command line against a small API over real HTTP: what it prints, where, and how it exits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import stoker
from stoker.cli import doctor, output
from stoker.cli.exits import MEANINGS, Exit
from stoker.cli.main import app
from stoker.cli.reference import reference
from stoker.settings import Settings
from tests.unit.fake_api import NOW, Answer, FakeApi, fake_api, job_fields, page, problem

ROOT = Path(__file__).parents[2]
ERROR = {"type": "ValueError", "message": "no good", "traceback": "Traceback:\n  line 1"}
COMMANDS = [
    "up", "serve", "worker", "submit", "job", "jobs", "why", "logs", "attempts", "cancel", "retry", "dlq", "dlq list",
    "dlq replay", "dlq discard", "workers", "workers list", "workers drain", "queues", "queues list",
    "queues pause", "queues resume", "types", "stats", "version", "doctor",
    "export", "import", "migrate", "migrate up", "migrate status",
]  # fmt: skip


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STOKER_API_URL", "API_URL", "STOKER_TOKEN", "API_PORT", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with fake_api() as running:
        monkeypatch.setenv("STOKER_API_URL", running.url)
        yield running


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, args, input=stdin, prog_name="stoker")


def ok(*args: str, stdin: str | None = None) -> str:
    result = run(*args, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


# --- submit


def test_submit_prints_the_id_alone(api: FakeApi) -> None:
    printed = ok("submit", "echo", '{"a": 1}')
    assert printed == f"{next(iter(api.jobs))}\n"
    sent = api.requests[0].body
    assert sent == {"type": "echo", "payload": {"a": 1}, "id": sent["id"]}


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ('{"a": [1, 2.50]}', {"a": [1, 2.5]}),
        ('"quoted"', "quoted"),
        ("12345678901234567890123", 12345678901234567890123),
        ("-5", -5),
        ("true", True),
        ("null", None),
        ("hello world", "hello world"),
        ("grüße", "grüße"),
        ("NaN", "NaN"),
        ("3 little pigs", "3 little pigs"),
        ("2026-11-16", "2026-11-16"),
        ("[draft] hello", "[draft] hello"),
        ('"yes," she said', '"yes," she said'),
        ("12ab", "12ab"),
        ("", ""),
    ],
)
def test_payloads_are_json_or_plain_text(api: FakeApi, text: str, payload: Any) -> None:
    ok("submit", "echo", "--", text)
    assert api.requests[0].body["payload"] == payload


def test_no_payload_is_null(api: FakeApi) -> None:
    ok("submit", "echo")
    assert api.requests[0].body["payload"] is None


@pytest.mark.parametrize("text", ['{"a": }', '{"a": 1', "[1, 2,]", "[NaN]", " [draft] ", "9" * 5000])
def test_what_looks_like_json_and_is_not_is_a_usage_error(api: FakeApi, text: str) -> None:
    result = run("submit", "echo", text)
    assert result.exit_code == Exit.USAGE
    assert "not JSON" in result.stderr
    assert api.requests == []


def test_a_json_mistake_is_pointed_at(api: FakeApi) -> None:
    assert '  {"a": }\n        ^' in run("submit", "echo", '{"a": }').stderr


def test_payload_from_stdin_and_file(api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"from": "file"}')
    ok("submit", "echo", "-", stdin="[1, 2]\n")
    ok("submit", "echo", f"@{file}")
    assert [request.body["payload"] for request in api.requests] == [[1, 2], {"from": "file"}]
    assert run("submit", "echo", "-", stdin="hello").exit_code == Exit.USAGE
    assert run("submit", "echo", f"@{tmp_path}/missing").exit_code == Exit.USAGE


def test_every_option_of_submit_is_sent(api: FakeApi) -> None:
    ok(
        "submit", "work", "{}", "--priority", "0", "--queue", "q", "--name", "n", "--timeout", "1.5",
        "--threads", "2", "--run-at", "2030-01-31T12:00:00Z", "--max-attempts", "7", "--metadata", "a=1",
        "--metadata", "b=x=y", "--label", "gpu=yes", "--idempotency-key", "mine",
        "--memory-mb", "2000",
    )  # fmt: skip
    sent = api.requests[0].body
    assert sent.pop("id") in api.jobs
    assert sent == {
        "idempotency_key": "mine",
        "type": "work",
        "payload": {},
        "priority": 0,
        "queue": "q",
        "name": "n",
        "timeout_sec": 1.5,
        "thread_demand": 2,
        "memory_mb": 2000,
        "run_at": "2030-01-31T12:00:00Z",
        "max_attempts": 7,
        "metadata": {"a": "1", "b": "x=y"},
        "labels": {"gpu": "yes"},
    }
    ok("submit", "work", "--delay", "5")
    assert api.requests[1].body["delay_sec"] == 5


@pytest.mark.parametrize(
    "args",
    [
        ["--priority", "101"],
        ["--metadata", "novalue"],
        ["--run-at", "tomorrow"],
        ["--run-at", "2030-01-31T12:00:00"],
        ["--delay", "5", "--run-at", "2030-01-31T12:00:00Z"],
        ["--colour", "red"],
    ],
)
def test_wrong_options_are_usage_errors(api: FakeApi, args: list[str]) -> None:
    assert run("submit", "echo", *args).exit_code == Exit.USAGE
    assert api.requests == []


def test_wait_prints_the_result_as_json(api: FakeApi) -> None:
    api.auto_finish(result={"sum": 3})
    assert json.loads(ok("submit", "add", "--wait")) == {"sum": 3}
    assert json.loads(ok("submit", "add", "--wait", "--json"))["status"] == "completed"


def test_waiting_for_a_job_that_fails_exits_5_with_the_error_on_stderr(api: FakeApi) -> None:
    api.auto_finish("failed", error=ERROR, attempt=4)
    result = run("submit", "add", "--wait")
    assert result.exit_code == 5
    assert result.stdout == ""
    assert "failed after 4 attempts: ValueError: no good" in result.stderr
    assert result.stderr.count("\n") == 1
    result = run("submit", "add", "--wait", "--json")
    assert result.exit_code == 5
    assert json.loads(result.stdout)["error"] == ERROR


def test_waiting_for_a_job_that_is_cancelled_exits_6(api: FakeApi) -> None:
    api.auto_finish("cancelled")
    assert run("submit", "add", "--wait").exit_code == 6


def test_waiting_too_long_exits_7(api: FakeApi) -> None:
    result = run("submit", "add", "--wait-timeout", "0")
    assert result.exit_code == 7
    assert "it goes on" in result.stderr


def test_warnings_of_the_server_go_to_stderr(api: FakeApi) -> None:
    api.answers["POST", "/jobs"] = Answer(
        202, {**job_fields("id-1"), "warnings": ["no live worker serves x"]}
    )
    result = run("submit", "x")
    assert result.stdout == "id-1\n"
    assert result.stderr == "warning: no live worker serves x\n"


# --- reading


def test_job_shows_the_job_its_error_and_attempts(api: FakeApi) -> None:
    ok("submit", "echo")
    (job_id,) = api.jobs
    attempt = {"attempt": 1, "outcome": "failed", "worker_id": "w1", "retry_delay_sec": 2.04, "error": ERROR}
    api.finish(job_id, "failed", error=ERROR, attempts=[attempt])
    printed = ok("job", job_id)
    assert "ValueError: no good" in printed
    assert "  line 1" in printed
    assert "2.0s" in printed
    assert json.loads(ok("job", job_id, "--json"))["attempts"] == [attempt]
    assert run("job", job_id, "--wait").exit_code == Exit.JOB_FAILED


def test_jobs_lists_and_filters(api: FakeApi) -> None:
    ok("submit", "echo", "--name", "[bold]x[/bold]\u202e")
    printed = run(
        "jobs", "--status", "queued", "--type", "echo", "--queue", "default", "--limit", "5", "--offset", "2"
    )
    assert printed.exit_code == 0
    assert next(iter(api.jobs)) in printed.stdout
    assert "[bold]x[/bold]\\u202e" in printed.stdout
    assert "\x1b" not in printed.stdout
    assert printed.stderr == "1 shown, 1 in total\n"
    query = {
        "status": "queued",
        "type": "echo",
        "queue": "default",
        "limit": "5",
        "offset": "2",
        "summary": "1",
    }
    assert api.requests[-1].query == query
    assert json.loads(ok("jobs", "--json"))["total"] == 1
    assert api.requests[-1].query == {"limit": "50", "offset": "0"}
    ok("jobs", "--cursor", "abc")
    assert api.requests[-1].query == {"limit": "50", "cursor": "abc", "summary": "1"}
    ok("jobs", "--since", "10m", "--until", "5m", "--worker", "w", "--text", "im")
    asked = {"created_after": "10m", "created_before": "5m", "worker": "w", "text": "im"}
    assert asked.items() <= api.requests[-1].query.items()


def test_off_a_terminal_nothing_is_cut(api: FakeApi) -> None:
    ok("submit", "echo", "--name", "n" * 300)
    assert "n" * 300 in ok("jobs")


def test_why_says_what_stands_in_the_way_and_what_to_do(api: FakeApi) -> None:
    answer = {
        "code": "queue_paused",
        "summary": "The queue mail is paused.",
        "details": ["It was paused by hand."],
        "blockers": [{"kind": "queue", "id": "mail", "text": "paused since 5 min"}],
        "estimate_sec": 90.0,
        "try": ["stoker queues resume mail"],
    }
    api.answers["GET", "/jobs/j-1/why"] = Answer(200, answer)
    assert ok("why", "j-1").splitlines() == [
        "The queue mail is paused.",
        "It was paused by hand.",
        "It should start in about 2m.",
        "  - queue mail: paused since 5 min",
        "  try: stoker queues resume mail",
    ]
    assert json.loads(ok("why", "j-1", "--json")) == answer


def test_queues_are_paused_and_resumed_by_name(api: FakeApi) -> None:
    queue = {"queue": "a/b", "queued": 12, "running": 3, "paused": True}
    api.answers["POST", "/queues/a%2Fb/pause"] = Answer(200, queue)
    api.answers["POST", "/queues/a%2Fb/resume"] = Answer(200, {**queue, "paused": False})
    api.answers["GET", "/queues"] = Answer(200, {"queues": [{"name": "a/b"}]})
    api.answers["GET", "/workers"] = Answer(200, {"workers": []})
    assert ok("queues", "pause", "a/b") == "a/b  paused, 12 queued, 3 running\n"
    assert ok("queues", "resume", "a/b") == "a/b  not paused, 12 queued, 3 running\n"
    assert json.loads(ok("queues", "pause", "a/b", "--json")) == queue


def test_queues_stats_and_workers(api: FakeApi) -> None:
    queues = {"queues": [{"name": "default", "queued": 12, "running": 3, "paused": True}]}
    stats = {
        "queue_depth": 12,
        "workers": 2,
        "jobs_by_status": {"queued": 12},
        "success_rate": 0.5,
        "uptime_sec": 7200.5,
    }
    worker = {"id": "w-1", "name": "one", "status": "active", "threads": 4, "threads_used": 1, "queues": [],
              "labels": {"gpu": "yes"}, "last_heartbeat_at": NOW}  # fmt: skip
    api.answers["GET", "/queues"] = Answer(200, queues)
    api.answers["GET", "/stats"] = Answer(200, stats)
    api.answers["GET", "/workers"] = Answer(200, {"workers": [worker]})
    api.answers["POST", "/workers/w-1/drain"] = Answer(202, {**worker, "status": "draining"})
    assert "default" in ok("queues")
    assert json.loads(ok("queues", "--json")) == queues
    assert "50.0%" in ok("stats")
    assert "2h" in ok("stats")
    assert json.loads(ok("stats", "--json")) == stats
    assert "gpu=yes" in ok("workers")
    assert json.loads(ok("workers", "--json")) == json.loads(ok("workers", "list", "--json"))
    assert "draining" in ok("workers", "drain", "w-1")


def on_terminal(columns: int, *args: str) -> list[str]:
    """The lines that a terminal of this width shows."""
    env = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(columns)}
    result = CliRunner(env=env).invoke(app, args, prog_name="stoker")
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in re.sub("\x1b\\[[0-9;]*m", "", result.stdout).splitlines()]


WIDE = ["ID", "TYPE", "NAME", "QUEUE", "PRIORITY", "STATUS", "ATTEMPT", "CREATED"]


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (120, WIDE),
        (80, ["ID", "TYPE", "NAME", "STATUS", "CREATED"]),
        (70, ["ID", "TYPE", "STATUS", "CREATED"]),
        (60, ["ID", "TYPE", "STATUS"]),
        (50, ["ID", "TYPE", "STATUS"]),
        (40, ["ID", "TYPE", "STATUS"]),
    ],
)
def test_a_list_of_jobs_has_the_columns_that_fit_and_breaks_no_word(
    api: FakeApi, width: int, columns: list[str]
) -> None:
    ok("submit", "sleep")
    (id,) = api.jobs
    api.finish(id, "cancelled")
    head, _, row = on_terminal(width, "jobs")
    assert head.split() == columns
    assert max(len(head), len(row)) <= width
    shown, type, *rest = row.split()
    assert type == "sleep"
    assert "cancelled" in rest
    if shown != id:
        assert width < 60
        assert id.startswith(shown.removesuffix("…"))
        assert len(shown) >= 20


def test_a_long_name_is_cut_before_a_column_is_left_out(api: FakeApi) -> None:
    ok("submit", "sleep", "--name", "n" * 100)
    head, _, row = on_terminal(120, "jobs")
    assert head.split() == WIDE
    assert re.search("nnn…  ", row)


def test_off_a_terminal_nothing_is_left_out_or_cut(api: FakeApi) -> None:
    ok("submit", "sleep", "--name", "n" * 100)
    head, _, row = ok("jobs").splitlines()
    assert head.split() == WIDE
    assert "n" * 100 in row


def test_stats_are_for_people(api: FakeApi) -> None:
    decision = {"action": "stay", "workers": 2, "wanted": 2, "queue_depth": 0, "reason": "0 jobs wait"}
    stats = {
        "queue_depth": 0,
        "success_rate": None,
        "uptime_sec": 61.0,
        "pending_thread_seconds": 1.6e-05,
        "autoscaler": {"mode": "recommend", "min_workers": 1, "max_workers": 4, "decision": decision},
    }
    api.answers["GET", "/stats"] = Answer(200, stats)
    printed = ok("stats")
    rows = dict(line.split("  ", 1) for line in printed.splitlines())
    assert {name: value.strip() for name, value in rows.items()} == {
        "queue_depth": "0",
        "pending_thread_time": "<1ms",
        "uptime": "1m",
        "autoscaler": "recommend, 1 to 4 workers",
        "autoscaler says": "stay, 2 workers: 0 jobs wait",
    }
    decision.update(action="up", wanted=3)
    assert "up, from 2 to 3 workers: 0 jobs wait" in ok("stats")
    assert json.loads(ok("stats", "--json")) == stats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (1.6e-05, "<1ms"), (0.25, "250ms"), (3.44, "3.4s"), (90, "2m"), (7200.0, "2h")],
)
def test_durations_have_units(seconds: float, text: str) -> None:
    assert output.duration(seconds) == text


# --- changing


def test_cancel_and_retry_many_and_tell_of_those_refused(api: FakeApi) -> None:
    for _ in range(3):
        ok("submit", "echo")
    first, second, third = api.jobs
    api.finish(second)
    result = run("cancel", first, second, third)
    assert result.exit_code == Exit.REFUSED
    assert result.stdout == f"{first}  cancelled\n{third}  cancelled\n"
    assert "completed already" in result.stderr
    assert json.loads(ok("retry", first, "--json"))["jobs"][0]["status"] == "queued"


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (["id-1", "id-2"], {"ids": ["id-1", "id-2"]}),
        (["--queue", "q", "--type", "t"], {"filter": {"queue": "q", "type": "t"}}),
        (["--all"], {"all": True}),
    ],
)
def test_dead_letters_are_chosen_in_one_of_three_ways(
    api: FakeApi, args: list[str], body: dict[str, Any]
) -> None:
    api.answers["POST", "/dlq/replay"] = api.answers["POST", "/dlq/discard"] = Answer(200, {"count": 2})
    assert ok("dlq", "replay", *args) == "2 queued again\n"
    assert ok("dlq", "discard", *args, "--yes") == "2 discarded\n"
    assert [request.body for request in api.requests] == [body, body]


@pytest.mark.parametrize(
    ("count", "args", "told"),
    [
        (0, ["id-1"], "warning: none of them is a dead letter\n"),
        (1, ["id-1", "id-2"], "warning: the others are no dead letters\n"),
        (1, ["id-1", "id-1"], ""),
        (0, ["--all"], ""),
    ],
)
def test_ids_that_are_no_dead_letters_are_told(api: FakeApi, count: int, args: list[str], told: str) -> None:
    api.answers["POST", "/dlq/replay"] = api.answers["POST", "/dlq/discard"] = Answer(200, {"count": count})
    for command in (["replay"], ["discard", "--yes"]):
        result = run("dlq", *command, *args)
        assert (result.exit_code, result.stderr) == (0, told)


@pytest.mark.parametrize("args", [[], ["id-1", "--all"], ["--queue", "q", "--all"]])
def test_an_unclear_choice_of_dead_letters_is_a_usage_error(api: FakeApi, args: list[str]) -> None:
    assert run("dlq", "replay", *args).exit_code == Exit.USAGE
    assert run("dlq", "discard", *args, "--yes").exit_code == Exit.USAGE
    assert api.requests == []


def test_discarding_many_without_anyone_to_ask_needs_yes(api: FakeApi) -> None:
    result = run("dlq", "discard", "--all")
    assert result.exit_code == Exit.USAGE
    assert "--yes" in result.stderr


def test_dlq_alone_lists(api: FakeApi) -> None:
    dead = {**job_fields("id-1"), "status": "failed", "error": ERROR}
    api.answers["GET", "/dlq"] = Answer(200, page([dead]))
    assert "ValueError: no good" in ok("dlq")
    assert json.loads(ok("dlq", "--json")) == json.loads(ok("dlq", "list", "--json")) == page([dead])


# --- errors


def test_a_refusal_exits_4_with_one_line(api: FakeApi) -> None:
    result = run("job", "nope")
    assert result.exit_code == 4
    assert result.stderr == "error: 404 there is no job nope [request req-1]\n"


def test_a_failing_server_exits_1(api: FakeApi) -> None:
    api.answers["GET", "/stats"] = problem(500, "Internal", "oops")
    assert run("stats").exit_code == 1


def test_nothing_listening_exits_3() -> None:
    with fake_api() as gone:
        url = gone.url
    result = run("stats", "--url", url)
    assert result.exit_code == 3
    assert f"error: cannot reach Stoker at {url}" in result.stderr


def test_the_token_is_sent(api: FakeApi) -> None:
    api.token = "a-token-that-is-long-enough"
    assert run("submit", "echo").exit_code == Exit.REFUSED
    assert run("submit", "echo", "--token", api.token).exit_code == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["up", "--workers", "-1"], "STOKER_WORKERS=-1 (from the command line): must be"),
        (["serve", "--host", "0.0.0.0"], "a token is needed"),
        (["worker", "--url", "nonsense"], "must be addresses such as"),
        (["worker", "--app", "tasks"], "must be MODULE:NAME"),
        (["stats", "--url", "nonsense"], "must be an address such as"),
    ],
)
def test_wrong_settings_exit_2_and_say_why(args: list[str], says: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert says in result.stderr


@pytest.mark.parametrize("option", ["--delay", "--timeout", "--wait-timeout"])
@pytest.mark.parametrize("seconds", ["nan", "inf"])
def test_a_number_of_seconds_is_a_number(api: FakeApi, option: str, seconds: str) -> None:
    result = run("submit", "echo", option, seconds)
    assert result.exit_code == Exit.USAGE
    assert f"Invalid value for '{option}'" in result.stderr
    assert api.requests == []


@pytest.mark.parametrize("command", ["upper=tr 'a-z", "upper", "=tr", "upper= "])
def test_a_command_that_is_no_argv_is_a_mistake_of_the_command_line(command: str) -> None:
    result = run("worker", "--command", command)
    assert result.exit_code == Exit.USAGE
    assert "--command" in result.stderr
    assert command in result.stderr


def test_settings_that_disagree_are_all_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIN_WORKERS", "5")
    monkeypatch.setenv("MAX_WORKERS", "2")
    monkeypatch.setenv("STOKER_PLACEMENT", "chance")
    result = run("up")
    assert result.exit_code == Exit.USAGE
    assert "MIN_WORKERS=5 and MAX_WORKERS=2 disagree" in result.stderr
    assert "STOKER_PLACEMENT=chance" in result.stderr


# --- the rest


def test_version() -> None:
    assert ok("version").startswith(f"stoker {stoker.__version__} ")
    assert ok("--version").startswith(f"stoker {stoker.__version__} ")
    assert json.loads(ok("version", "--json"))["stoker"] == stoker.__version__


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    printed = ok(*command.split(), "--help")
    assert f"Examples:\n    stoker {command}" in printed or "Examples:\n" in printed


def test_the_exit_codes_are_as_promised() -> None:
    assert [(code.name, code.value) for code in Exit] == [
        ("OK", 0),
        ("ERROR", 1),
        ("USAGE", 2),
        ("UNREACHABLE", 3),
        ("REFUSED", 4),
        ("JOB_FAILED", 5),
        ("JOB_CANCELLED", 6),
        ("TIMED_OUT", 7),
        ("PENDING", 8),
        ("FORCED", 130),
    ]


def test_the_exit_codes_are_in_the_help() -> None:
    printed = ok("--help")
    for code in Exit:
        assert f"\n    {code.value}  {MEANINGS[code].replace('`', '')}" in printed


def test_completion_is_offered() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stoker.cli.main"],
        env={**os.environ, "_STOKER_COMPLETE": "complete_bash", "COMP_WORDS": "stoker dl", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stdout.split() == ["dlq"]


def test_the_reference_page_is_not_stale() -> None:
    stored = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert stored == reference(), "run: python -m stoker.cli.reference > docs/reference/cli.md"
    for command in COMMANDS:
        assert f"## stoker {command}\n" in stored


def test_ages() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert output.age((now - timedelta(seconds=12)).isoformat(), now) == "12s"
    assert output.age((now - timedelta(hours=3)).isoformat(), now) == "3h"
    assert output.age((now + timedelta(minutes=5)).isoformat(), now) == "in 5m"
    assert output.age(None, now) == "-"
    assert output.age("whenever", now) == "whenever"


# --- doctor


def healthy(api: FakeApi) -> None:
    api.answers["GET", "/health"] = Answer(200, {"status": "ok"})
    api.answers["GET", "/ready"] = Answer(200, {"ready": True, "reasons": []})
    api.answers["GET", "/stats"] = Answer(200, {})


def states(*args: str) -> dict[str, str]:
    findings = json.loads(run("doctor", "--json", *args).stdout)["findings"]
    return {finding["check"]: finding["state"] for finding in findings}


def test_doctor_finds_nothing_wrong_with_a_healthy_system(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_NATIVE_RUNNER", "off")  # whether the runner was built is not the question here
    healthy(api)
    assert set(states().values()) == {"ok"}
    printed = ok("doctor")
    assert "agrees with the coordinator" in printed
    assert "fix:" not in printed


def test_doctor_tells_which_runner_is_active(tmp_path: Path) -> None:
    binary = tmp_path / "runner"
    assert doctor.check_runner(Settings(), binary).detail == f"native: {binary}"
    stand_in = doctor.check_runner(Settings(), None)
    assert (stand_in.state, "Python stands in" in stand_in.detail) == ("warning", True)
    assert doctor.check_runner(Settings(execution_binary=str(binary)), None).state == "broken"
    binary.touch(0o755)
    assert doctor.check_runner(Settings(execution_binary=str(binary)), None).state == "ok"


def test_doctor_says_what_is_broken_and_how_to_fix_it(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy(api)
    api.answers["GET", "/ready"] = Answer(503, {"ready": False, "reasons": ["no worker is registered"]})
    api.answers["GET", "/stats"] = problem(401, "Unauthorized", "no")
    monkeypatch.setenv("STOKER_PLACEMENT", "chance")
    result = run("doctor")
    assert result.exit_code == Exit.ERROR
    assert "no worker is registered\n  fix: start a worker" in result.stdout
    found = states()
    assert (found["settings"], found["ready"], found["token"]) == ("broken", "broken", "broken")


def test_doctor_without_a_coordinator() -> None:
    with fake_api() as gone:
        url = gone.url
    result = run("doctor", "--url", url)
    assert result.exit_code == Exit.ERROR
    assert "fix: start one with `stoker up`" in result.stdout


def test_what_doctor_makes_of_its_measurements(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert doctor.check_python((3, 10, 1)).state == "broken"
    assert doctor.judge_space(tmp_path, 10).state == "broken"
    assert doctor.judge_space(tmp_path, 500 * 1024**2).state == "warning"
    assert doctor.judge_clock("Thu, 01 Jan 2026 12:00:03 GMT", now).state == "ok"
    assert doctor.judge_clock("Thu, 01 Jan 2026 12:01:00 GMT", now).state == "warning"
    assert doctor.judge_clock("gibberish", now).state == "warning"
    assert doctor.judge_clock(None, now).state == "warning"
    assert doctor.judge_health("http://x", 502).state == "broken"
    assert doctor.judge_ready(503, b"<html>").state == "broken"
    missing = tmp_path / "not" / "yet" / "there.db"
    assert {finding.state for finding in doctor.check_data_folder(missing)} <= {"ok", "warning"}
    assert doctor.existing_parent(missing.parent) == tmp_path


# --- bulk ------------------------------------------------------------------------------------------------


def a_bulk(**fields: Any) -> dict[str, Any]:
    plain = {"id": "0198c1e2-7b0e-7c61-b6a5-0d3f6b8f2a11", "action": "cancel", "filter": {"status": "queued"}}
    numbers = {"status": "running", "total": 10_000, "total_capped": True, "done": 0, "changed": 0}
    return {**plain, **numbers, "created_at": "2026-01-02T03:04:05Z", "finished_at": None, **fields}


@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_where_starts_a_bulk_operation_and_follows_it(api: FakeApi, action: str) -> None:
    bulk = a_bulk(action=action)
    looks = iter(
        [a_bulk(action=action, done=250), a_bulk(action=action, status="done", done=300, changed=299)]
    )
    api.answers["POST", "/bulk"] = Answer(202, bulk)
    api.answers["GET", f"/bulk/{bulk['id']}"] = lambda _: Answer(200, next(looks))
    printed = ok(action, "--where", "status=queued,running name='a b' priority=2")
    assert printed == f"{bulk['id']}  done: 299 of 300 changed\n"
    filters = {"status": "queued,running", "name": "a b", "priority": 2}
    assert api.requests[0].body == {"action": action, "filter": filters}


@pytest.mark.parametrize("where", ["", "queued", "=x", "status=a status=b", "name='open"])
def test_a_filter_that_says_nothing_is_refused(api: FakeApi, where: str) -> None:
    assert run("cancel", "--where", where).exit_code == 2
    assert api.requests == []


def test_ids_and_where_exclude_each_other(api: FakeApi) -> None:
    assert run("cancel").exit_code == 2
    assert run("cancel", "some-id", "--where", "type=a").exit_code == 2
    assert api.requests == []


def test_bulk_lists_and_stops(api: FakeApi) -> None:
    bulk = a_bulk(status="stopped")
    api.answers["GET", "/bulk"] = Answer(200, {"bulk": [bulk]})
    api.answers["POST", f"/bulk/{bulk['id']}/stop"] = Answer(200, bulk)
    listed = ok("bulk")
    assert "status=queued" in listed
    assert "10000+" in listed
    assert ok("bulk", "stop", bulk["id"]) == f"{bulk['id']}  stopped: 0 of 0 changed\n"
    assert json.loads(ok("bulk", "--json")) == {"bulk": [bulk]}
