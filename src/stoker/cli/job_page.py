"""How `stoker job` shows one job to people: what became of it first, then where it runs, then when.

Fields that say nothing (no labels, no crashes) are left out, and so is what only programs need; `--json` has all of them. A
field that is not known here, such as one of a later release, is shown under its own name.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from stoker.cli import output

Facts = dict[str, object]

_ELSEWHERE = {
    "payload",
    "result",
    "attempts",
    "claim_id",
    "claimed_at",
    "run_at",
    "next_attempt_at",
    "warnings",
}
_DEFAULTS: Facts = {"on_oversize": "degrade", "crashes": 0, "snoozes": 0}
"""Values that are not worth a line."""


def print_job(job: dict[str, Any]) -> None:
    """The facts of a job in groups, its traceback, and a table of its attempts."""
    for number, facts in enumerate(grouped(job, datetime.now(UTC))):
        if number:
            print()
        output.print_facts(facts)
    error = job.get("error")
    if error and error.get("traceback"):
        print()
        for line in error["traceback"].splitlines():
            print(output.plain(line) if line else "")
    if job.get("attempts"):
        print()
        _ATTEMPTS.print(job["attempts"])


def grouped(job: dict[str, Any], now: datetime) -> list[Facts]:
    """Return what a job is and how it went; where it runs and what it may use; when. Groups without facts are left out."""
    left = {
        name: value for name, value in job.items() if name not in _ELSEWHERE and value not in (None, {}, [])
    }
    result = job.get("result")
    went: Facts = {
        "id": left.pop("id"),
        "type": left.pop("type", None),
        "name": left.pop("name", None),
        "status": _status(job, left, now),
        "error": one_line(left.pop("error", None)),
        "progress": _progress(left.pop("progress", None)),
        "result": "null" if result is None and job["status"] == "completed" else result,
        "payload": job.get("payload"),
    }
    runs: Facts = {
        "queue": left.pop("queue", None),
        "priority": output.priority_name(left.pop("priority", None)),
        "worker": left.pop("worker_id", None),
        "threads": _threads(left.pop("thread_demand", None), left.pop("threads_granted", None)),
        "timeout": seconds(left.pop("timeout_sec", None)),
        "soft timeout": seconds(left.pop("soft_timeout_sec", None)),
        "memory": _megabytes(left.pop("memory_mb", None)),
        "labels": _pairs(left.pop("labels", None)),
        "metadata": _pairs(left.pop("metadata", None)),
    }
    when: Facts = {
        "created": _moment(left.pop("created_at", None), now),
        "started": _moment(left.pop("started_at", None), now),
        "ended": _moment(left.pop("completed_at", None), now),
        "took": _took(left),
        "used": _used(left),
    }
    more = {name: value for name, value in left.items() if _DEFAULTS.get(name) != value}
    groups = (went, runs, when, more)
    return [group for group in groups if any(value is not None for value in group.values())]


def _status(job: dict[str, Any], left: dict[str, Any], now: datetime) -> str:
    attempt, most = left.pop("attempt", None) or 0, left.pop("max_attempts", None)
    status = output.status_words(left.pop("status"), attempt, most, job.get("run_at"), now)
    parts = [status]
    if attempt and job["status"] != "scheduled":
        parts.append(f"attempt {attempt} of {most}")
    if left.pop("cancel_requested_at", None) and job["status"] == "running":
        parts.append("to be stopped")
    if left.pop("discarded_at", None):
        parts.append("discarded")
    return ", ".join(parts)


def _threads(demand: int | None, granted: int | None) -> str | None:
    if demand is None or granted is None or demand == granted:
        return None if demand is None else str(demand)
    return f"{granted} of {demand} wanted"


def _megabytes(size: int | None) -> str | None:
    return None if size is None else f"{size} MB at most"


def _pairs(values: dict[str, str] | None) -> str | None:
    return " ".join(f"{key}={value}" for key, value in values.items()) if values else None


def _moment(text: str | None, now: datetime) -> str | None:
    """A time of the API in the reader's zone, and how long ago it was."""
    if text is None:
        return None
    ago = output.age(text, now)
    return f"{_local(text)}, {ago if ago.startswith('in ') else f'{ago} ago'}"


def _local(text: str | None) -> str | None:
    return None if text is None else f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _between(start: str | None, end: str | None) -> str | None:
    if start is None or end is None:
        return None
    passed = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return output.duration(max(passed.total_seconds(), 0))


def _took(left: dict[str, Any]) -> str | None:
    """Return how long the job waited, ran, and took from its submission to its end."""
    named = {"waited": "queue_time_sec", "ran": "execution_time_sec", "in total": "total_time_sec"}
    told = {name: left.pop(field, None) for name, field in named.items()}
    parts = [f"{name} {output.duration(value)}" for name, value in told.items() if value is not None]
    return ", ".join(parts) or None


def _used(left: dict[str, Any]) -> str | None:
    cpu, memory = left.pop("cpu_seconds", None), left.pop("peak_memory_kb", None)
    parts = [] if cpu is None else [f"{output.duration(cpu)} of CPU"]
    return ", ".join(parts if memory is None else [*parts, f"{memory / 1024:.0f} MiB at most"]) or None


def _progress(progress: dict[str, Any] | None) -> str | None:
    """`43%, 3 of 7 a.png`; without a total `3 a.png`."""
    if progress is None:
        return None
    share = "" if progress.get("percent") is None else f"{progress['percent']:.0f}%, "
    total = "" if progress.get("total") is None else f" of {progress['total']:g}"
    message = f" {progress['message']}" if progress.get("message") else ""
    return f"{share}{progress['done']:g}{total}{message}"


_ATTEMPTS = output.Listing(
    {
        "ATTEMPT": "attempt",
        "OUTCOME": lambda attempt: output.outcome_words(attempt.get("outcome")),
        "WORKER": "worker_id",
        "STARTED": lambda attempt: _local(attempt.get("started_at")),
        "RAN": lambda attempt: _between(attempt.get("started_at"), attempt.get("finished_at")),
        "RETRY AFTER": lambda attempt: seconds(attempt.get("retry_delay_sec")),
        "ERROR": lambda attempt: one_line(attempt.get("error")),
    },
    spare=["WORKER", "RETRY AFTER", "RAN", "STARTED"],
)


def one_line(error: dict[str, Any] | None) -> str | None:
    """Return the class and message of an error."""
    if error is None:
        return None
    return ": ".join(str(error[part]) for part in ("type", "message") if error.get(part))


def seconds(value: float | None) -> str | None:
    """A duration in seconds, with one digit after the point."""
    return None if value is None else f"{value:.1f}s"
