"""The command line for people: progress, Ctrl-C, counts before bulk changes, hints that can be typed, completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stoker.cli import completion, hints, output, waiting
from stoker.cli.exits import Exit
from stoker.cli.main import app
from stoker.client import submission
from stoker.client.errors import ResultTimeout
from stoker.client.requests import JobInfo, ProgressInfo, WhyInfo, wait_for_end
from stoker.client.transport import Transport
from tests.unit.fake_api import Answer, FakeApi, Seen, fake_api, job_fields, page, problem

WHY = {
    "code": "no_worker_for_type",
    "summary": "No worker can run jobs of the type add.",
    "try": ["stoker worker"],
}
ID = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    for name in ("API_URL", "STOKER_TOKEN", "API_PORT"):
        monkeypatch.delenv(name, raising=False)
    with fake_api() as running:
        monkeypatch.setenv("STOKER_API_URL", running.url)
        monkeypatch.setattr(submission, "new_id", lambda: ID)
        yield running


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, args, input=stdin, prog_name="stoker")


# --- waiting


def test_while_waiting_it_says_why_the_job_does_not_run(
    api: FakeApi, capfd: pytest.CaptureFixture[str]
) -> None:
    def why(_: Seen) -> Answer:
        api.finish(ID, result=5)
        return Answer(200, WHY)

    api.answers["GET", f"/jobs/{ID}/why"] = why
    result = run("submit", "add", "--wait")
    assert (result.exit_code, result.stdout) == (0, "5\n")
    assert "job 00000000  No worker can run jobs of the type add" in capfd.readouterr().err + result.stderr


@pytest.mark.parametrize("warned", [False, True])
def test_on_a_terminal_it_says_once_that_no_worker_can_run_the_job(
    capfd: pytest.CaptureFixture[str], warned: bool
) -> None:
    screen = waiting.Screen(ID, live=True, url="http://x:1", warned=warned)
    job = JobInfo(id=ID, type="slep", status="queued")
    summary = "No worker can run jobs of the type slep; did you mean sleep?"
    for _ in range(3):
        screen.show(job, WhyInfo(code="no_worker_for_type", summary=summary))
    screen.show(job, WhyInfo(code="about_to_start", summary="A worker has room."))
    said = capfd.readouterr().err
    assert said.count(f"  take it back: stoker cancel {ID} --url http://x:1\n") == 1
    assert said.count("  The job waits until a worker can. Ctrl-C stops waiting for it.\n") == 1
    assert said.startswith(f"{summary}\n") != warned


def test_ctrl_c_names_the_job_and_says_how_to_go_on(api: FakeApi, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted(self: Transport, conversation: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transport, "run", interrupted)
        result = run("submit", "add", "--wait", "--url", api.url)
    assert result.exit_code == Exit.FORCED
    said = capfd.readouterr().err + result.stderr
    assert f"job {ID} goes on without you" in said
    assert f"stoker job {ID} --wait --url {api.url}" in said
    assert f"stoker cancel {ID} --url {api.url}" in said


def test_a_timeout_says_why(api: FakeApi) -> None:
    api.answers["GET", f"/jobs/{ID}/why"] = Answer(200, WHY)
    result = run("submit", "add", "--wait-timeout", "0.01")
    assert result.exit_code == Exit.TIMED_OUT
    assert "it goes on. No worker can run jobs of the type add." in result.stderr


def test_a_timeout_of_the_sdk_says_why_and_does_without_where_the_server_cannot(api: FakeApi) -> None:
    run("submit", "add")
    with Transport(api.url) as transport, pytest.raises(ResultTimeout) as plain:
        transport.run(wait_for_end(ID, 0.01))
    assert plain.value.why is None
    assert str(plain.value).endswith("it goes on.")
    api.answers["GET", f"/jobs/{ID}/why"] = Answer(200, WHY)
    with Transport(api.url) as transport, pytest.raises(ResultTimeout, match="No worker can run") as told:
        transport.run(wait_for_end(ID, 0.01))
    assert told.value.why == WHY["summary"]


@pytest.mark.parametrize(
    ("fields", "why", "text"),
    [
        ({"status": "queued"}, None, "queued"),
        ({"status": "queued"}, "The queue mail is paused.", "The queue mail is paused"),
        (
            {
                "status": "scheduled",
                "attempt": 1,
                "max_attempts": 4,
                "run_at": datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC),
            },
            None,
            "retrying, attempt 2 of 4, in 5s",
        ),
        (
            {
                "status": "running",
                "attempt": 2,
                "max_attempts": 4,
                "progress": ProgressInfo(done=3, total=7, percent=42.9, message="a.png"),
            },
            "The job runs on worker-1 since 3 s.",
            "The job runs on worker-1 since 3 s, attempt 2 of 4, 43%, 3 of 7 a.png",
        ),
    ],
)
def test_what_a_job_does_is_told_in_words(fields: dict[str, Any], why: str | None, text: str) -> None:
    job = JobInfo(id=ID, type="add", **fields)
    info = None if why is None else WhyInfo(summary=why)
    assert waiting.told(job, info, datetime(2026, 1, 1, tzinfo=UTC)) == text


# --- ids


def test_an_id_that_fits_several_jobs_lists_them(api: FakeApi) -> None:
    matches = [{"field": ID, "message": "echo, failed, created 2026-01-02T03:04:05Z"}]
    refused = problem(409, "The shortened id fits several", "2 jobs have an id with 01890000", errors=matches)
    refused.body["type"] = "urn:stoker:problem:ambiguous-id"
    api.answers["GET", "/jobs/01890000"] = refused
    api.answers["POST", "/jobs/01890000/cancel"] = refused
    for command in ("job", "cancel"):
        result = run(command, "01890000")
        assert result.exit_code == Exit.REFUSED
        assert result.stderr == (
            f"error: 2 jobs have an id with 01890000\n  {ID}  echo, failed, created 2026-01-02T03:04:05Z\n"
        )


# --- queues and bulk changes


def test_pausing_a_queue_that_nobody_knows_is_a_warning(api: FakeApi) -> None:
    api.answers["GET", "/queues"] = Answer(200, {"queues": [{"name": "mail"}]})
    api.answers["GET", "/workers"] = Answer(200, {"workers": [{"queues": ["bulk"]}, {"queues": None}]})
    for queue in ("mali", "mail", "bulk", "default"):
        api.answers["POST", f"/queues/{queue}/pause"] = Answer(200, {"queue": queue, "paused": True})
    result = run("queues", "pause", "mali", "--url", api.url)
    assert result.exit_code == 0
    assert "there is no queue mali yet" in result.stderr
    assert "Did you mean mail?" in result.stderr
    assert f"stoker queues resume mali --url {api.url}" in result.stderr
    for known in ("mail", "bulk", "default"):
        assert run("queues", "pause", known).stderr == ""


class Tty:
    """A stdin at which somebody sits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
        self.asked: list[str] = []
        for module in ("stoker.cli.bulk_commands", "stoker.cli.dead_letter_commands"):
            monkeypatch.setattr(f"{module}.sys", _Sys)
        monkeypatch.setattr("typer.confirm", self._confirm)

    def _confirm(self, question: str, abort: bool) -> None:
        self.asked.append(question)


class _Sys:
    class stdin:  # noqa: N801
        @staticmethod
        def isatty() -> bool:
            return True

    stderr = sys.stderr


@pytest.mark.parametrize(
    ("action", "where", "status", "total", "capped", "question"),
    [
        (
            "cancel",
            "queue=bulk",
            "queued,scheduled,blocked,running",
            1200,
            False,
            "Cancel 1,200 jobs where queue=bulk?",
        ),
        ("cancel", "status=queued,failed", "queued", 1, False, "Cancel 1 job where status=queued,failed?"),
        ("retry", "type=a", "failed,cancelled", 10_000, True, "Retry more than 10,000 jobs where type=a?"),
        ("retry", "q=type:a", None, 3, False, "Retry 3 jobs where q=type:a?"),
        ("retry", "status=queued", "", 0, False, "Retry 0 jobs where status=queued?"),
    ],
)
def test_a_bulk_change_asks_with_the_number_of_jobs(
    api: FakeApi,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    where: str,
    status: str | None,
    total: int,
    capped: bool,
    question: str,
) -> None:
    terminal = Tty(monkeypatch, "y")
    api.answers["GET", "/jobs"] = Answer(200, {**page([]), "total": total, "total_capped": capped})
    bulk = {"id": ID, "status": "done", "total": total, "done": total, "changed": total}
    api.answers["POST", "/bulk"] = Answer(202, bulk)
    assert run(action, "--where", where).exit_code == 0
    assert terminal.asked == [question]
    looked = [seen for seen in api.requests if seen.path == "/jobs"]
    assert [seen.query.get("status") for seen in looked] == ([] if status == "" else [status])


def test_discarding_dead_letters_asks_with_their_number(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Tty(monkeypatch, "y")
    api.answers["GET", "/dlq"] = Answer(200, {**page([]), "total": 12})
    api.answers["POST", "/dlq/discard"] = Answer(200, {"count": 12})
    assert run("dlq", "discard", "--type", "a").exit_code == 0
    assert run("dlq", "discard", "--all", "--limit", "1").exit_code == 0
    assert terminal.asked == ["Discard 12 dead letters?", "Discard 1 dead letter?"]


# --- hints


def test_a_hint_names_the_program_as_it_was_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called = tmp_path / "bin" / "stoker"
    called.parent.mkdir()
    called.write_text("#!/bin/sh\n")
    called.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", [str(called)])
    assert hints.command("jobs") == f"{called} jobs"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/stoker"])
    assert hints.command("jobs", "http://x:1") == "bin/stoker jobs --url http://x:1"
    assert hints.localized("stoker retry ID", None) == "bin/stoker retry ID"
    assert hints.named("is it running (`stoker up`)?") == "is it running (`bin/stoker up`)?"
    monkeypatch.setenv("PATH", str(called.parent))
    assert hints.command("jobs") == "stoker jobs"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "stoker" / "__main__.py")])
    assert hints.command("jobs") == f"{sys.executable} -m stoker jobs"


def test_why_suggests_commands_for_the_same_address(api: FakeApi) -> None:
    api.answers["GET", f"/jobs/{ID}/why"] = Answer(200, WHY)
    assert f"  try: stoker worker --url {api.url}\n" in run("why", ID, "--url", api.url).stdout
    assert "  try: stoker worker\n" in run("why", ID).stdout


# --- words


@pytest.mark.parametrize(
    ("status", "attempt", "words"),
    [
        ("running", 2, "running"),
        ("scheduled", 0, "scheduled, in 5s"),
        ("scheduled", 1, "retrying, attempt 2 of 4, in 5s"),
    ],
)
def test_a_job_that_backs_off_is_retrying(status: str, attempt: int, words: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert output.status_words(status, attempt, 4, "2026-01-01T00:00:05Z", now) == words


def test_lists_and_attempts_use_the_words_for_people(api: FakeApi) -> None:
    attempt = {"attempt": 1, "outcome": "invalid", "error": {"type": "invalid_payload", "message": "no"}}
    job = {**job_fields(ID), "status": "scheduled", "attempt": 1, "attempts": [attempt]}
    api.answers["GET", "/jobs"] = Answer(200, page([job]))
    api.answers["GET", f"/jobs/{ID}"] = Answer(200, job)
    listed = run("jobs")
    assert "retrying" in listed.stdout
    assert "1 of 4" in listed.stdout
    assert listed.stderr == "1 shown, 1 in total\n"
    shown = run("job", ID).stdout
    assert "retrying, attempt 2 of 4" in shown
    assert "failed, not retried" in shown


def test_job_shows_what_became_of_it_first_and_leaves_out_what_says_nothing(api: FakeApi) -> None:
    job = {
        **job_fields(ID), "status": "failed", "attempt": 3, "max_attempts": 3, "error": {"type": "E", "message": "no"},
        "payload": {"n": 1}, "labels": {}, "metadata": {"customer": "42"}, "claim_id": 3, "crashes": 0,
        "on_oversize": "degrade", "threads_granted": 1, "queue_time_sec": 0.003, "execution_time_sec": 2.5,
        "total_time_sec": 5.0, "cpu_seconds": 0.5, "peak_memory_kb": 20480, "timeout_sec": 30.0, "unique_key": "one",
    }  # fmt: skip
    api.answers["GET", f"/jobs/{ID}"] = Answer(200, job)
    groups = [group.splitlines() for group in run("job", ID).stdout.split("\n\n")]
    went, runs, when, more = ([line.split(maxsplit=1) for line in group] for group in groups)
    assert went == [
        ["id", ID], ["type", "echo"], ["status", "failed, attempt 3 of 3"], ["error", "E: no"], ["payload", '{"n": 1}'],
    ]  # fmt: skip
    assert runs == [
        ["queue", "default"], ["priority", "normal"], ["threads", "1"], ["timeout", "30.0s"], ["metadata", "customer=42"],
    ]  # fmt: skip
    assert [name for name, _ in when] == ["created", "took", "used"]
    assert when[1:] == [
        ["took", "waited 3ms, ran 2.5s, in total 5.0s"],
        ["used", "500ms of CPU, 20 MiB at most"],
    ]
    assert more == [["a_field_of_a_later_release", "True"], ["unique_key", "one"]]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"status": "completed", "attempt": 1}, "result    null"),
        ({"status": "completed", "attempt": 1, "result": []}, "result []"),
        ({"payload": {}}, "payload {}"),
        (
            {
                "attempts": [
                    {
                        "attempt": 1,
                        "started_at": "2026-01-02T03:04:05Z",
                        "finished_at": "2026-01-02T03:04:07.5Z",
                    }
                ]
            },
            "2.5s",
        ),
        (
            {"status": "running", "attempt": 1, "cancel_requested_at": "2026-01-02T03:04:05Z"},
            "status  running, attempt 1 of 4, to be stopped",
        ),
        ({"status": "failed", "attempt": 4, "discarded_at": "2026-01-02T03:04:05Z"}, "discarded"),
        ({"thread_demand": 4, "threads_granted": 1}, "threads   1 of 4 wanted"),
        (
            {"progress": {"done": 3.0, "total": 7.0, "percent": 42.9, "message": "a.png"}},
            "progress  43%, 3 of 7 a.png",
        ),
        ({"progress": {"done": 3.0, "total": None, "percent": None, "message": None}}, "progress  3"),
        ({"memory_mb": 200}, "memory    200 MB at most"),
        ({"on_oversize": "wait"}, "on_oversize                 wait"),
    ],
)
def test_job_says_it_in_words(api: FakeApi, fields: dict[str, Any], line: str) -> None:
    api.answers["GET", f"/jobs/{ID}"] = Answer(200, {**job_fields(ID), **fields})
    shown = [" ".join(found.split()) for found in run("job", ID).stdout.splitlines()]
    assert any(" ".join(line.split()) in found for found in shown), shown


# --- what was probably meant

TYPES = {
    "types": [
        {"type": "add", "schema": {"properties": {"x": {}, "y": {}}}, "defaults": {"queue": "sums"}},
        {"type": "echo", "schema": {}, "defaults": {}},
    ]
}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["add", "1", "two"], """submit add '{"x": 1, "y": "two"}'"""),
        (["add", "1", "2", "3"], "submit add '1 2 3'"),
        (["echo", "hello", "world"], "submit echo 'hello world'"),
        (["unknown", "a", "b"], "submit unknown 'a b'"),
    ],
)
def test_several_payloads_are_refused_with_an_example(api: FakeApi, words: list[str], meant: str) -> None:
    api.answers["GET", "/types"] = Answer(200, TYPES)
    result = run("submit", *words)
    assert result.exit_code == Exit.USAGE
    assert f"one payload, not {len(words) - 1}; such as: stoker {meant}" in result.stderr
    assert api.jobs == {}


def test_several_payloads_are_refused_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_API_URL", "http://127.0.0.1:9")
    result = run("submit", "add", "1", "2")
    assert result.exit_code == Exit.USAGE
    assert "such as: stoker submit add '1 2'" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jobs", "--type", "ad"], "there is no type ad; did you mean add?\n"),
        (["jobs", "--where", "type=ad"], "there is no type ad; did you mean add?\n"),
        (["jobs", "--type", "something"], "there is no type something\n"),
        (["jobs", "--queue", "smus"], "there is no queue smus; did you mean sums?\n"),
        (["jobs", "--type", "add", "--queue", "mail"], ""),
        (["jobs", "--queue", "sums"], ""),
        (["jobs", "--worker", "worker-2"], "there is no worker worker-2; did you mean worker-1?\n"),
        (["jobs", "--worker", "worker-1"], ""),
        (["jobs", "--worker", "w1"], ""),
        (["jobs", "--type", "ad", "--json"], None),
        (["dlq", "list", "--type", "ad"], "there is no type ad; did you mean add?\n"),
    ],
)
def test_an_empty_list_says_what_was_probably_meant(api: FakeApi, words: list[str], said: str | None) -> None:
    api.answers["GET", "/jobs"] = api.answers["GET", "/dlq"] = Answer(200, page([]))
    api.answers["GET", "/types"] = Answer(200, TYPES)
    api.answers["GET", "/queues"] = Answer(200, {"queues": []})
    api.answers["GET", "/workers"] = Answer(
        200, {"workers": [{"id": "w1", "name": "worker-1", "queues": ["mail"]}]}
    )
    result = run(*words)
    assert result.exit_code == Exit.OK
    assert result.stderr == ("" if said is None else f"0 shown, 0 in total\n{said}")


# --- completion


def completed(monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    """What a shell would offer after these words."""
    monkeypatch.setenv("_STOKER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"stoker {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    return CliRunner().invoke(app, prog_name="stoker").stdout.split()


def test_the_shell_offers_statuses_types_queues_and_workers(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answers["GET", "/types"] = Answer(
        200, {"types": [{"type": "echo"}, {"type": "add"}, {"type": "ebb"}]}
    )
    api.answers["GET", "/queues"] = Answer(200, {"queues": [{"name": "mail"}, {"name": "bulk"}]})
    api.answers["GET", "/workers"] = Answer(
        200, {"workers": [{"name": "w-1", "status": "live"}, {"name": "w-2"}]}
    )
    assert completed(monkeypatch, "jobs --status f") == ["failed"]
    assert completed(monkeypatch, "jobs --status queued,r") == ["queued,running"]
    assert completed(monkeypatch, "submit e") == ["ebb", "echo"]
    assert completed(monkeypatch, "jobs --type ") == ["add", "ebb", "echo"]
    assert completed(monkeypatch, "submit echo --queue m") == ["mail"]
    assert completed(monkeypatch, "queues pause ") == ["bulk", "mail"]
    assert completed(monkeypatch, "workers drain ") == ["w-1"]


def test_the_shell_is_offered_nothing_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_API_URL", "http://127.0.0.1:9")
    assert completed(monkeypatch, "submit e") == []
    assert "Traceback" not in os.environ.get("COMP_WORDS", "")
    assert set(completion.STATUSES) >= {"queued", "failed"}


# --- 80 columns


def on_80_columns(*args: str) -> list[str]:
    import re

    env = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}
    result = CliRunner(env=env).invoke(app, args, prog_name="stoker")
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in re.sub("\x1b\\[[0-9;]*m", "", result.stdout).splitlines()]


LONG = "a-name-that-is-longer-than-anybody-would-want.example.com"
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "workers": (
        "/workers",
        {
            "workers": [
                {
                    "id": ID,
                    "name": LONG,
                    "status": "live",
                    "threads": 4,
                    "threads_used": 1,
                    "queues": ["mail", "bulk", "default"],
                    "labels": {"gpu": "yes", "zone": "eu-central-1"},
                    "last_heartbeat_at": None,
                }
            ]
            * 3
        },
    ),
    "dlq": (
        "/dlq",
        page(
            [{**job_fields(ID), "type": "resize_image", "error": {"type": "ValueError", "message": LONG * 3}}]
            * 3
        ),
    ),
    "jobs": ("/jobs", page([{**job_fields(ID), "type": LONG, "name": LONG}] * 3)),
    "queues": ("/queues", {"queues": [{"name": LONG, "queued": 1_000_000, "completed": 123_456_789}] * 3}),
    "types": ("/types", {"types": [{"type": LONG, "description": LONG * 3, "workers": 2}] * 3}),
    "dlq groups": (
        "/dlq/groups",
        {
            "groups": [
                {
                    "fingerprint": "5d41402abc4b2a76",
                    "count": 123,
                    "type": "resize_image",
                    "last_seen_at": None,
                    "error_type": "ValueError",
                    "message": LONG * 2,
                    "frame": LONG,
                }
            ]
            * 3,
            "total_jobs": 9,
            "total_groups": 3,
        },
    ),
    "bulk": (
        "/bulk",
        {
            "bulk": [
                {
                    **{
                        "id": ID,
                        "action": "cancel",
                        "status": "running",
                        "total": 10_000,
                        "total_capped": True,
                    },
                    **{"done": 1, "changed": 1, "filter": {"type": LONG}, "created_at": None},
                }
            ]
            * 3
        },
    ),
    f"attempts {ID}": (
        f"/jobs/{ID}/attempts",
        {
            "attempts": [
                {
                    **{"attempt": 1, "claim_id": 1, "outcome": "invalid", "charged": True, "worker_id": ID},
                    **{
                        "started_at": "2026-01-02T03:04:05.678901Z",
                        "finished_at": "2026-01-02T03:04:05.678901Z",
                    },
                    **{"cpu_seconds": 0.1, "peak_memory_kb": 20_000, "error": {"type": "E", "message": LONG}},
                }
            ]
            * 3
        },
    ),
}


@pytest.mark.parametrize("command", ROWS)
def test_at_80_columns_a_row_is_one_line(api: FakeApi, command: str) -> None:
    path, answer = ROWS[command]
    api.answers["GET", path] = Answer(200, answer)
    head, rule, *rows = on_80_columns(*command.split())
    assert max(map(len, [head, rule, *rows])) <= 80
    assert len(rows) == 3
    assert len(set(rows)) == 1


def test_a_dead_letter_keeps_its_whole_id_and_a_part_of_its_error_at_80_columns(api: FakeApi) -> None:
    path, answer = ROWS["dlq"]
    api.answers["GET", path] = Answer(200, answer)
    row = on_80_columns("dlq")[2]
    assert row.startswith(ID)
    assert "ValueError: " in row
    api.answers["GET", "/workers"] = Answer(200, ROWS["workers"][1])
    workers = on_80_columns("workers")
    assert workers[0].split()[:2] == ["NAME", "ID"]
    assert "live" in workers[2]
