"""Reports: what a worker says is checked, clamped and decided before it is stored."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.observers import JobObserver, Observers
from stoker.coordinator.reports import ReportSink, each
from stoker.coordinator.run_times import RunTimes
from stoker.coordinator.sessions import WorkerSession
from stoker.domain.lifecycle import Status
from stoker.domain.retry import Claim, Outcome, RetryPolicy, claim_of
from stoker.store.base import Store
from stoker.store.claims import ClaimRequest
from stoker.store.outcomes import Completions, Finish, Start
from stoker.store.reads import Attempt
from stoker.store.sqlite.store import SqliteStore
from stoker.wire.frames import PROTOCOL, ClaimRef, Done, Hello, Report, StartNote
from tests.support.clock import START_US, FakeClock
from tests.support.jobs import a_claim, a_job, a_submission, a_worker

MAX_RESULT = 2_000


class FakeStore:
    """Holds claims by (job, number) and writes each outcome once, as a store would."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.current: dict[tuple[str, int], Claim] = {}
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        self.starts: list[Start] = []

    def now_us(self) -> int:
        return self._clock.now_us()

    async def claims(self, keys: Sequence[tuple[str, int]]) -> list[Claim | None]:
        return [self.current.get(key) for key in keys]

    async def attempts(self, id: str) -> list[Attempt]:
        return []

    async def finish(self, finishes: Sequence[Finish]) -> list[Status | None]:
        return [self._finish(finish) for finish in finishes]

    async def complete(self, done: Sequence[Completions]) -> set[tuple[str, int]]:
        ends = [Finish(*end) for end in each(done)]
        return {(end.claim.id, end.claim.claim_id) for end in ends if self._finish(end) is None}

    def _finish(self, finish: Finish) -> Status | None:
        key = (finish.claim.id, finish.claim.claim_id)
        if key not in self.current:
            return None
        del self.current[key]
        self.outcomes[key] = finish.outcome
        return finish.outcome.status

    async def started(self, starts: Sequence[Start]) -> None:
        self.starts += starts


class SinkUnderTest(JobObserver):
    """A sink with everything around it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.store = FakeStore(clock)
        self.run_times = RunTimes()
        self.session = WorkerSession(Hello(PROTOCOL, "w1", "n", 4, ["echo"]), lambda frame: None)
        self.ends: list[tuple[Finish, Status | None]] = []
        self.completions: list[Completions] = []
        self.wakes = 0
        self.sink = self.sink_for(self.store)  # type: ignore[arg-type]  # the part of a store that a sink uses

    def sink_for(self, store: Store) -> ReportSink:
        return ReportSink(
            store,
            self.run_times,
            RetryPolicy(jitter=0.5),
            max_result_bytes=MAX_RESULT,
            spread=lambda: 1.0,
            wake=self._wake,
            observers=Observers(self),
        )

    def _wake(self) -> None:
        self.wakes += 1

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        self.completions += completed

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        self.ends += ended

    def holds(self, **fields: Any) -> Claim:
        claim = a_claim(**fields)
        self.session.hold(claim)
        self.store.current[claim.id, claim.claim_id] = claim
        return claim

    async def take(self, *reports: Report) -> list[ClaimRef]:
        return await self.sink.take(self.session, reports, self.sink.release(self.session, reports))

    async def take_done(self, done: Done) -> list[ClaimRef]:
        return await self.sink.take_done(self.session, done, self.sink.release_done(self.session, done))

    async def outcome(self, kind: Any = "completed", **fields: Any) -> Outcome:
        """What is stored for one report of a fresh claim."""
        claim = self.holds()
        assert await self.take(Report(claim.id, claim.claim_id, kind, **fields)) == []
        return self.store.outcomes[claim.id, claim.claim_id]


@pytest.fixture
def tested(clock: FakeClock) -> SinkUnderTest:
    clock.advance(60)
    return SinkUnderTest(clock)


def problem_of(outcome: Outcome) -> str:
    assert outcome.error is not None
    return str(msgspec.json.decode(outcome.error)["type"])


# ── results and errors ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_result_is_stored_as_it_came(tested: SinkUnderTest) -> None:
    outcome = await tested.outcome(result=b'{"a": 1}', cpu_us=3, peak_memory_kb=4)
    assert (outcome.event, outcome.result, outcome.error) == ("completed", b'{"a": 1}', None)
    assert (outcome.cpu_us, outcome.peak_memory_kb) == (3, 4)


async def test_no_result_is_null(tested: SinkUnderTest) -> None:
    assert (await tested.outcome()).result == b"null"


async def test_a_result_that_is_too_large_fails_the_job_without_a_retry(tested: SinkUnderTest) -> None:
    exact = b'"' + b"x" * (MAX_RESULT - 2) + b'"'
    assert (await tested.outcome(result=exact)).event == "completed"
    outcome = await tested.outcome(result=exact + b" ")
    assert (outcome.event, outcome.kind, outcome.result) == ("failed", "invalid", None)
    assert problem_of(outcome) == "result_too_large"


@pytest.mark.parametrize("result", [b"", b"{", b"nope", b'"\xff"', b'{"a":NaN}', b"[" * 90, b"1 2", b"\x00"])
async def test_a_result_that_is_not_json_fails_the_job(tested: SinkUnderTest, result: bytes) -> None:
    outcome = await tested.outcome(result=result)
    assert (outcome.event, outcome.result) == ("failed", None)
    assert problem_of(outcome) == "invalid_result"


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (b"[" * 300 + b"]" * 300, "is nested more than 256 levels deep"),
        (b"9" * 1_001, "contains a number of more than 1,000 digits"),
        (b"1e999", "contains a number that is too large"),
        (b"{", "is not JSON"),
    ],
)
async def test_what_is_wrong_with_a_result_is_said(tested: SinkUnderTest, result: bytes, says: str) -> None:
    outcome = await tested.outcome(result=result)
    assert (outcome.event, outcome.kind) == ("failed", "invalid")
    assert outcome.error is not None
    told = msgspec.json.decode(outcome.error)
    assert (told["type"], told["message"]) == ("invalid_result", f"the result that the worker sent {says}")


@pytest.mark.parametrize("result", [b"123456789012345678901234567890", b'"\\u0000"', b"-0.0", b"[[[]]]"])
async def test_unusual_json_is_json_all_the_same(tested: SinkUnderTest, result: bytes) -> None:
    assert (await tested.outcome(result=result)).result == result


@pytest.mark.parametrize("error", [None, b"", b"not json", b'"\xff"'])
async def test_an_unreadable_error_is_replaced_by_one_that_says_so(
    tested: SinkUnderTest, error: bytes | None
) -> None:
    outcome = await tested.outcome("timeout", error=error)
    assert problem_of(outcome) == "timeout"


async def test_an_error_is_retried_after_its_backoff(tested: SinkUnderTest) -> None:
    outcome = await tested.outcome("error", error=b'{"type":"E","message":"m"}')
    assert (outcome.event, outcome.delay_us) == ("retried", 3_000_000)
    assert outcome.error == b'{"type":"E","message":"m"}'


async def test_a_failed_attempt_stores_no_result(tested: SinkUnderTest) -> None:
    assert (await tested.outcome("error", result=b"1")).result is None


# ── times ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_durations_become_points_on_the_stores_clock(tested: SinkUnderTest) -> None:
    now = tested.clock.now_us()
    outcome = await tested.outcome(started_us=5_000, finished_us=2_000)
    assert (outcome.started_at, outcome.finished_at) == (now - 5_000, now - 2_000)


@given(
    started_us=st.one_of(st.none(), st.integers(-(2**63), 2**64 - 1)),
    finished_us=st.integers(-(2**63), 2**64 - 1),
    skew=st.integers(-(10**9), 10**9),
)
def test_whatever_a_worker_says_times_stay_possible(
    started_us: int | None, finished_us: int, skew: int
) -> None:
    clock = FakeClock()
    tested = SinkUnderTest(clock)
    claim = tested.holds(claimed_at=START_US + skew)
    report = Report(claim.id, 1, "completed", started_us=started_us, finished_us=finished_us)
    assert asyncio.run(tested.take(report)) == []
    ((_, _, started_at, finished_at, _, _, _),) = tested.completions[-1].rows()
    assert finished_at <= START_US
    if skew <= 0:
        assert finished_at >= claim.claimed_at
    if started_us is not None:
        assert started_at is not None
        assert started_at <= finished_at
        claim = tested.holds(claimed_at=START_US + skew)
        done = Done([claim.id], [1], [b"1"], [started_us], [finished_us], [None], [None])
        assert asyncio.run(tested.take_done(done)) == []
        assert next(tested.completions[-1].rows())[2:4] == (started_at, finished_at)


@pytest.mark.parametrize("figure", [-1, 2**63, 2**64 - 1])
async def test_absurd_figures_are_clamped_to_what_a_store_can_hold(
    tested: SinkUnderTest, figure: int
) -> None:
    """Else a single such report could never be stored, and its worker would send it for ever."""
    outcome = await tested.outcome(cpu_us=figure, peak_memory_kb=figure)
    for stored in (outcome.cpu_us, outcome.peak_memory_kb):
        assert stored is None or 0 <= stored < 2**63


async def test_run_times_are_learned_from_reports(tested: SinkUnderTest) -> None:
    await tested.outcome(started_us=700, finished_us=200)
    assert tested.run_times.view() == {"echo": 500}


# ── claims ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_report_frees_its_threads_before_it_is_stored_and_wakes_dispatch(
    tested: SinkUnderTest,
) -> None:
    claim = tested.holds()
    assert tested.session.view().free == 3
    tested.sink.release(tested.session, [Report(claim.id, 1, "completed")])
    assert tested.session.view().free == 4
    assert tested.wakes == 1


async def test_a_report_of_a_claim_that_only_the_store_knows_is_taken(tested: SinkUnderTest) -> None:
    claim = a_claim()
    tested.store.current[claim.id, 1] = claim
    assert await tested.take(Report(claim.id, 1, "completed")) == []
    assert (claim.id, 1) in tested.store.outcomes


async def test_a_report_of_another_sessions_claim_is_stale(tested: SinkUnderTest) -> None:
    claim = a_claim(session_id="somebody else")
    tested.store.current[claim.id, 1] = claim
    assert await tested.take(Report(claim.id, 1, "completed")) == [ClaimRef(claim.id, 1)]
    assert tested.store.outcomes == {}


async def test_only_the_stale_report_of_a_batch_is_named(tested: SinkUnderTest) -> None:
    good, late = tested.holds(), tested.holds()
    del tested.store.current[late.id, 1]
    reports = [Report(id, 1, "completed") for id in (good.id, "unknown", late.id)]
    assert await tested.take(*reports) == [ClaimRef("unknown", 1), ClaimRef(late.id, 1)]
    assert list(tested.store.outcomes) == [(good.id, 1)]
    assert [batch.ids for batch in tested.completions] == [[good.id]]
    assert [(finish.claim, status) for finish, status in tested.ends] == [(late, None)]


async def test_a_report_that_was_stored_already_is_not_stale_when_it_is_sent_again(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The acknowledgement was lost: the worker sends again what is stored, and must not be told to discard it."""
    tested = SinkUnderTest(clock)
    store = await SqliteStore.open(tmp_path / "s.db", clock, threads=False)
    try:
        sink = tested.sink_for(store)
        await store.insert([a_submission(a_job())])
        (grant,) = (await store.claim(ClaimRequest([a_worker("w1")], "round_robin", 0, {}))).grants
        job = grant.batch.template
        tested.session.hold(claim_of(job))
        reports = [Report(job.id, 1, "completed", b"1")]
        assert await sink.take(tested.session, reports, sink.release(tested.session, reports)) == []
        assert await sink.take(tested.session, reports, sink.release(tested.session, reports)) == []
    finally:
        await store.close()


async def test_starts_are_recorded_only_for_claims_that_are_held(tested: SinkUnderTest) -> None:
    claim = tested.holds()
    now = tested.clock.now_us()
    await tested.sink.started(
        tested.session,
        [StartNote(claim.id, 1, 500), StartNote(claim.id, 2, 500), StartNote("unknown", 1, 500)],
    )
    assert tested.store.starts == [Start(claim, now - 500)]


async def test_a_report_that_puts_a_job_back_wakes_dispatch_again_once_it_is_stored(
    tested: SinkUnderTest,
) -> None:
    claim = tested.holds()
    reports = [Report(claim.id, claim.claim_id, "handed_back")]
    released = tested.sink.release(tested.session, reports)
    before = tested.wakes
    await tested.sink.take(tested.session, reports, released)
    assert tested.wakes == before + 1


async def test_a_hand_back_is_uncharged_frees_its_threads_and_wakes_dispatch(tested: SinkUnderTest) -> None:
    claim = tested.holds()
    await tested.sink.hand_back(tested.session, [claim], "lost on the way")
    outcome = tested.store.outcomes[claim.id, 1]
    assert (outcome.event, outcome.kind, problem_of(outcome)) == ("handed_back", "handed_back", "handed_back")
    assert tested.session.view().free == 4
    assert tested.wakes >= 1


# ── attempts that completed, in columns ────────────────────────────────────────────────────────────────────────────


def done_of(*claims: Claim, results: Sequence[bytes] | None = None, **figures: int) -> Done:
    """All of these completed, a moment ago."""
    count = len(claims)
    return Done(
        [claim.id for claim in claims],
        [claim.claim_id for claim in claims],
        list(results or [b'"done"'] * count),
        [figures.get("started_us", 700)] * count,
        [figures.get("finished_us", 200)] * count,
        [figures.get("cpu_us", 3)] * count,
        [figures.get("peak_memory_kb", 4)] * count,
    )


def hold_batch(tested: SinkUnderTest, count: int) -> list[Claim]:
    """Claims of one batch, held together."""
    template = a_claim()
    claims = [
        replace(template, id=f"{template.id}-{n}", seq=template.seq + n, created_at=START_US + n)
        for n in range(count)
    ]
    claims = [replace(claim, run_at=claim.created_at) for claim in claims]
    tested.session.hold_batch(
        claims[0],
        [claim.id for claim in claims],
        [claim.seq for claim in claims],
        [claim.created_at for claim in claims],
        100,
        1,
    )
    tested.store.current.update({(claim.id, claim.claim_id): claim for claim in claims})
    return claims


async def test_a_batch_that_completed_is_stored_as_one(tested: SinkUnderTest) -> None:
    claims = hold_batch(tested, 3)
    now = tested.clock.now_us()
    assert await tested.take_done(done_of(*claims, results=[b"1", b"2", b"3"])) == []
    (batch,) = tested.completions
    assert batch.ids == [claim.id for claim in claims]
    assert batch.created == [claim.created_at for claim in claims]
    times = (now - 700, now - 200, 3, 4)
    assert list(batch.rows()) == [(c.seq, 1, *times, b"%d" % n) for n, c in enumerate(claims, 1)]
    assert tested.session.held == {}
    assert tested.run_times.view() == {"echo": 500}


async def test_each_of_a_batch_can_be_told_from_the_others(tested: SinkUnderTest) -> None:
    claims = hold_batch(tested, 3)
    await tested.take_done(done_of(*claims))
    assert [claim for claim, _ in each(tested.completions)] == claims
    assert hold_batch(tested, 2) == tested.session.claims


async def test_batches_that_come_mixed_are_stored_apart(tested: SinkUnderTest) -> None:
    one, other = hold_batch(tested, 2), hold_batch(tested, 2)
    assert await tested.take_done(done_of(one[0], other[0], one[1], other[1])) == []
    assert [batch.ids for batch in tested.completions] == [
        [one[0].id],
        [other[0].id],
        [one[1].id],
        [other[1].id],
    ]
    assert [claim for claim, _ in each(tested.completions)] == [one[0], other[0], one[1], other[1]]


async def test_of_a_batch_only_what_came_too_late_is_stale(tested: SinkUnderTest) -> None:
    claims = hold_batch(tested, 3)
    del tested.store.current[claims[1].id, 1]
    assert await tested.take_done(done_of(*claims)) == [ClaimRef(claims[1].id, 1)]
    assert [batch.ids for batch in tested.completions] == [[claims[0].id, claims[2].id]]
    assert [(finish.claim, status) for finish, status in tested.ends] == [(claims[1], None)]


async def test_a_column_may_name_claims_that_only_the_store_knows(tested: SinkUnderTest) -> None:
    held, known, unknown = tested.holds(), a_claim(), a_claim()
    tested.store.current[known.id, 1] = known
    assert await tested.take_done(done_of(held, known, unknown)) == [ClaimRef(unknown.id, 1)]
    assert set(tested.store.outcomes) == {(held.id, 1), (known.id, 1)}


@pytest.mark.parametrize("result", [b"{", b"", b"\xff", b"1e999", b'"' + b"x" * MAX_RESULT + b'"'])
async def test_a_result_that_cannot_be_taken_fails_its_own_job_alone(
    tested: SinkUnderTest, result: bytes
) -> None:
    claims = hold_batch(tested, 3)
    assert await tested.take_done(done_of(*claims, results=[b"1", result, b"3"])) == []
    outcomes = [tested.store.outcomes[claim.id, 1] for claim in claims]
    assert [outcome.event for outcome in outcomes] == ["completed", "failed", "completed"]


async def test_a_large_result_is_taken_with_the_others(tested: SinkUnderTest) -> None:
    claims = hold_batch(tested, 2)
    large = b'"' + b"x" * (MAX_RESULT - 2) + b'"'
    assert await tested.take_done(done_of(*claims, results=[b"1", large])) == []
    assert tested.store.outcomes[claims[1].id, 1].result == large


@pytest.mark.parametrize("figure", [-1, 2**63, 2**64 - 1])
async def test_absurd_figures_in_a_column_are_no_figures(tested: SinkUnderTest, figure: int) -> None:
    claims = hold_batch(tested, 2)
    await tested.take_done(done_of(*claims, cpu_us=figure, peak_memory_kb=figure))
    assert [row[4:6] for batch in tested.completions for row in batch.rows()] == [(None, None)] * 2
