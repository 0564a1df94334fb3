"""Logs: one event a line, whatever somebody put into it."""

import io
import json
import logging

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from stoker.logs.log import WRITE_CHARS, JobLog, configure
from tests.support.clock import START_US
from tests.support.turns import turns

pytestmark = pytest.mark.usefixtures("logging_as_before")


async def test_many_jobs_are_one_write_a_turn() -> None:
    class Stream(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            return super().write(text)

    stream = Stream()
    log = JobLog(stream=stream)
    log.job_events("job_submitted", START_US, [([f"j{n}"], "echo", "") for n in range(100)])
    log.job_events("job_dispatched", START_US, [(["j0"], "echo", log.fields(worker_id="w"))])
    await turns()
    assert stream.writes == 1
    assert len(stream.getvalue().splitlines()) == 101


async def test_lines_about_thousands_of_jobs_are_written_in_order_and_in_parts() -> None:
    class Stream(io.StringIO):
        longest = 0

        def write(self, text: str) -> int:
            self.longest = max(self.longest, len(text))
            assert text.endswith("\n")
            return super().write(text)

    stream = Stream()
    log = JobLog(stream=stream)
    ids = [f"j{number}" for number in range(1_050)]
    log.job_events("job_submitted", START_US, [([], "echo", ""), (ids[:1_001], "echo", "")])
    log.job_events("job_submitted", START_US, [([id], "echo", "") for id in ids[1_001:]])
    await turns()
    assert [json.loads(line)["job_id"] for line in stream.getvalue().splitlines()] == ids
    assert stream.longest < 2 * WRITE_CHARS


async def test_job_lines_are_json() -> None:
    stream = io.StringIO()
    log = JobLog(stream=stream)
    log.job_events("job_failed", START_US + 5, [(["j1"], "echo", log.fields(reason="error", attempt=2))])
    await turns()
    assert json.loads(stream.getvalue()) == {
        "timestamp": "2027-01-15T08:00:00.000005Z",
        "level": "info",
        "event": "job_failed",
        "job_id": "j1",
        "type": "echo",
        "reason": "error",
        "attempt": 2,
    }


async def test_job_lines_are_left_out_above_info() -> None:
    stream = io.StringIO()
    log = JobLog(stream=stream, level="warning")
    assert not log.enabled
    log.job_events("job_completed", START_US, [(["j1"], "echo", "")])
    await turns()
    assert stream.getvalue() == ""


async def test_failures_are_warnings_and_told_as_such() -> None:
    stream = io.StringIO()
    log = JobLog(stream=stream, level="warning")
    assert log.warns
    log.job_events("job_failed", START_US, [(["j1"], "echo", "")], "warning")
    await turns()
    assert json.loads(stream.getvalue())["level"] == "warning"
    assert not JobLog(stream=stream, level="error").warns


async def test_every_json_line_has_one_shape_whoever_wrote_it() -> None:
    stream = io.StringIO()
    job_log = configure("info", "json", stream)
    structlog.get_logger().warning("hello", a=1)
    logging.getLogger("library").warning("careful")
    job_log.job_events("job_submitted", START_US, [(["j1"], "echo", "")])
    await turns()
    for line in stream.getvalue().splitlines():
        assert list(json.loads(line))[:3] == ["timestamp", "level", "event"]
        assert json.dumps(json.loads(line), separators=(",", ":")) == line
        assert len(json.loads(line)["timestamp"]) == len("2027-01-15T08:00:00.000005Z")


def test_json_is_written_off_a_terminal_and_lines_on_request() -> None:
    stream = io.StringIO()
    configure("info", "auto", stream)
    structlog.get_logger().info("hello", a=1)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["a"], line["level"]) == ("hello", 1, "info")
    stream = io.StringIO()
    configure("info", "text", stream)
    structlog.get_logger().info("something_new", a_b=1, detail="two words")
    assert stream.getvalue().endswith(" · something new (a b 1): two words\n")


def test_the_level_is_honoured() -> None:
    stream = io.StringIO()
    configure("warning", "json", stream)
    log = structlog.get_logger()
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


@pytest.mark.parametrize("format", ["json", "text"])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_no_value_breaks_a_line_or_steers_a_terminal(format: str, text: str) -> None:
    stream = io.StringIO()
    configure("info", format, stream)
    structlog.get_logger().info("event", value=text)
    written = stream.getvalue()
    assert written.endswith("\n")
    assert written[:-1].isprintable()


@pytest.mark.parametrize("format", ["json", "text"])
def test_what_a_library_says_is_an_event_on_one_line(format: str) -> None:
    stream = io.StringIO()
    configure("info", format, stream)
    logging.getLogger("somebody.elses").warning("careful:\nwith \x1b[2J %s", "this")
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    if format == "json":
        told = json.loads(line)
        assert (told["event"], told["level"], told["logger"]) == ("library", "warning", "somebody.elses")
        assert told["detail"] == r"careful:\nwith \x1b[2J this"
    else:
        assert line.endswith(r" ! somebody.elses: careful:\nwith \x1b[2J this")


def test_a_stack_is_one_value_in_json_and_readable_on_a_terminal() -> None:
    def fail(format: str) -> str:
        stream = io.StringIO()
        configure("info", format, stream)
        try:
            raise ValueError("first\n2027-01-15T08:00:00.000000Z info     event=forged \x1b[2J")
        except ValueError:
            structlog.get_logger().exception("request_failed", path="/")
        return stream.getvalue()

    (line,) = fail("json").splitlines()
    assert json.loads(line)["exception"].startswith("Traceback")
    first, *stack = fail("text").splitlines()
    assert first.endswith("✗ request failed (path /)")
    assert stack[0] == "           Traceback (most recent call last):"
    assert any("ValueError: first" in line for line in stack)
    assert all(line.startswith("    ") and line.isprintable() for line in stack), (
        "nothing passes for a line of the log"
    )


async def test_ids_that_others_chose_cannot_break_a_job_line() -> None:
    stream = io.StringIO()
    log = JobLog(stream=stream)
    odd = 'x"},{"event":"forged'
    log.job_events(
        "job_submitted", START_US, [(["j1"], "echo", log.request(odd)), (["j2"], "echo", log.request("r-2"))]
    )
    log.job_events("job_submitted", START_US, [(["j3"], "echo", log.request(None))])
    log.job_events("job_completed", START_US, [(["j4"], "echo", f"{log.claim_prefix(odd)}7")])
    await turns()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    first, second, third, fourth = map(json.loads, lines)
    assert (first["request_id"], second["request_id"]) == (odd, "r-2")
    assert "request_id" not in third
    assert (fourth["worker_id"], fourth["claim"]) == (odd, 7)
