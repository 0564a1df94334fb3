"""Log lines for people: one short line a job, sums when there are many, and nothing wider than the terminal."""

import io
import time
from collections.abc import Callable

import pytest
import structlog

from stoker.logs.terminal import (
    FEW,
    SAY_AGAIN_SECONDS,
    AttemptEnd,
    EventLines,
    JobTicker,
    Terminal,
    duration,
    sentence,
    terminal_of,
)

ID = "019a5c1e-7b0e-7c61-b6a5-0d3f6b8f2a11"
NOON = time.mktime((2027, 1, 15, 12, 0, 0, 0, 0, -1))


class Ticking:
    """A ticker whose seconds pass when the test says so."""

    def __init__(self, *, width: int | None = None, level: int = 20) -> None:
        self.stream = io.StringIO()
        self.now = 0.0
        self._due: list[Callable[[], None]] = []
        terminal = Terminal(width=lambda: width, now=lambda: NOON)
        self.ticker = JobTicker(
            terminal,
            self.stream,
            level=level,
            now=lambda: self.now,
            later=lambda _, do: self._due.append(do),
        )

    def second(self) -> None:
        self.now += 1.0
        due, self._due = self._due, []
        for do in due:
            do()

    @property
    def idle(self) -> bool:
        return not self._due

    def said(self) -> list[str]:
        lines = self.stream.getvalue().splitlines()
        self.stream.seek(0)
        self.stream.truncate()
        assert all(line.startswith(("12:00:00 ", " " * 11)) for line in lines)
        return [line.removeprefix("12:00:00 ") for line in lines]

    def completed(self, number: int, type: str = "echo") -> None:
        for n in range(number):
            self.ticker.completed(type, [f"{n:08}"], lambda: "completed in 5 ms")

    def failed(self, number: int, error: str = "ValueError: no") -> None:
        for n in range(number):
            self.ticker.ended(AttemptEnd("failed", f"{n:08}", "boom", "failed after 1 attempt", error))


def test_a_quick_job_is_one_line() -> None:
    system = Ticking()
    system.ticker.submitted("echo", [ID])
    system.ticker.dispatched("echo", [ID], "worker-1")
    system.ticker.completed("echo", [ID], lambda: "completed in 5 ms")
    system.second()
    system.second()
    assert system.said() == ["✓ echo          6b8f2a11  completed in 5 ms"]
    assert system.idle, "nothing ticks while nothing happens"


def test_a_job_that_waits_or_runs_for_a_second_gets_a_line_before_its_end() -> None:
    system = Ticking()
    system.ticker.submitted("sleep", [ID])
    system.second()
    assert system.said() == ["· sleep         6b8f2a11  queued"]
    system.ticker.dispatched("sleep", [ID], "worker-1")
    system.second()
    assert system.said() == ["▸ sleep         6b8f2a11  runs on worker-1"]
    system.ticker.completed("sleep", [ID], lambda: "completed in 2.0 s")
    assert system.said() == ["✓ sleep         6b8f2a11  completed in 2.0 s"]


def test_more_than_a_few_ends_a_second_are_summed_up_until_there_are_few_again() -> None:
    system = Ticking()
    system.completed(FEW + 10)
    assert len(system.said()) == FEW
    system.second()
    assert system.said() == ["✓ 10 completed  echo 10"]
    system.completed(2_000)
    system.completed(3, "add")
    assert system.said() == [], "busy: only sums"
    system.second()
    assert system.said() == ["✓ 2,003 completed  echo 2,000, add 3"]
    system.completed(2)
    assert system.said() == [], "this second may be busy as well"
    system.second()
    assert system.said() == [f"✓ echo          0000000{n}  completed in 5 ms" for n in range(2)]
    system.completed(1)
    assert len(system.said()) == 1, "at once"
    system.second()
    system.second()
    assert system.idle


def test_failures_of_one_kind_are_one_line_with_an_id_and_the_error() -> None:
    system = Ticking()
    system.completed(FEW)
    system.said()
    system.failed(20, "ValueError: no")
    system.failed(1, "KeyError: 'x'")
    system.failed(20, "ValueError: no")
    system.second()
    assert system.said() == [
        "✗ boom          00000000  failed after 1 attempt, and 39 more like it: ValueError: no",
        "✗ boom          00000000  failed after 1 attempt: KeyError: 'x'",
    ]
    for n in range(8):
        system.failed(8 - n, "ABCDEFGH"[n])
    system.second()
    *kinds, rest = system.said()
    assert [line.rpartition(" ")[2] for line in kinds] == ["A", "B", "C"]
    assert rest == "✗ and 15 more failed in other ways"


def test_failures_that_differ_in_numbers_and_quoted_text_are_of_one_kind() -> None:
    system = Ticking()
    system.completed(FEW)
    system.said()
    for n in range(20):
        system.failed(1, f"ConnectionError: no answer for order {n} of '{n}'")
    system.second()
    (line,) = system.said()
    assert line.endswith("and 19 more like it: ConnectionError: no answer for order 0 of '0'")


def test_many_submissions_are_a_sum_and_batches_of_one_end_too() -> None:
    system = Ticking()
    system.ticker.submitted("echo", [f"{n:08}" for n in range(1_000)])
    system.ticker.completed("echo", [f"{n:08}" for n in range(1_000)], lambda: "never asked for")
    system.second()
    assert system.said() == ["· 1,000 submitted  echo 1,000", "✓ 1,000 completed  echo 1,000"]


def test_what_was_not_said_yet_is_said_at_the_end() -> None:
    system = Ticking()
    system.completed(FEW + 7)
    system.said()
    system.ticker.close()
    assert system.said() == ["✓ 7 completed  echo 7"]


def test_above_info_only_failures_are_told() -> None:
    system = Ticking(level=30)
    system.ticker.submitted("echo", ["00000000"])
    system.completed(1)
    system.failed(1)
    system.second()
    assert [line[0] for line in system.said()] == ["✗"]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    system = Ticking(width=columns)
    long = "requests.ConnectionError: " + "HTTPSConnectionPool(host='api.example.com', port=443) " * 9
    system.ticker.ended(
        AttemptEnd("retried", ID, "resize_image", "attempt 1 of 4 failed, again in 2.1 s", long)
    )
    system.ticker.ended(AttemptEnd("failed", ID, "t" * 60, "failed after 4 attempts", "x" * 500))
    system.ticker.ended(AttemptEnd("failed", ID, "add", "failed after 4 attempts", "ValueError: no"))
    written = system.stream.getvalue().splitlines()
    assert max(map(len, written)) <= columns
    assert len(written) <= 3 * 5
    assert "ConnectionError" in "".join(written), "the beginning of a long error is always there"


def test_colours_are_for_terminals_that_want_them() -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    def line(environ: dict[str, str]) -> str:
        return terminal_of(Tty(), environ).line("failed", "failed", "ValueError")

    assert "\x1b[31m✗\x1b[0m" in line({"TERM": "xterm"})
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in line(plain)
    assert "\x1b" not in terminal_of(io.StringIO(), {}).line("failed", "failed", "ValueError")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"event": "worker_registered", "worker": "w", "threads": 1, "held": 0}, "w joined with 1 thread"),
        ({"event": "job_cancelled", "job_id": ID}, "job 6b8f2a11 was cancelled"),
        ({"event": "job_cancelled"}, "job cancelled"),
        (
            {
                "event": "worker_started",
                "worker": "w",
                "tasks": ["add"],
                "builtin_types": 11,
                "queues": ["a", "b"],
            },
            "w serves add, 11 built-in types; queues a, b",
        ),
        (
            {
                "event": "worker_started",
                "worker": "w",
                "tasks": [],
                "builtin_types": 11,
                "labels": ["gpu=yes"],
            },
            "w serves 11 built-in types; all queues; labels gpu=yes",
        ),
        (
            {"event": "task_goes_first", "types": ["echo", "sleep"]},
            "tasks that take the place of types of the same name, built in or a command's: echo, sleep",
        ),
        (
            {"event": "coordinator_unreachable", "url": "ws://c", "detail": "refused"},
            "cannot reach ws://c, and goes on trying: refused",
        ),
        (
            {
                "event": "redis_lost",
                "used_for": "limits",
                "detail": "gone",
                "request_id": "r",
                "level": "warning",
            },
            "redis lost (used for limits): gone",
        ),
    ],
)
def test_events_are_sentences(event: dict[str, object], text: str) -> None:
    assert sentence(event) == text


def test_a_coordinator_that_stays_away_is_told_now_and_then() -> None:
    clock = [0.0]
    lines = EventLines(Terminal(now=lambda: NOON), now=lambda: clock[0])

    def told(event: str = "coordinator_unreachable", url: str = "ws://a", detail: str = "refused") -> bool:
        try:
            lines(None, "", {"event": event, "level": "warning", "url": url, "detail": detail})
        except structlog.DropEvent:
            return False
        return True

    assert [told(), told(), told(url="ws://b"), told(), told(detail="timeout")] == [
        True,
        False,
        True,
        False,
        True,
    ]
    clock[0] = SAY_AGAIN_SECONDS
    assert [told(detail="timeout"), told(detail="timeout")] == [True, False]
    assert [told("connected"), told(detail="timeout")] == [True, True], "lost once more"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0001, "<1 ms"), (0.25, "250 ms"), (3.44, "3.4 s"), (119, "119.0 s"), (600, "10 m"), (9000, "2 h")],
)
def test_durations_have_their_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
