"""Tasks that tests run. They write what they do into a journal, which no part of Stoker reads or writes."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

from stoker import Stoker
from stoker.context import current_job, progress

app = Stoker()


def record(*words: object) -> None:
    """One line, in one write, so that processes do not cut into each other's lines."""
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(os.environ["E2E_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@app.task
def note(n: int, tag: str = "note") -> int:
    record("ran", tag, n, current_job().claim_id)
    return n


@app.task
def length(text: str) -> int:
    return len(text)


@app.task
def nap(seconds: float, tag: str = "nap") -> str:
    record("start", tag, os.getpid(), time.monotonic())
    time.sleep(seconds)
    record("end", tag, os.getpid(), time.monotonic())
    return tag


@app.task
def stubborn(seconds: float, tag: str = "stubborn") -> None:
    """Does not listen to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    record("start", tag, os.getpid())
    time.sleep(seconds)


@app.task
def parent(seconds: float, tag: str = "parent", own_session: bool = False) -> None:
    """Starts a process that outlasts it, in its own session if asked."""
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(argv, start_new_session=own_session)
    record("grandchild", tag, child.pid)
    record("start", tag, os.getpid())
    time.sleep(seconds)


@app.task
def spin(seconds: float) -> float:
    """Holds the interpreter lock for so long in one single call."""
    began = time.monotonic()
    sum(range(20_000_000))
    rate = 20_000_000 / (time.monotonic() - began)
    began = time.monotonic()
    sum(range(int(rate * seconds)))
    return time.monotonic() - began


@app.task
def leave(code: int = 3, tag: str = "leave") -> None:
    record("ran", tag, os.getpid())
    os._exit(code)


@app.task
def die(tag: str = "die") -> None:
    record("ran", tag, os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def gamble(n: int, tag: str, unlucky: int = 0) -> int:
    """Mostly quick and harmless; one in `unlucky` ends the process at its first attempt."""
    record("ran", tag, n)
    if unlucky and n % unlucky == unlucky // 2 and current_job().attempt == 1:
        os._exit(1)
    return n


@app.task
def boom(tag: str = "boom") -> None:
    record("ran", tag, current_job().attempt)
    raise ValueError(f"no luck with {tag}")


@app.task
def unspeakable(tag: str = "unspeakable") -> Any:
    record("ran", tag, current_job().attempt)
    return object()


@app.task
def verbose(size: int, tag: str = "verbose") -> str:
    record("ran", tag, current_job().attempt)
    return "x" * size


@app.task
def add(x: int, y: int = 1) -> int:
    return x + y


@app.task
async def add_later(x: int, y: int) -> int:
    import asyncio

    await asyncio.sleep(0.01)
    return x + y


@app.task
def threads_given() -> int:
    return current_job().threads


@app.task
def progressing(steps: int, seconds: float) -> int:
    for done in range(1, steps + 1):
        progress(done, steps, "on my way")
        time.sleep(seconds / steps)
    return steps


def hidden(tag: str, emptied: bool) -> None:
    """Leave a process behind that has another session, no parent of ours and maybe an empty environment."""
    reading, writing = os.pipe()
    environ = {} if emptied else dict(os.environ)
    if os.fork() == 0:
        os.setsid()
        pid = os.spawnve(  # noqa: S606 - there must be no other process in between
            os.P_NOWAIT, sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], environ
        )
        os.write(writing, str(pid).encode())
        os._exit(0)
    record("hidden", tag, os.read(reading, 20).decode())


@app.task
def hide(tag: str, seconds: float = 0.0, code: int | None = None, emptied: bool = True) -> None:
    hidden(tag, emptied)
    record("start", tag, os.getpid())
    time.sleep(seconds)
    if code is not None:
        os._exit(code)


@app.task
async def hide_later(tag: str, seconds: float = 0.0, emptied: bool = True) -> None:
    import asyncio

    hidden(tag, emptied)
    record("start", tag, os.getpid())
    await asyncio.sleep(seconds)


def garbage_everywhere(data: bytes) -> None:
    for fd in range(3, 1024):
        try:
            os.write(fd, data)
        except OSError:
            continue


@app.task
def scribble(tag: str, data: str) -> str:
    """Writes garbage into every descriptor that it finds."""
    garbage_everywhere(data.encode("latin-1"))
    return tag


@app.task
async def scribble_later(tag: str, data: str) -> str:
    garbage_everywhere(data.encode("latin-1"))
    return tag
