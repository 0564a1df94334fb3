"""Reports: how attempts ended, as workers tell it. Check, decide, store under the fence, acknowledge.

A report frees its threads the moment it arrives, so that the claim that fills them shares its transaction. The worker
keeps the report until it is acknowledged; when it cannot be stored the connection is given up, and the worker sends
it again.
"""

from collections.abc import Callable, Sequence

from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import WorkerSession
from stoker.domain.job import NULL
from stoker.domain.json_text import fault, is_json
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Claim, Kind, Outcome, RetryPolicy, decide, problem
from stoker.store.base import Finish, Start, Store
from stoker.wire.frames import ClaimRef, Report, StartNote

Finished = Callable[[Sequence[tuple[Finish, Status | None]]], None]


class ReportSink:
    """Where reports of all kinds of workers go."""

    def __init__(
        self,
        store: Store,
        run_times: RunTimes,
        policy: RetryPolicy,
        *,
        max_result_bytes: int,
        spread: Callable[[], float],
        wake: Callable[[], None],
        finished: Finished,
        began: Callable[[Sequence[str]], None] = lambda ids: None,
    ) -> None:
        """`finished` and `began` are told of what was stored."""
        self._store = store
        self._run_times = run_times
        self._policy = policy
        self._max_result_bytes = max_result_bytes
        self._spread = spread
        self.wake = wake
        self._finished = finished
        self._began = began

    def release(self, session: WorkerSession, reports: Sequence[Report]) -> list[Claim | None]:
        """Set free what these reports end, at once: the next frame is judged by what the session holds then."""
        claims = [session.release(report.id, report.claim_id) for report in reports]
        self.wake()
        return claims

    async def take(
        self, session: WorkerSession, reports: Sequence[Report], released: list[Claim | None]
    ) -> list[ClaimRef]:
        """Store the reports; those that came too late. Raises `StoreUnavailable` when they could not be stored."""
        received_at = self._store.now_us()
        claims = await self._claims(session, reports, released)
        finishes = [
            Finish(claim, self._outcome(claim, report, received_at))
            for claim, report in zip(claims, reports, strict=True)
            if claim is not None
        ]
        stale: list[ClaimRef] = []
        if len(finishes) < len(reports):
            stale = [
                ClaimRef(report.id, report.claim_id)
                for claim, report in zip(claims, reports, strict=True)
                if claim is None and not await self._stored_before(report)
            ]
        self._run_times.observe(
            (finish.claim.type, finish.outcome.finished_at - finish.outcome.started_at)
            for finish in finishes
            if finish.outcome.started_at is not None and finish.outcome.finished_at is not None
        )
        if finishes:
            stale += await self.store(finishes)
        return stale

    async def store(self, finishes: Sequence[Finish]) -> list[ClaimRef]:
        """Write outcomes that are already decided; those whose claim was not current any more."""
        statuses = await self._store.finish(finishes)
        if "queued" in statuses:  # a claim may have looked before this was stored
            self.wake()
        ended = list(zip(finishes, statuses, strict=True))
        self._finished(ended)
        return [ClaimRef(f.claim.id, f.claim.claim_id) for f, status in ended if status is None]

    async def started(self, session: WorkerSession, notes: Sequence[StartNote]) -> None:
        now = self._store.now_us()
        starts = []
        for note in notes:
            holding = session.held.get(note.id)
            if holding is not None and holding.claim.claim_id == note.claim_id:
                starts.append(Start(holding.claim, _ago(now, note.started_us, holding.claim)))
        if starts:
            await self._store.started(starts)
            self._began([start.claim.id for start in starts])

    async def hand_back(self, session: WorkerSession, claims: Sequence[Claim], why: str) -> None:
        """Return claims that their worker never got, without charging anybody."""
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
        """The claims behind the reports: those held here, else as the store knows them (after a restart)."""
        unknown = [i for i, claim in enumerate(claims) if claim is None]
        if unknown:
            keys = [(reports[i].id, reports[i].claim_id) for i in unknown]
            for i, claim in zip(unknown, await self._store.claims(keys), strict=True):
                # A claim that is current, but of another session, is as stale as an old one for this worker.
                claims[i] = claim if claim is not None and claim.session_id == session.id else None
        return claims

    async def _stored_before(self, report: Report) -> bool:
        """Whether this very end is stored already: its acknowledgement was lost, and the worker sent it again."""
        kind: Kind = report.kind
        if kind == "completed" and self._refuse_result(report.result) is not None:
            kind = "invalid"
        attempts = await self._store.attempts(report.id)
        return any(a.claim_id == report.claim_id and a.kind == kind for a in attempts)

    def _outcome(self, claim: Claim, report: Report, received_at: int) -> Outcome:
        if report.kind == "completed" and self._refuse_result(report.result) is None:
            started_at, finished_at = _times(claim, report, received_at)
            return Outcome(
                "completed",
                "completed",
                report.result or NULL,
                None,
                0,
                started_at,
                finished_at,
                _figure(report.cpu_us),
                _figure(report.peak_memory_kb),
            )
        return self._failure(claim, report, received_at)

    def _failure(self, claim: Claim, report: Report, received_at: int) -> Outcome:
        """The outcome of an attempt that did not complete, or whose result cannot be taken."""
        kind, error = report.kind, report.error
        if kind == "completed":
            kind, error = "invalid", self._refuse_result(report.result)
        elif error is None or not is_json(error):
            error = problem(kind, f"the attempt ended as {kind}; the worker gave no readable error")
        event, delay_us = decide(kind, claim, self._policy, self._spread())
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


def _times(claim: Claim, report: Report, received_at: int) -> tuple[int | None, int]:
    """When the attempt started and ended, from the durations that the worker measured."""
    started_us, finished_us = report.started_us, report.finished_us
    if started_us is None:
        return None, _ago(received_at, finished_us, claim)
    possible_us = received_at - claim.claimed_at
    if 0 <= finished_us <= started_us <= possible_us:
        return received_at - started_us, received_at - finished_us
    started_at = _ago(received_at, started_us, claim)
    return started_at, max(started_at, _ago(received_at, finished_us, claim))


def _figure(value: int | None) -> int | None:
    """A figure that any store can hold; whatever else a worker sent is no figure."""
    return value if value is not None and 0 <= value < 2**62 else None


def _ago(now: int, us: int, claim: Claim) -> int:
    """A point in time from a duration that a worker measured, kept within what is possible."""
    at = now - us
    if at < claim.claimed_at:
        at = claim.claimed_at
    return min(now, at)
