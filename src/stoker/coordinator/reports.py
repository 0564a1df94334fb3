"""Reports: how attempts ended, as workers tell it. Check, decide, store under the fence, acknowledge.

A report frees its threads the moment it arrives, so that the claim that fills them shares its transaction. The worker
keeps the report until it is acknowledged; when it cannot be stored the connection is given up, and the worker sends
it again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import le, sub
from typing import Final

from msgspec.structs import astuple, replace

from stoker.coordinator.observers import Observers
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import HeldClaims, WorkerSession
from stoker.domain.fingerprint import error_type
from stoker.domain.job import NULL
from stoker.domain.job_batch import claim_in_batch
from stoker.domain.json_text import are_plain, fault, is_json
from stoker.domain.retry import Claim, Kind, Outcome, RetryPolicy, decide, kind_of, problem
from stoker.domain.retry_rules import MAX_SNOOZES, NO_NOTE
from stoker.store.base import Store
from stoker.store.outcomes import Completions, Finish, Start
from stoker.wire.frames import ClaimRef, Done, Report, StartNote

NO_FIGURE: Final = 2**62
"""No store can hold a number of this size."""


class ReportSink:
    """Stores the reports of workers of every kind: releases their claims, decides outcomes, writes them, tells observers."""

    def __init__(
        self,
        store: Store,
        run_times: RunTimes,
        policy: RetryPolicy,
        *,
        max_result_bytes: int,
        spread: Callable[[], float],
        wake: Callable[[], None],
        observers: Observers,
    ) -> None:
        self._store = store
        self._run_times = run_times
        self._policy = policy
        self._max_result_bytes = max_result_bytes
        self._spread = spread
        self.wake = wake
        self._observers = observers

    def release(self, session: WorkerSession, reports: Sequence[Report]) -> list[Claim | None]:
        """Release the claims that these reports end, at once: the next frame is judged by what the session holds then."""
        held = [session.release(report.id, report.claim_id) for report in reports]
        self.wake()
        return [
            None if held_claims is None else held_claims.claim(report.id)
            for held_claims, report in zip(held, reports, strict=True)
        ]

    def release_done(self, session: WorkerSession, done: Done) -> list[HeldClaims | None]:
        """Release the claims of attempts that completed, like `release`."""
        held = session.release_many(done.ids, done.claim_ids)
        self.wake()
        return held

    async def take(
        self, session: WorkerSession, reports: Sequence[Report], released: list[Claim | None]
    ) -> list[ClaimRef]:
        """Store the reports. Return the claims of those that are stale. Raises `StoreUnavailable` if they cannot be
        stored."""
        received_at = self._store.now_us()
        claims = await self._claims(session, reports, released)
        completed: list[Completions] = []
        others: list[Finish] = []
        stale: list[ClaimRef] = []
        for claim, report in zip(claims, reports, strict=True):
            if claim is None:
                if not await self.stored_before(report):
                    stale.append(ClaimRef(report.id, report.claim_id))
            elif report.kind == "completed" and self._refuse_result(report.result) is None:
                completed.append(_completion(claim, report, received_at))
            else:
                others.append(Finish(claim, self._failure(claim, report, received_at)))
        if completed:
            stale += await self.complete(completed)
        if others:
            self._run_times.observe(
                (finish.claim.type, [finish.outcome.finished_at - finish.outcome.started_at])
                for finish in others
                if finish.outcome.started_at is not None and finish.outcome.finished_at is not None
            )
            stale += await self.store(others)
        return stale

    async def take_done(
        self, session: WorkerSession, done: Done, released: Sequence[HeldClaims | None]
    ) -> list[ClaimRef]:
        """Store attempts that completed, by the batch; return the claims of those that are stale. Attempts whose results or
        times have to be checked one by one go through `take`."""
        received_at = self._store.now_us()
        completed: list[Completions] = []
        others: list[Report] = []
        claims: list[Claim | None] = []
        first = 0
        for held_claims, run in groupby(released):
            part = slice(first, first := first + len(list(run)))
            columns = Done(*[column[part] for column in astuple(done)])
            batch = None if held_claims is None else self._completions(held_claims, columns, received_at)
            if batch is not None:
                completed.append(batch)
                continue
            others += _one_by_one(columns)
            claims += [None if held_claims is None else held_claims.claim(id) for id in columns.ids]
        if released and released[-1] is not None:
            session.note_start(released[-1], received_at - done.started_us[-1])
        stale = await self.complete(completed) if completed else []
        if others:
            stale += await self.take(session, others, claims)
        return stale

    def _completions(self, held_claims: HeldClaims, done: Done, received_at: int) -> Completions | None:
        """Return what to store for attempts of one batch; None if they have to be checked one by one. Works on columns,
        without a loop over the jobs, because every job passes here."""
        results = done.results
        if not are_plain(results, self._max_result_bytes) and any(map(self._refuse_result, results)):
            return None
        started = [received_at - us for us in done.started_us]
        finished = [received_at - us for us in done.finished_us]
        in_order = all(map(le, started, finished))
        if not (
            in_order and min(started) >= held_claims.template.claimed_at and max(finished) <= received_at
        ):
            return None
        if not _are_figures(done.cpu_us) or not _are_figures(done.peak_memory_kb):
            return None
        places = [held_claims.places[id] for id in done.ids]
        return Completions(
            held_claims.template,
            done.ids,
            [held_claims.seqs[place] for place in places],
            [held_claims.created[place] for place in places],
            started,
            finished,
            done.cpu_us,
            done.peak_memory_kb,
            results,
        )

    async def complete(self, completed: list[Completions]) -> list[ClaimRef]:
        """Write attempts that completed. Return the claims that are stale."""
        self._run_times.observe(
            (batch.claim.type, list(map(sub, batch.finished, batch.started)))
            for batch in completed
            if batch.started
        )
        stale = await self._store.complete(completed)
        if stale:
            late = [Finish(*end) for end in each(completed) if (end[0].id, end[0].claim_id) in stale]
            self._observers.ended([(finish, None) for finish in late])
            completed = [left for batch in completed if len(left := _without(batch, stale))]
        self._observers.completed(completed)
        return [ClaimRef(*key) for key in stale]

    async def store(self, finishes: Sequence[Finish]) -> list[ClaimRef]:
        """Write outcomes that are decided already. Return the claims that are stale."""
        statuses = await self._store.finish(finishes)
        if "queued" in statuses:  # a claim may have looked before this was stored
            self.wake()
        ended = list(zip(finishes, statuses, strict=True))
        self._observers.ended(ended)
        return [ClaimRef(f.claim.id, f.claim.claim_id) for f, status in ended if status is None]

    async def started(self, session: WorkerSession, notes: Sequence[StartNote]) -> None:
        now = self._store.now_us()
        starts = []
        for note in notes:
            claim = session.claim(note.id, note.claim_id)
            if claim is not None:
                starts.append(Start(claim, _ago(now, note.started_us, claim.claimed_at)))
        if starts:
            await self._store.started(starts)
            self._observers.started([start.claim.id for start in starts])

    async def hand_back(self, session: WorkerSession, claims: Sequence[Claim], why: str) -> None:
        """Give back claims that their worker never got; the attempts are not charged."""
        error = problem("handed_back", why)
        for claim in claims:
            session.release(claim.id, claim.claim_id)
        await self.store(
            [Finish(claim, Outcome("handed_back", "handed_back", error=error)) for claim in claims]
        )
        self.wake()

    async def _claims(
        self, session: WorkerSession, reports: Sequence[Report], claims: list[Claim | None]
    ) -> list[Claim | None]:
        """Return the claims behind the reports: those held here, else as the store has them (after a restart)."""
        unknown = [i for i, claim in enumerate(claims) if claim is None]
        if unknown:
            keys = [(reports[i].id, reports[i].claim_id) for i in unknown]
            for i, claim in zip(unknown, await self._store.claims(keys), strict=True):
                # A claim that is current, but of another session, is as stale as an old one for this worker.
                claims[i] = claim if claim is not None and claim.session_id == session.id else None
        return claims

    async def stored_before(self, report: Report) -> bool:
        """Return whether this report is stored already: its acknowledgement was lost, and the worker sent it again."""
        kinds: tuple[Kind, ...] = (report.kind,)
        if report.kind == "completed" and self._refuse_result(report.result) is not None:
            kinds = ("invalid",)
        elif report.kind == "error" and report.note is not None and report.note.snooze_sec is not None:
            kinds = ("snoozed", "invalid")
        attempts = await self._store.attempts(report.id)
        return any(a.claim_id == report.claim_id and a.kind in kinds for a in attempts)

    def _failure(self, claim: Claim, report: Report, received_at: int) -> Outcome:
        """Return the outcome of an attempt that did not complete, or whose result is refused."""
        kind, error = report.kind, report.error
        if kind == "completed":
            kind, error = "invalid", self._refuse_result(report.result)
        elif error is None or not is_json(error):
            error = problem(kind, f"the attempt ended as {kind}; the worker gave no readable error")
        note = NO_NOTE if report.note is None else report.note
        if kind == "error":
            kind = kind_of(kind, claim, note)
            if kind == "invalid":
                error = problem(
                    "too_many_snoozes", f"the task snoozed {MAX_SNOOZES:,} times and asks for more"
                )
            elif claim.extras is not None and error is not None:
                note = replace(note, names=[*note.names, error_type(error)])
        event, delay_us = decide(kind, claim, self._policy, self._spread(), note)
        started_at, finished_at = _times(claim, report, received_at)
        return Outcome(
            event,
            kind,
            None,
            error,
            delay_us,
            started_at,
            finished_at,
            _figure(report.cpu_us),
            _figure(report.peak_memory_kb),
        )

    def _refuse_result(self, result: bytes | None) -> bytes | None:
        if result is None:
            return None
        if len(result) > self._max_result_bytes:
            return problem(
                "result_too_large",
                f"the result has {len(result)} bytes, and {self._max_result_bytes} are allowed; "
                "store it elsewhere and return a reference",
            )
        found = fault(result)
        return (
            None if found is None else problem("invalid_result", f"the result that the worker sent {found}")
        )


def _completion(claim: Claim, report: Report, received_at: int) -> Completions:
    started_at, finished_at = _times(claim, report, received_at)
    return Completions(
        claim,
        [claim.id],
        [claim.seq],
        [claim.created_at],
        None if started_at is None else [started_at],
        [finished_at],
        [_figure(report.cpu_us)],
        [_figure(report.peak_memory_kb)],
        [report.result or NULL],
    )


def _one_by_one(done: Done) -> Iterator[Report]:
    for id, claim_id, result, *figures in zip(*astuple(done), strict=True):
        yield Report(id, claim_id, "completed", result, None, *figures)


def each(completed: Iterable[Completions]) -> Iterator[tuple[Claim, Outcome]]:
    """Yield the completions one by one."""
    for batch in completed:
        for id, created_at, row in zip(batch.ids, batch.created, batch.rows(), strict=True):
            seq, _, *times, result = row
            claim = claim_in_batch(batch.claim, id, seq, created_at)
            yield claim, Outcome("completed", "completed", result, None, 0, *times)


def _without(batch: Completions, stale: set[tuple[str, int]]) -> Completions:
    return batch.without({id for id, claim_id in stale if claim_id == batch.claim.claim_id})


def _are_figures(values: Sequence[int | None]) -> bool:
    """Return whether a store can hold all of these numbers."""
    known = [value for value in values if value is not None]
    return not known or (min(known) >= 0 and max(known) < NO_FIGURE)


def _times(claim: Claim, report: Report, received_at: int) -> tuple[int | None, int]:
    """Return when the attempt started and ended, from the durations that the worker measured."""
    if report.started_us is None:
        return None, _ago(received_at, report.finished_us, claim.claimed_at)
    return _within(claim.claimed_at, received_at, report.started_us, report.finished_us)


def _within(claimed_at: int, received_at: int, started_us: int, finished_us: int) -> tuple[int, int]:
    """Convert durations to timestamps, clamped to [claimed_at, received_at]."""
    started_at = _ago(received_at, started_us, claimed_at)
    return started_at, max(started_at, _ago(received_at, finished_us, claimed_at))


def _figure(value: int | None) -> int | None:
    """Return the number if any store can hold it, else None."""
    return value if value is not None and 0 <= value < NO_FIGURE else None


def _ago(now: int, us: int, claimed_at: int) -> int:
    """Convert a duration to a timestamp, clamped to [claimed_at, now]."""
    return min(now, max(claimed_at, now - us))
