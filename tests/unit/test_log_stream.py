"""A log that cannot be written: nobody notices but its readers, who learn how much they missed."""

import fcntl
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from stoker.logs.log import configure
from stoker.logs.stream import LogStream
from tests.support.clock import START_US
from tests.support.turns import turns

pytestmark = pytest.mark.usefixtures("logging_as_before")


class Fifo:
    """A pipe whose reader comes and goes."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self.reader = -1
        self.come()
        self.writer = path.open("w", encoding="utf-8")
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)

    def come(self) -> None:
        self.reader = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)

    def leave(self) -> None:
        os.close(self.reader)
        self.reader = -1

    def read(self) -> str:
        try:
            return os.read(self.reader, 65536).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        if self.reader >= 0:
            self.leave()
        self.writer.close()


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    fifo = Fifo(tmp_path / "log")
    yield fifo
    fifo.close()


async def speak(stream: TextIO) -> None:
    """A line in each way in which there are lines."""
    jobs = configure("info", "json", stream)
    structlog.get_logger().info("ours")
    logging.getLogger("somebody.elses").warning("theirs")
    jobs.job_events("job_submitted", START_US, [("j1", "echo", "")])
    await turns()
    jobs.flush()


@pytest.fixture
def full() -> Iterator[TextIO]:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        yield full


async def test_a_full_disk_fails_nobody_who_logs(full: TextIO) -> None:
    await speak(full)


async def test_a_reader_that_went_away_fails_nobody_who_logs(fifo: Fifo) -> None:
    fifo.leave()
    await speak(fifo.writer)


def test_a_stream_that_was_closed_fails_nobody_who_logs(fifo: Fifo) -> None:
    configure("info", "json", fifo.writer)
    fifo.writer.close()
    structlog.get_logger().info("ours")


def test_a_process_without_stderr_logs_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    configure("info", "auto")
    structlog.get_logger().info("ours")


@pytest.mark.parametrize("format", ["json", "text"])
def test_the_first_line_that_can_be_written_again_says_how_many_were_lost(fifo: Fifo, format: str) -> None:
    configure("info", format, fifo.writer)
    log = structlog.get_logger()
    log.info("first")
    assert "first" in fifo.read()
    fifo.leave()
    log.info("second")
    logging.getLogger("somebody.elses").warning("third")
    fifo.come()
    log.info("fourth")
    log.info("fifth")
    notice, fourth, fifth = fifo.read().splitlines()
    assert ("fourth" in fourth, "fifth" in fifth) == (True, True)
    if format == "json":
        told = json.loads(notice)
        assert (told["event"], told["level"], told["count"]) == ("log_lines_lost", "error", 2)
        assert "timestamp" in told
    else:
        assert notice.endswith("✗ 2 lines of the log could not be written")


def test_a_line_of_which_a_part_was_written_is_ended_before_the_next(fifo: Fifo) -> None:
    """A pipe that is full and does not wait takes what fits."""
    os.set_blocking(fifo.writer.fileno(), False)
    lines = LogStream(fifo.writer, lambda count: f"lost {count}\n")
    lines.write("x" * 5000 + "\n" + "second\n")
    lines.write("third\n")
    assert fifo.read() == "x" * 4096
    lines.write("fourth\n")
    assert fifo.read() == "\nlost 3\nfourth\n"


def test_the_exit_code_of_a_process_does_not_tell_of_its_log(full: TextIO) -> None:
    """What stays in the buffer of `sys.stderr` is tried again at the end, and the failure becomes exit code 120."""
    program = "import structlog, stoker.logs.log as logs; logs.configure('info', 'json'); structlog.get_logger().info('a')"
    done = subprocess.run([sys.executable, "-c", program], stderr=full, check=False)
    assert done.returncode == 0
