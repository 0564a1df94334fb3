"""The lines about jobs: what is said of an end."""

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.coordinator.job_event_log import JobEventLog, end_of, error_line
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Claim, Kind, Outcome
from stoker.logs.log import JobLog
from stoker.store.outcomes import Finish
from tests.support.clock import START_US
from tests.support.turns import turns

CLAIM = Claim(
    seq=1,
    id="019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11",
    claim_id=2,
    session_id="w",
    type="boom",
    queue="default",
    lane_id=1,
    attempt=2,
    max_attempts=4,
    crashes=0,
    threads=1,
    timeout_sec=None,
    created_at=0,
    run_at=0,
    claimed_at=0,
    cancel_requested=False,
)


def finish(kind: Kind = "error", error: Mapping[str, Any] | None = None, delay_us: int = 0) -> Finish:
    told = json.dumps(error or {"type": "ValueError", "message": "no luck"}).encode()
    return Finish(CLAIM, Outcome("failed", kind, None, told, delay_us))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (b'{"type": "ValueError", "message": "first\\nlast\\n"}', "ValueError: last"),
        (b'{"type": "timeout"}', "timeout"),
        (b'{"message": "only this"}', "only this"),
        (b"{}", "no reason given"),
        (None, "no reason given"),
        (b"nonsense", "no readable error"),
        (b'{"type": 5}', "no readable error"),
        (b'{"message": "\\u001b[2J"}', r"\x1b[2J"),
    ],
)
def test_an_error_is_its_last_line_and_harmless(error: bytes | None, line: str) -> None:
    assert error_line(error) == line


def test_a_long_error_is_cut() -> None:
    assert len(error_line(json.dumps({"message": "x" * 10_000}).encode())) == 500


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        ("failed", "error", "failed after 2 attempts"),
        ("failed", "invalid", "failed, not retried"),
        ("scheduled", "timeout", "attempt 2 of 4 failed, again in 5.0 s"),
        ("queued", "handed_back", "handed back, queued again"),
        ("cancelled", "cancelled", "cancelled"),
        (None, "error", "a late report of claim 2 was refused"),
    ],
)
def test_an_end_in_words(status: Status | None, kind: Kind, text: str) -> None:
    end = end_of(finish(kind, delay_us=5_000_000), status)
    assert end.text == text
    assert end.error == ("ValueError: no luck" if status in ("failed", "scheduled") else "")


async def test_a_failure_is_told_with_its_error_even_where_only_warnings_are() -> None:
    stream = io.StringIO()
    lines = JobEventLog(JobLog(stream=stream, level="warning"), lambda: START_US)
    once = finish()
    retried = Finish(replace(CLAIM, id="other"), once.outcome)
    lines.ended([(once, "failed"), (retried, "scheduled")])
    await turns()
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["level"], line["error"]) == ("job_failed", "warning", "ValueError: no luck")
