"""Run jobs through a real coordinator, worker and child process, and read which functions of the project they call.

Time is cut into phases: idle, one job, one GET, and again. A function belongs to the job when every job called it and no
idle phase did. So neither the polls and heartbeats of an idle system count, nor a timer that fires during one job by
chance.

The hook (`hook/sitecustomize.py`) stands in the `PYTHONPATH` of the traced processes; the product knows nothing of it.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

import stoker
from tests.e2e.system import Server, System, eventually

HOOK: Final = Path(__file__).with_name("hook")
SOURCE: Final = Path(stoker.__file__).parent
ROUNDS: Final = 3
IDLE_SECONDS: Final = 2.5
"""Longer than every period of an idle system: dispatch polls each second, and heartbeats are set to 0.4 s below."""
SETTLE_SECONDS: Final = 0.3
"""After a job is stored as completed: its acknowledgement reaches the worker, and the loops go back to sleep."""
HEARTBEAT_TIMEOUT_SECONDS: Final = 2
UNTRACED: Final = 0
PHASES: Final = [(first, first + 1, first + 2) for first in range(1, 3 * ROUNDS, 3)]
"""Idle, one job, one GET of it: the numbers of these phases in each round."""
ROLES: Final = {"serve": "coordinator", "worker": "worker", "stoker.executors.child": "child"}
INNER: Final = frozenset({"<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})
"""Code that belongs to the function around it, or to an import."""


class Function(NamedTuple):
    """A function of the project: its file, relative to `src/stoker`, and its name with that of its class."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


Called = Mapping[str, frozenset[Function]]
"""Functions by the process that called them: coordinator, worker, child."""


class Traced(NamedTuple):
    """What one job calls, and what one GET of it calls, beyond what an idle system calls."""

    job: Called
    get: Called
    idle: Called


def trace(folder: Path) -> Traced:
    """Start a system in `folder`, send `ROUNDS` jobs through it one after the other and read each with one GET."""
    calls = folder / "calls"
    calls.mkdir(parents=True)
    phase = calls / "phase"
    phase.write_bytes(bytes([UNTRACED]))
    settings: dict[str, Any] = {
        "PYTHONPATH": str(HOOK),
        "PATH_TRACE_FOLDER": str(calls),
        "PATH_TRACE_SOURCE": f"{SOURCE}/",
        "WORKER_HEARTBEAT_TIMEOUT_SEC": HEARTBEAT_TIMEOUT_SECONDS,
    }
    with System(folder / "system") as system:
        server = system.serve(**settings)
        system.worker(server, **settings)
        for _ in range(2):  # the first calls fill caches, and import what is imported late
            server.job(_run_job(server))
        for waiting, job, get in PHASES:
            _enter(phase, waiting)
            time.sleep(IDLE_SECONDS)
            _enter(phase, job)
            id = _run_job(server)
            _enter(phase, get)
            server.job(id)
            _enter(phase, UNTRACED)
    seen = _read(calls)
    idles, jobs, gets = zip(*PHASES, strict=True)
    idle = _union(seen, idles)
    return Traced(_beyond(seen, jobs, idle), _beyond(seen, gets, idle), idle)


def _enter(phase: Path, number: int) -> None:
    with phase.open("r+b") as file:  # in place: the processes have this file mapped
        file.write(bytes([number]))


def _run_job(server: Server) -> str:
    """Submit one job and wait until the log says that it completed: asking the API would be part of the path."""
    id = str(server.submit("length", {"text": "a job"})["id"])
    eventually(
        lambda: any(event["job_id"] == id for event in server.events("job_completed")),
        otherwise=lambda: f"job {id} to complete:\n{server.output[-4000:]}",
    )
    time.sleep(SETTLE_SECONDS)
    return id


Seen = Mapping[str, Mapping[int, frozenset[Function]]]


def _read(calls: Path) -> Seen:
    """Return the functions that were called, by role and phase."""
    seen: dict[str, dict[int, set[Function]]] = defaultdict(lambda: defaultdict(set))
    for file in calls.glob("*.calls"):
        argv, *lines = file.read_text(encoding="utf-8").splitlines()
        role = _role(msgspec.json.decode(argv, type=list[str]))
        for line in lines:
            phase, source, name = line.split("\t")
            if name.rpartition(".")[2] not in INNER:
                seen[role][int(phase)].add(Function(source, name))
    return {role: {phase: frozenset(found) for phase, found in by.items()} for role, by in seen.items()}


def _role(argv: Iterable[str]) -> str:
    return next((ROLES[word] for word in argv if word in ROLES), "other")


def _union(seen: Seen, phases: Iterable[int]) -> Called:
    wanted = list(phases)
    return {
        role: frozenset().union(*(by.get(phase, frozenset()) for phase in wanted))
        for role, by in seen.items()
    }


def _beyond(seen: Seen, phases: Iterable[int], idle: Called) -> Called:
    """Return the functions that every one of these phases called and no idle one did."""
    wanted = list(phases)
    return {
        role: frozenset.intersection(*(by.get(phase, frozenset()) for phase in wanted)) - idle[role]
        for role, by in seen.items()
    }
