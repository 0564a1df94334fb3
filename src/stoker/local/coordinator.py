"""Starts and stops the coordinator of a local Stoker, which is a child process."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from stoker.client.errors import StokerError
from stoker.system import SYSTEM

STOP_SECONDS: Final = 10.0
"""A coordinator that takes longer to end is killed."""


class Order(msgspec.Struct, frozen=True):
    """The child's configuration, passed on stdin: a command line would show the token to every user of the machine."""

    lifeline: str
    folder: str
    temporary: bool
    settings: dict[str, Any]


class StartAnswer(msgspec.Struct, frozen=True):
    """The one line of text that the child writes: the address where it listens, or why it cannot start."""

    url: str | None = None
    error: str | None = None


class LocalCoordinator:
    """The child process, and its folder.

    Start it on a thread that outlives it: Linux signals a child when the *thread* that started it ends.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self._temporary = path is None
        self.folder = Path(tempfile.mkdtemp(prefix="stoker-")) if path is None else path
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the process and return its address once it listens. Raises `StokerError` with the child's reason."""
        lifeline, descriptors = SYSTEM.lifeline()
        order = Order(lifeline, str(self.folder), self._temporary, self._settings)
        # A process group of its own, so that Ctrl-C reaches only this process, which then stops the child.
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "stoker.local.serving"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
            process_group=0,
        )
        if process.stdin is None or process.stdout is None:
            raise StokerError("the coordinator has no pipes")
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(msgspec.json.encode(order))
        with process.stdout:
            said = process.stdout.readline()
        answer = msgspec.json.decode(said, type=StartAnswer) if said else StartAnswer()
        if answer.url is None:
            why = answer.error or f"its process ended with code {process.wait()}; its output says more"
            raise StokerError(f"the coordinator of Stoker.local() cannot start: {why}")
        return answer.url

    def stop(self) -> None:
        """End the process and remove the folder, unless it is to be kept."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
