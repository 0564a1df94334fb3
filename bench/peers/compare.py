"""The comparison: every system takes a turn in every round, so that a machine that is busy for a while is busy for all."""

from collections.abc import Mapping, Sequence

import msgspec

from bench.command import OutOfTime
from bench.context import Run
from bench.http import BadResponse
from bench.peers.environments import interpreter, versions
from bench.peers.figures import Turn
from bench.peers.running import MEASURES, Running, Sample, Servers, running
from bench.peers.systems import PeerSystem
from bench.processes import BenchFailed

_FAILURES = (BenchFailed, BadResponse, OSError, RuntimeError)
"""What may go wrong with one system without ending the run."""


class Found(msgspec.Struct):
    """Everything that a run measured, as `--json` saves it. `failures` are lines for the reader."""

    turns: dict[str, list[Turn]]
    failures: list[str]
    failed: list[str]
    """The keys of the systems that failed in a round."""
    versions: dict[str, str]


def compare(run: Run, systems: Sequence[PeerSystem], rounds: int, seconds: float) -> Found:
    found = Found({}, [], [], {})
    pythons = _prepare(run, systems, found)
    servers = Servers(run.folder)
    try:
        for number in range(1, rounds + 1):
            for system in systems:
                if system.key in pythons:
                    label = f"round {number} of {rounds}, {system.title}"
                    _take_turn(run, system, servers, pythons[system.key], seconds, label, found)
    except OutOfTime as error:
        found.failures.append(str(error))
    finally:
        servers.stop()
    return found


def _prepare(run: Run, systems: Sequence[PeerSystem], found: Found) -> Mapping[str, str]:
    """Return the interpreter of each system that could be installed."""
    pythons: dict[str, str] = {}
    for system in systems:
        try:
            python = interpreter(system, run.progress)
            found.versions[system.key] = versions(python, system)
            pythons[system.key] = python
        except _FAILURES as error:
            found.failures.append(f"{system.title}: {error}")
            found.failed.append(system.key)
            run.progress(found.failures[-1])
    return pythons


def _take_turn(
    run: Run, system: PeerSystem, servers: Servers, python: str, seconds: float, label: str, found: Found
) -> None:
    """Measure one system once. What was measured before a failure counts."""
    samples: dict[str, Sample] = {}
    peak_mb: float | None = None
    try:
        with running(system, servers, run.folder / system.key, python) as live:
            _measure(run, live, seconds, label, samples)
            peak_mb = live.peak_mb()
    except OutOfTime:
        raise
    except _FAILURES as error:
        found.failures.append(f"{label}: {error}")
        found.failed.append(system.key)
        run.progress(f"FAILED {found.failures[-1]}")
    found.turns.setdefault(system.key, []).append(Turn(samples, peak_mb))


def _measure(run: Run, live: Running, seconds: float, label: str, samples: dict[str, Sample]) -> None:
    for measure in MEASURES:
        sample = live.measure(measure, seconds)
        if sample is not None:
            samples[measure] = sample
            run.progress(f"{label}, {measure}: {_said(sample)}")


def _said(sample: Sample) -> str:
    if sample.waits_ms:
        return f"p50 {sorted(sample.waits_ms)[len(sample.waits_ms) // 2]:.2f} ms"
    wrong = f", {sample.wrong} lost or doubled" if sample.wrong else ""
    return f"{sample.rate:,.0f} jobs/s, {sample.cpu_us:,.0f} µs of CPU a job{wrong}"
