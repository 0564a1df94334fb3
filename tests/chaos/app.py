"""The jobs of cluster and chaos runs. Each writes down when it starts and ends, where no part of Stoker looks.

It stands in the workers' folder under the name `chaos_app`, so it knows nothing of the tests.
"""

import json
import os
import signal
import time

from stoker import Stoker
from stoker.context import current_job

app = Stoker()


def effect(what: str, **more: object) -> None:
    """One line of the side-effect log, in one write."""
    job = current_job()
    line = {
        "at": time.monotonic(),  # one clock for all processes of a machine, which nobody sets
        "what": what,
        "job": job.id,
        "claim": job.claim_id,
        "attempt": job.attempt,
        "worker": os.environ.get("CHAOS_WORKER", ""),
        "run": str(os.getpid()),
        **more,
    }
    fd = os.open(os.environ["CHAOS_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, json.dumps(line).encode() + b"\n")
    finally:
        os.close(fd)


@app.task
def mark(marker: str, seconds: float = 0.0, fails: int = 0, lines: int = 0, ballast: str = "") -> str:
    """Its result says which claim made it. Fails at so many first attempts, says so many lines. `ballast` only makes the
    payload large."""
    effect("start")
    for number in range(lines):
        print(f"{marker} line {number}", flush=True)  # noqa: T201 - the line is what it is for
    if seconds:
        time.sleep(seconds)
    if current_job().attempt <= fails:
        effect("end", kind="error")
        raise ValueError(f"no luck with {marker}")
    value = f"{marker} by claim {current_job().claim_id}"
    effect("end", kind="completed", value=value)
    return value


@app.task
def crash(marker: str, crashes: int) -> str:
    """Kills its process at so many first attempts. The last it can do is say so, as nobody else will."""
    effect("start")
    if current_job().attempt <= crashes:
        effect("killed", kind="crash")
        os.kill(os.getpid(), signal.SIGKILL)
    value = f"{marker} by claim {current_job().claim_id}"
    effect("end", kind="completed", value=value)
    return value


@app.task
def talk(marker: str, seconds: float) -> None:
    """Says a line every tenth of a second."""
    effect("start")
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        print(f"{marker} line {number}", flush=True)  # noqa: T201 - as above
        number += 1
        time.sleep(0.1)
    effect("end", kind="completed")


@app.task
def fork(marker: str, how: str) -> str:
    """Forks. The copy comes back with another value, fails, or works for a moment while the job waits for it."""
    effect("start")
    pid = os.fork()
    if pid == 0:
        if how == "fails":
            raise ValueError(f"{marker} in a copy")
        if how == "works":
            time.sleep(0.02)
            os._exit(7)
        return f"{marker} by a copy"
    if how == "works" and os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 7:
        raise ValueError(f"the copy of {marker} did not do its work")
    value = f"{marker} by claim {current_job().claim_id}"
    effect("end", kind="completed", value=value)
    return value
