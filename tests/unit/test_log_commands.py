"""Reading what jobs wrote, and how their attempts went, with the SDK and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stoker import Stoker
from stoker.cli import log_commands, output
from stoker.cli.exits import Exit
from stoker.cli.main import app as command
from stoker.client.errors import StokerError
from stoker.client.job import LogEntry
from stoker.client.requests import AttemptInfo, JobError
from tests.unit.fake_api import NOW, Answer, FakeApi, Seen, fake_api, problem

JOB = "01890000-0000-7000-8000-000000000000"
PATH = f"/jobs/{JOB}/logs"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with fake_api() as running:
        monkeypatch.setenv("STOKER_API_URL", running.url)
        yield running


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, prog_name="stoker")


def entry(text: str, stream: str = "stdout") -> dict[str, Any]:
    return {"attempt": 1, "claim_id": 1, "stream": stream, "time": NOW, "text": text}


def writes(api: FakeApi, *pages: list[str], ends: bool = True) -> None:
    """The job has written these pages; a position is the number of pages before it."""

    def answer(seen: Seen) -> Answer:
        after = int(seen.query.get("after", "0"))
        page = pages[after] if after < len(pages) else []
        last = after + 1 >= len(pages)
        more = not last and "wait" not in seen.query and seen.query.get("more") != "no"
        body = {
            "entries": [entry(text) for text in page],
            "position": after + 1,
            "more": more,
            "ended": last and ends,
            "cut": False,
            "written_bytes": 1,
        }
        return Answer(200, body)

    api.answers["GET", PATH] = answer


def queries(api: FakeApi) -> list[dict[str, str]]:
    return [seen.query for seen in api.requests]


# --- SDK


def test_logs_are_read_page_by_page(api: FakeApi) -> None:
    writes(api, ["one\n", "two\n"], ["three\n"], ends=False)
    with Stoker(api.url) as app:
        entries = list(app.job(JOB).logs())
    assert [item.text for item in entries] == ["one\n", "two\n", "three\n"]
    assert (entries[0].stream, entries[0].attempt, entries[0].claim_id) == ("stdout", 1, 1)
    assert entries[0].time is not None
    assert queries(api) == [{"format": "json"}, {"format": "json", "after": "1"}]


def test_following_waits_for_what_comes_and_ends_with_the_job(api: FakeApi) -> None:
    pages = [["one\n"], [], ["two\n"]]
    api.answers["GET", PATH] = lambda seen: Answer(
        200,
        {
            "entries": [entry(text) for text in pages[int(seen.query.get("after", "0"))]],
            "position": int(seen.query.get("after", "0")) + 1,
            "more": False,
            "ended": seen.query.get("after") == "2",
        },
    )
    with Stoker(api.url) as app:
        assert [item.text for item in app.job(JOB).logs(follow=True, tail=5)] == ["one\n", "two\n"]
    assert queries(api) == [
        {"format": "json", "tail": "5"},
        {"format": "json", "after": "1", "wait": "30.0"},
        {"format": "json", "after": "2", "wait": "30.0"},
    ]


def test_following_survives_a_lost_connection(api: FakeApi) -> None:
    writes(api, ["one\n"], ["two\n"])
    with Stoker(api.url) as app:
        entries = app.job(JOB).logs(follow=True)
        assert next(entries).text == "one\n"
        api.fail_next = 1
        assert [item.text for item in entries] == ["two\n"]


async def test_the_same_on_an_event_loop(api: FakeApi) -> None:
    writes(api, ["one\n"], ["two\n"])
    api.answers["GET", f"/jobs/{JOB}/attempts"] = Answer(200, {"attempts": [{"attempt": 1}]})
    async with Stoker(api.url) as app:
        job = app.job(JOB)
        assert [item.text async for item in job.logs_async(follow=True, attempt=1)] == ["one\n", "two\n"]
        assert [attempt.attempt for attempt in await job.attempts_async()] == [1]
    assert queries(api)[0] == {"format": "json", "attempt": "1"}


def test_attempts_and_progress(api: FakeApi) -> None:
    attempt = {"attempt": 2, "claim_id": 3, "outcome": "error", "charged": True, "cpu_seconds": 1.5}
    api.answers["GET", f"/jobs/{JOB}/attempts"] = Answer(200, {"attempts": [attempt]})
    api.auto_finish("running", progress={"done": 1, "total": 4, "message": "m", "percent": 25.0})
    with Stoker(api.url) as app:
        (found,) = app.job(JOB).attempts()
        progress = app.submit("echo").info.progress
    assert (found.claim_id, found.charged, found.cpu_seconds) == (3, True, 1.5)
    assert progress is not None
    assert (progress.done, progress.percent) == (1, 25.0)


# --- command line


def test_logs_prints_what_was_written_and_nothing_else(api: FakeApi) -> None:
    writes(api, ["one\n", "no end"], [" of line\n\x1b[31mred\n"])
    result = run("logs", JOB)
    assert (result.exit_code, result.stdout) == (0, "one\nno end of line\n\x1b[31mred\n")
    assert result.stderr == ""


def test_options_of_logs_are_sent(api: FakeApi) -> None:
    writes(api, ["one\n"], ["two\n"])
    assert run("logs", JOB, "-f", "--attempt", "2", "--tail", "10").stdout == "one\ntwo\n"
    assert queries(api)[0] == {"format": "json", "attempt": "2", "tail": "10"}
    assert run("logs", JOB, "--tail", "0").exit_code == Exit.USAGE


def test_logs_as_json_are_lines(api: FakeApi) -> None:
    writes(api, ["one\n"], ["two\n"])
    lines = [json.loads(line) for line in run("logs", JOB, "--json").stdout.splitlines()]
    assert [line["text"] for line in lines] == ["one\n", "two\n"]
    assert lines[0]["time"] == NOW


def test_a_terminal_is_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    log_commands.print_entries([LogEntry(text="a\tb\n\x1b[2Jgone\r\x00\n")], as_json=False)
    assert capsys.readouterr().out == "a\tb\n\\x1b[2Jgone\\r\\x00\n"
    assert output.plain_lines("grüße 👍\n") == "grüße 👍\n"


ENDED = datetime(2026, 1, 2, tzinfo=UTC)
ATTEMPTS = [
    AttemptInfo(
        attempt=1, claim_id=1, outcome="error", finished_at=ENDED, retry_delay_sec=1.71,
        error=JobError(type="ValueError", message="no\n\x1b[2J"),
    ),
    AttemptInfo(attempt=2, claim_id=2, outcome="crash", finished_at=ENDED),
    AttemptInfo(attempt=3, claim_id=3, outcome="completed", finished_at=ENDED),
    AttemptInfo(attempt=4, claim_id=4, outcome="running"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("only", "claims", "lines"),
    [
        (
            None,
            [1, 1, 3],
            [
                "text 1text 1",
                "── attempt 1 failed: ValueError: no\\n\\x1b[2J; retried after 1.7s ──",
                "── attempt 2 crash ──",
                "text 3",
                "── attempt 3 completed ──",
            ],
        ),
        (2, [2], ["text 2", "── attempt 2 crash ──"]),
        (2, [], ["── attempt 2 crash ──"]),
        (None, [3], ["text 3", "── attempt 3 completed ──"]),
        (None, [4], ["text 4"]),
    ],
)
def test_a_terminal_shows_where_attempts_ended(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    only: int | None,
    claims: list[int],
    lines: list[str],
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    entries = [LogEntry(text=f"text {claim}", claim_id=claim) for claim in claims]
    log_commands.print_entries(entries, False, log_commands.Marks(lambda: ATTEMPTS, only))
    assert capsys.readouterr().out.splitlines() == lines


def test_a_mark_is_no_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    log_commands.print_entries([], False, log_commands.Marks(lambda: ATTEMPTS[:1]))
    assert capsys.readouterr().out == "\x1b[2m── attempt 1 failed: ValueError: no\\… ──\x1b[0m\n"


def test_output_is_shown_where_attempts_cannot_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> list[AttemptInfo]:
        raise StokerError

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    log_commands.print_entries([LogEntry(text="one\n")], False, log_commands.Marks(refused))
    assert capsys.readouterr().out == "one\n"


def test_ctrl_c_is_how_one_stops_following(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_commands, "print_entries", interrupted)
    assert run("logs", JOB, "--follow").exit_code == Exit.OK


def test_logs_of_an_unknown_job_are_refused(api: FakeApi) -> None:
    api.answers["GET", PATH] = problem(404, "Not Found", "there is no such job")
    result = run("logs", JOB, "-f")
    assert result.exit_code == Exit.REFUSED
    assert "there is no such job" in result.stderr


def test_attempts_is_a_table_or_json(api: FakeApi) -> None:
    attempt = {
        "attempt": 1, "claim_id": 4, "outcome": "crash", "charged": False, "worker_id": "w-1",
        "started_at": NOW, "finished_at": NOW, "cpu_seconds": 1.25, "peak_memory_kb": 20480,
        "error": {"type": "crash", "message": "signal 9"},
    }  # fmt: skip
    api.answers["GET", f"/jobs/{JOB}/attempts"] = Answer(200, {"attempts": [attempt]})
    table = run("attempts", JOB).stdout
    for shown in ("CHARGED", "crash", "no", "w-1", NOW, "1.2s", "20 MiB", "crash: signal 9"):
        assert shown in table
    assert json.loads(run("attempts", JOB, "--json").stdout) == {"attempts": [attempt]}
