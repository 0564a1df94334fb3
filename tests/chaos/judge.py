"""The verdict over a chaos run: the checkers' findings, and how long the dead workers' jobs took to come back."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tests.checkers.history import Change, Fault, History, Op, StoredJob, Violation
from tests.checkers.invariants import check

FINAL: Final = frozenset({"completed", "failed", "cancelled"})
MAX_RSS_KB: Final = 400 * 1024
"""What a coordinator may take, whatever is sent to it."""


class Verdict(msgspec.Struct, frozen=True):
    """One run in figures. `violations` has everything that is wrong, also what has a figure of its own."""

    store: str
    seconds: float
    faults: dict[str, int]
    """How often each kind was played, also those that never were."""
    jobs: int
    statuses: dict[str, int]
    runs: int
    """How often a job was started."""
    requests_failed: int
    keyless_unknown: int
    """Submissions without a key whose answer was lost: each may be stored or not."""
    acknowledged: int
    """Reports of which a worker was told that they are stored."""
    crashed_out: int
    """Dead letters that crashed their process three times."""
    lost: int
    doubled: int
    stuck: int
    recoveries: int
    slowest_recovery: float
    recovery_limit: float
    peak_rss_kb: int
    """Of the largest coordinator."""
    violations: list[Violation]
    skipped: list[str]

    @property
    def untried(self) -> list[str]:
        """What should have happened and did not, so that the run says nothing about it."""
        counts = {
            **self.faults,
            "a submission without a key whose answer was lost": self.keyless_unknown,
            "a report that was acknowledged": self.acknowledged,
            "a dead letter after three crashes": self.crashed_out,
        }
        return [what for what, count in counts.items() if not count]


class Recovery(msgspec.Struct, frozen=True):
    job: str
    claim: int
    seconds: float


def judge(
    history: History,
    *,
    store: str,
    seconds: float,
    kinds: Iterable[str],
    played: list[Fault],
    requests_failed: int,
    skipped: list[str],
    coordinators: int,
    findings: Iterable[Violation] = (),
    peak_rss_kb: int = 0,
) -> Verdict:
    """`findings` are what the faults and watchers of the run saw to be wrong themselves."""
    violations = [*check(history), *findings]
    if peak_rss_kb > MAX_RSS_KB:
        text = f"a coordinator took {peak_rss_kb / 1024:,.0f} MiB, {MAX_RSS_KB // 1024} are allowed"
        violations.append(Violation("memory_is_bounded", "-", text))
    limit = history.rules.lease + history.rules.rescue_slack
    recovered = list(recoveries(history, coordinators))
    violations += [
        Violation("recovery_in_time", r.job, f"claim {r.claim} came back after {r.seconds:.1f} s")
        for r in recovered
        if r.seconds > limit
    ]
    by_name = Counter(violation.invariant for violation in violations)
    return Verdict(
        store,
        seconds,
        _by_kind(kinds, played),
        len(history.jobs),
        dict(sorted(Counter(job.status for job in history.jobs).items())),
        sum(effect.what == "start" for effect in history.effects),
        requests_failed,
        sum(_is_keyless_and_unknown(op) for op in history.ops),
        sum(not ack.stale for ack in history.acks),
        sum(job.status == "failed" and job.crashes >= history.rules.crash_limit for job in history.jobs),
        by_name["acknowledged_jobs_are_stored"],
        by_name["one_outcome_per_job"] + by_name["one_job_per_key"],
        sum(not _is_over(job) for job in history.jobs),
        len(recovered),
        max((r.seconds for r in recovered), default=0.0),
        limit,
        peak_rss_kb,
        violations,
        skipped,
    )


def _by_kind(kinds: Iterable[str], played: list[Fault]) -> dict[str, int]:
    counts = Counter(dict.fromkeys(kinds, 0))
    counts.update(fault.kind for fault in played)
    return dict(sorted(counts.items()))


def _is_keyless_and_unknown(op: Op) -> bool:
    return op.what == "submit" and op.answer == "unknown" and all(item.key is None for item in op.items)


def _is_over(job: StoredJob) -> bool:
    return job.status in FINAL


def recoveries(history: History, coordinators: int) -> Iterator[Recovery]:
    """For every claim that a dead worker held: from its death, or the end of the last fault that covers it, to when the job
    was free for somebody else."""
    died = {death.session: death.at for death in history.deaths}
    hindering = [fault for fault in history.faults if _hinders(fault, coordinators)]
    held: dict[str, Change] = {}
    for change in history.journal:
        before = held.pop(change.job, None)
        if before is not None and before.worker in died and change.at > died[before.worker]:
            since = _since(max(died[before.worker], before.at), change.at, hindering)
            yield Recovery(change.job, before.claim, change.at - since)
        if change.new == "running":
            held[change.job] = change


def _since(death: float, freed: float, faults: list[Fault]) -> float:
    covering = [fault.ends for fault in faults if fault.begins < freed and fault.ends > death]
    return max([death, *(min(ends, freed) for ends in covering)])


def _hinders(fault: Fault, coordinators: int) -> bool:
    """Whether nobody can take jobs back meanwhile: the store is away or its clock was set; the only coordinator is away; or
    one of several stands still and may hold rows locked."""
    if fault.kind.startswith("store") or fault.kind == "clock":
        return True
    if fault.kind.startswith("coordinator"):
        return coordinators == 1 or fault.kind == "coordinator stopped"
    return False


# ── in words ───────────────────────────────────────────────────────────────────────────────────────────────────────


def table(verdicts: list[Verdict]) -> str:
    """The figures of all runs, in Markdown."""
    head = ["", *(verdict.store for verdict in verdicts)]
    rows: list[list[str]] = [
        ["time under load", *(f"{v.seconds:,.0f} s" for v in verdicts)],
        ["**faults**", *(f"**{sum(v.faults.values()):,}**" for v in verdicts)],
    ]
    rows += [
        [f"· {kind}", *(str(v.faults.get(kind, "-")) for v in verdicts)]
        for kind in sorted({kind for verdict in verdicts for kind in verdict.faults})
    ]
    rows += [
        ["**jobs**", *(f"**{v.jobs:,}**" for v in verdicts)],
        ["· completed / failed / cancelled", *(_outcomes(v) for v in verdicts)],
        ["· runs of them", *(f"{v.runs:,}" for v in verdicts)],
        ["requests that failed", *(f"{v.requests_failed:,}" for v in verdicts)],
        ["· sent once, without a key", *(f"{v.keyless_unknown:,}" for v in verdicts)],
        ["reports acknowledged", *(f"{v.acknowledged:,}" for v in verdicts)],
        ["dead letters after three crashes", *(f"{v.crashed_out:,}" for v in verdicts)],
        ["**lost**", *(f"**{v.lost}**" for v in verdicts)],
        ["**outcomes or jobs doubled**", *(f"**{v.doubled}**" for v in verdicts)],
        ["**stuck**", *(f"**{v.stuck}**" for v in verdicts)],
        ["other violations", *(f"{len(v.violations) - v.lost - v.doubled - v.stuck}" for v in verdicts)],
        ["jobs taken from dead workers", *(f"{v.recoveries}" for v in verdicts)],
        ["**slowest recovery**", *(f"**{v.slowest_recovery:.1f} s**" for v in verdicts)],
        ["· allowed (heartbeat timeout + 5 s)", *(f"{v.recovery_limit:.0f} s" for v in verdicts)],
        ["largest coordinator", *(f"{v.peak_rss_kb / 1024:,.0f} MiB" for v in verdicts)],
    ]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [_line(head, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
    lines += [_line(row, widths) for row in rows]
    return "\n".join(lines)


def _outcomes(verdict: Verdict) -> str:
    return " / ".join(
        f"{verdict.statuses.get(status, 0):,}" for status in ("completed", "failed", "cancelled")
    )


def _line(cells: list[str], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def together(verdicts: list[Verdict]) -> Verdict:
    """Several runs on the same store as one."""
    faults: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    for verdict in verdicts:
        faults.update(verdict.faults)
        statuses.update(verdict.statuses)
    return Verdict(
        verdicts[0].store,
        sum(v.seconds for v in verdicts),
        dict(sorted(faults.items())),
        sum(v.jobs for v in verdicts),
        dict(sorted(statuses.items())),
        sum(v.runs for v in verdicts),
        sum(v.requests_failed for v in verdicts),
        sum(v.keyless_unknown for v in verdicts),
        sum(v.acknowledged for v in verdicts),
        sum(v.crashed_out for v in verdicts),
        sum(v.lost for v in verdicts),
        sum(v.doubled for v in verdicts),
        sum(v.stuck for v in verdicts),
        sum(v.recoveries for v in verdicts),
        max(v.slowest_recovery for v in verdicts),
        verdicts[0].recovery_limit,
        max(v.peak_rss_kb for v in verdicts),
        [violation for v in verdicts for violation in v.violations],
        verdicts[0].skipped,
    )
