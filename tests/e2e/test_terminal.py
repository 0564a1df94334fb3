"""A system and its commands at a real terminal of 80 columns."""

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.system import APP, STOKER, System, free_port
from tests.support.terminal import Screen, on_a_terminal

COLUMNS = 80
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-")


class Up:
    """`stoker up` on a terminal, and a client for it."""

    def __init__(self, home: System, screen: Screen, url: str) -> None:
        self.home = home
        self.screen = screen
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=60)

    def submit(self, type: str, payload: object = None, **fields: object) -> str:
        answer = self.http.post("/jobs", json={"type": type, "payload": payload, **fields})
        id: str = answer.raise_for_status().json()["id"]
        return id

    def line_of(self, id: str, said: str) -> str:
        """The line, with those that continue it, that says this of a job."""
        text = self.screen.until(lambda text: bool(re.search(rf"{id[-8:]}  .*{said}", text)))
        found = re.search(rf"^.* {id[-8:]}  .*{said}.*(?:\n {{11}}.*)*", text, re.MULTILINE)
        assert found is not None
        return found[0]

    def log_lines(self) -> list[str]:
        return self.screen.text.partition("Stop with Ctrl-C.")[2].split("\n")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with System(tmp_path_factory.mktemp("terminal")) as home:
        port = free_port()
        argv = [STOKER, "up", "--port", port, "--workers", 1, "--app", APP, "--database", home.database]
        env = home.environ({"STOKER_RETRY_BACKOFF_CAP_SEC": "0.2"})
        with on_a_terminal(argv, env, folder=home.folder, columns=COLUMNS) as screen:
            screen.until("joined with")
            up = Up(home, screen, f"http://127.0.0.1:{port}")
            with up.http:
                yield up


def test_a_worker_says_which_tasks_and_queues_it_serves(up: Up) -> None:
    text = " ".join(up.screen.until("built-in types; all queues").split())
    assert re.search(r"worker-1 serves .*\bboom, .*\bnap, .* built-in types; all queues", text)


def test_each_job_is_one_short_line(up: Up) -> None:
    line = up.line_of(up.submit("echo", 1), "completed")
    assert re.fullmatch(r"\d\d:\d\d:\d\d ✓ echo +[0-9a-f]{8}  completed in [<\d.]+ m?s", line)
    slow = up.submit("nap", {"seconds": 3})
    assert "▸ nap" in up.line_of(slow, "runs on worker-1")
    assert "✓ nap" in up.line_of(slow, "completed in 3")


def test_a_failure_shows_the_last_line_of_its_error_in_colour(up: Up) -> None:
    job = up.submit("boom", {"tag": "x" * 60}, max_attempts=2)
    retried = " ".join(up.line_of(job, "again in").split())
    assert "↻ boom" in retried
    assert "attempt 1 of 2 failed, again in" in retried
    assert "✗ boom" in up.line_of(job, "failed after 2 attempts")
    error = f"ValueError: no luck with {'x' * 40}"
    up.screen.until(lambda _: error in " ".join(up.line_of(job, "failed after 2 attempts").split()))
    assert "\x1b[31mValueError: no luck" in up.screen.raw


def test_many_jobs_are_summed_up(up: Up) -> None:
    body = {"jobs": [{"type": "echo", "payload": n} for n in range(2_000)]}
    ids = {job["id"][-8:] for job in up.http.post("/jobs/batch", json=body).raise_for_status().json()["jobs"]}

    def lines_of_their_own() -> int:
        return sum(any(id in line for id in ids) for line in up.log_lines())

    def told(text: str) -> int:
        sums = re.findall(r"✓ ([\d,]+) completed  echo", text)
        return sum(int(number.replace(",", "")) for number in sums) + lines_of_their_own()

    up.screen.until(lambda text: told(text) >= 2_000, 60)
    assert lines_of_their_own() <= 50


def test_no_line_of_the_log_is_wider_than_the_terminal_or_holds_a_whole_id(up: Up) -> None:
    up.line_of(up.submit("echo", 2), "completed")
    lines = up.log_lines()
    assert max(map(len, lines)) <= COLUMNS
    assert [line for line in lines if UUID.search(line)] == []
    assert [line for line in lines if '"event"' in line or "event=" in line] == []


def test_tables_fit_and_short_ids_are_taken_back(up: Up) -> None:
    job = up.submit("boom", {"tag": "y" * 200}, max_attempts=1, queue="a-queue-with-a-long-name")
    up.line_of(job, "failed after")
    for words in (["workers"], ["dlq"], ["job", job[-8:]], ["attempts", job[:20]]):
        with on_a_terminal([STOKER, *words, "--url", up.url], up.home.environ({})) as screen:
            assert screen.exit_code() == 0, screen.text
        if words[0] != "job":  # a traceback is as wide as it is
            assert max(map(len, screen.lines)) <= COLUMNS, screen.text
        else:
            assert job in screen.text


def test_waiting_shows_progress_and_ctrl_c_names_the_job(up: Up) -> None:
    argv = [STOKER, "submit", "nap", '{"seconds": 30}', "--wait", "--url", up.url]
    with on_a_terminal(argv, up.home.environ({})) as screen:
        screen.until("The job runs on worker-1")
        screen.press("\x03")
        assert screen.exit_code() == 130
    (id,) = re.findall(r"job (\S{36}) goes on without you", screen.text)
    assert f"{STOKER} cancel {id} --url {up.url}" in " ".join(screen.text.split())
    cancelled = up.http.post(f"/jobs/{id[-8:]}/cancel").raise_for_status().json()
    assert cancelled["id"] == id
    up.line_of(id, "cancelled")


def test_ctrl_c_stops_it_and_the_last_word_is_that_everything_is_stored(up: Up) -> None:
    up.screen.press("\x03")
    assert up.screen.exit_code(30) == 0
    assert up.screen.text.rstrip().endswith("everything is stored; stopped")
