"""Processes that the benchmark starts: tethered to it, with a clean environment, and stopped in good order."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench import tether
from bench.generator import Load, Loaded

ROOT: Final = Path(__file__).resolve().parent.parent
START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 20.0
# Nothing of the caller's settings may colour a figure: it is the defaults that are measured.
_KEPT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")


class BenchFailed(Exception):
    """A part could not be measured; the message says why."""


def environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT)}


def tethered(command: Sequence[str], parent: int | None = None) -> list[str]:
    """The command, ended by the kernel when `parent` (this process, or with 0 the one that starts it) ends."""
    owner = os.getpid() if parent is None else parent
    return [sys.executable, str(Path(tether.__file__)), str(owner), *command]


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """One running process; its output goes to a file that is shown when it fails."""

    def __init__(
        self, command: Sequence[str], output: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` join the clean environment."""
        self._output = output
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                tethered(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**environment(), **(variables or {})},
                cwd=output.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not _holds(ready):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BenchFailed(f"{what} did not start:\n{self.last_output()}")
            time.sleep(0.01)

    def said(self, line: str) -> bool:
        """Whether it has written this line."""
        return line in self._output.read_text(errors="replace").splitlines()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def last_output(self) -> str:
        return self._output.read_text(errors="replace")[-2_000:]

    def stop(self) -> None:
        """Ask it to end; make it end."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it and all that it started, at once: what it was doing does not matter any more."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def _holds(ready: Callable[[], bool]) -> bool:
    try:
        return ready()
    except OSError:
        return False


def _last_line(output: bytes) -> str:
    return (output.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]


def generate(load: Load) -> Loaded:
    """Run a load in a process of its own."""
    seconds = load.timeout_seconds + START_SECONDS
    output = output_of(python("bench.generator"), "the load", seconds, msgspec.json.encode(load))
    return msgspec.json.decode(output, type=Loaded)


def output_of(command: Sequence[str], what: str, seconds: float, input: bytes = b"") -> bytes:
    """Run a command to its end; what it wrote to stdout."""
    try:
        done = subprocess.run(
            tethered(command),
            input=input,
            capture_output=True,
            env=environment(),
            timeout=seconds,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise BenchFailed(f"{what} broke off: {_last_line(error.stderr)}") from None
    except subprocess.TimeoutExpired:
        raise BenchFailed(f"{what} did not finish in time") from None
    return done.stdout
