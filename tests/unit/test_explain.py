"""Why a job does not run: the first no that the planner would meet, and what would change it."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.clock import SECOND
from stoker.domain.explain import (
    MAX_BLOCKERS,
    POSITION_CAP,
    Code,
    Explanation,
    Facts,
    Hand,
    JobsAhead,
    explain,
    moment,
    span,
)
from stoker.domain.job import Job
from stoker.domain.job_batch import batch_of
from stoker.domain.lifecycle import STATUSES
from stoker.domain.placement import DEGRADE_AFTER_US, Lane, WorkerView, lane_key, plan, serves
from tests.support.clock import START_US
from tests.support.jobs import a_job

NOW = START_US + 60 * SECOND


def a_hand(id: str = "w1", threads: int = 4, free: int | None = None, **fields: Any) -> Hand:
    types = frozenset(fields.pop("types", ("echo",)))
    queues = fields.pop("queues", None)
    return Hand(
        id,
        f"name-{id}",
        threads,
        threads if free is None else free,
        types,
        None if queues is None else frozenset(queues),
        fields.pop("labels", {}),
        **fields,
    )


def why(job: Job, *workers: Hand, **facts: Any) -> Explanation:
    return explain(job, Facts(NOW, workers, **facts))


def queued(**fields: Any) -> Job:
    return a_job(type="echo", run_at=NOW, **fields)


@pytest.mark.parametrize(
    ("job", "workers", "code", "command"),
    [
        (queued(), [], "no_worker", "stoker worker"),
        (queued(), [a_hand(taking=False)], "no_worker", "stoker worker"),
        (queued(), [a_hand(types=["other"])], "no_worker_for_type", "stoker worker --app MODULE:APP"),
        (queued(queue="mail"), [a_hand(queues=["x"])], "no_worker_for_queue", "stoker worker --queues mail"),
        (
            queued(labels='{"gpu":"yes it is"}'),
            [a_hand(labels={"gpu": "no"})],
            "no_worker_for_labels",
            "stoker worker --label 'gpu=yes it is'",
        ),
        (queued(thread_demand=8), [a_hand()], "threads_too_large", "stoker worker --threads 8"),
        (queued(thread_demand=3), [a_hand(free=2)], "waiting_for_threads", "stoker worker --threads 3"),
        (queued(), [a_hand(free=0)], "waiting_for_threads", "stoker worker --threads 1"),
    ],
)
def test_the_first_thing_that_is_missing_is_named(
    job: Job, workers: list[Hand], code: Code, command: str
) -> None:
    found = why(job, *workers)
    assert found.code == code
    assert command in found.commands
    assert [blocker.id for blocker in found.blockers] == [hand.id for hand in workers]
    assert (found.position, found.position_capped) == (1, False)


def test_a_paused_queue_comes_before_everything_else() -> None:
    found = why(queued(queue="mail"), paused_at=NOW - 5 * SECOND)
    assert found.code == "queue_paused"
    assert found.commands == ["stoker queues resume mail"]
    assert [(blocker.kind, blocker.id) for blocker in found.blockers] == [("queue", "mail")]


def test_two_halves_do_not_make_a_worker() -> None:
    job = queued(queue="mail", labels='{"gpu":"yes"}')
    found = why(job, a_hand("w1", labels={"gpu": "yes"}, queues=["x"]), a_hand("w2", queues=["mail"]))
    assert found.code == "no_worker_for_labels"
    assert [blocker.id for blocker in found.blockers] == ["w2"]


def test_others_are_before_it() -> None:
    found = why(queued(), a_hand(threads=2, free=0), line=JobsAhead(5, "first"), run_us=2 * SECOND)
    assert found.code == "waiting_in_line"
    assert (found.position, found.position_capped) == (6, False)
    assert found.estimate_sec == 6.0
    assert ("job", "first") in [(blocker.kind, blocker.id) for blocker in found.blockers]
    assert found.summary.startswith("5 jobs stand")


def test_nobody_knows_how_long_a_line_takes_that_was_not_counted_to_its_end() -> None:
    found = why(queued(), a_hand(free=0), line=JobsAhead(POSITION_CAP, "first"), run_us=SECOND)
    assert (found.position, found.position_capped, found.estimate_sec) == (POSITION_CAP, True, None)
    assert "10,000 or more" in found.summary


def test_room_for_all_before_it_is_room_for_it() -> None:
    assert why(queued(), a_hand(free=3), line=JobsAhead(2, "x")).code == "about_to_start"
    assert why(queued(), a_hand(free=3), line=JobsAhead(3, "x")).code == "waiting_in_line"


def test_a_demand_that_is_too_large_is_lowered_after_a_while_or_never() -> None:
    hand = a_hand(threads=2)
    degrades = why(queued(thread_demand=8), hand)
    assert degrades.estimate_sec == DEGRADE_AFTER_US / SECOND
    waited = queued(thread_demand=8)
    later = explain(waited, Facts(NOW + DEGRADE_AFTER_US, [hand]))
    assert later.code == "about_to_start"
    waits = queued(thread_demand=8, on_oversize="wait")
    assert explain(waits, Facts(NOW + DEGRADE_AFTER_US, [hand])).code == "threads_too_large"


def test_jobs_that_do_not_wait() -> None:
    running = {"status": "running", "worker_id": "w1", "attempt": 2, "claimed_at": NOW}
    assert why(a_job(**running), a_hand()).code == "running"
    assert "name-w1" in why(a_job(**running, started_at=NOW - SECOND), a_hand()).summary
    assert why(a_job(**running, cancel_requested_at=NOW)).code == "cancelling"
    for status in ("completed", "failed", "cancelled"):
        assert why(a_job(status=status, completed_at=NOW)).code == "finished"
    assert "discarded" in why(a_job(status="failed", completed_at=NOW, discarded_at=NOW)).summary
    blocked = why(a_job(status="blocked", pending_deps=2))
    assert (blocked.code, blocked.position) == ("blocked", None)


def test_jobs_that_wait_for_their_time() -> None:
    later = why(a_job(status="scheduled", run_at=NOW + 90 * SECOND))
    assert (later.code, later.estimate_sec) == ("scheduled", 90.0)
    again = why(a_job(id="j", status="scheduled", attempt=1, run_at=NOW + SECOND))
    assert (again.code, again.commands) == ("backing_off", ["stoker retry j"])
    assert again.blockers[0].id == moment(NOW + SECOND)
    error = b'{"type": "RetryAfter", "message": "the task asked to be tried again after 1 s"}'
    asked = why(a_job(status="scheduled", attempt=1, run_at=NOW + SECOND, error=error))
    assert (asked.code, asked.details) == (
        "backing_off",
        ["Its task asked to be tried again then (RetryAfter)."],
    )


def test_a_large_fleet_is_not_listed_whole() -> None:
    found = why(queued(), *(a_hand(f"w{n}", types=["y"]) for n in range(500)))
    assert len(found.blockers) == MAX_BLOCKERS


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 ms"),
        (-5, "0 ms"),
        (850_000, "850 ms"),
        (1_500_000, "1.5 s"),
        (90 * SECOND, "90 s"),
        (600 * SECOND, "10 min"),
        (3 * 3_600 * SECOND, "3 h"),
        (72 * 3_600 * SECOND, "3 d"),
    ],
)
def test_spans(us: int, text: str) -> None:
    assert span(us) == text


_NAMES = st.sampled_from(["a", "b"])


@given(
    status=st.sampled_from(STATUSES),
    type=_NAMES,
    queue=_NAMES,
    labels=st.sampled_from([None, '{"k":"a"}', '{"k":"b"}']),
    demand=st.integers(1, 4),
    oversize=st.sampled_from(["degrade", "wait"]),
    waited=st.integers(0, 10) | st.just(-1),
    hands=st.lists(
        st.builds(
            lambda id, threads, used, types, queues, label, taking: Hand(
                id,
                id,
                threads,
                max(0, threads - used),
                frozenset(types),
                queues,
                {"k": label},
                taking,
            ),
            st.uuids().map(str),
            st.integers(1, 4),
            st.integers(0, 4),
            st.sets(_NAMES),
            st.none() | st.frozensets(_NAMES),
            _NAMES,
            st.booleans(),
        ),
        max_size=4,
    ),
    ahead=st.integers(0, 3),
)
def test_it_agrees_with_the_planner(
    status: Any,
    type: str,
    queue: str,
    labels: str | None,
    demand: int,
    oversize: Any,
    waited: int,
    hands: list[Hand],
    ahead: int,
) -> None:
    """With nobody ahead, a job is about to start exactly when the planner would place it."""
    job = a_job(
        status=status,
        type=type,
        queue=queue,
        labels=labels,
        thread_demand=demand,
        on_oversize=oversize,
        run_at=NOW - waited * SECOND,
    )
    found = explain(job, Facts(NOW, hands, line=JobsAhead(ahead, "x" if ahead else None)))
    assert found.code in get_args(Code)
    assert (found.position is not None) == (status == "queued")
    if status != "queued" or ahead:
        return
    lane = Lane(*lane_key(job))
    views = [WorkerView(h.id, h.threads, h.free, 0, h.types, h.queues, h.labels) for h in hands if h.taking]
    able = [view for view in views if serves(view, lane)]
    placed = (
        plan([batch_of(job)], {1: able}, now=NOW, policy="round_robin", cursor=0, run_us={}).placed
        if able
        else []
    )
    assert (found.code == "about_to_start") == bool(placed)
    missing = found.code in ("no_worker", "no_worker_for_type", "no_worker_for_queue", "no_worker_for_labels")
    assert missing == (not able)


def test_a_type_that_is_nearly_one_of_theirs_is_asked_about() -> None:
    job = a_job(type="slep", run_at=NOW)
    assert why(job, a_hand(types=["echo", "sleep"])).summary.endswith("the type slep; did you mean sleep?")
    assert why(job, a_hand(types=["other"])).summary == "No worker can run jobs of the type slep."


# ── workers that take any type ───────────────────────────────────────────────────────────────────────────────────────


def test_who_takes_any_type_counts_if_nobody_names_it() -> None:
    anything = a_hand("any", types=[], any_type=True)
    assert why(queued(), anything).code == "about_to_start"
    busy = a_hand("w1", free=0)
    assert why(queued(), busy, anything).code == "waiting_for_threads"


def test_a_type_that_was_named_lately_is_kept_for_a_while() -> None:
    found = why(queued(), a_hand("any", types=[], any_type=True), kept_until=NOW + 12 * SECOND)
    assert found.code == "no_worker_for_type"
    assert "in 12 s" in found.details[-1]
