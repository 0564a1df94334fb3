"""`stoker why` names each new reason to wait or to have ended."""

from stoker.domain import extras
from stoker.domain.explain import Facts, explain
from stoker.domain.extras import Extras
from stoker.domain.time_limits import ended
from tests.support.clock import START_US
from tests.support.jobs import a_job

TIMED = extras.encode(
    Extras(unique_key="invoice:42", expires_at=START_US + 60_000_000, deadline_at=START_US + 600_000_000)
)


def test_a_waiting_job_says_when_its_time_is_up_and_which_key_it_holds() -> None:
    said = " ".join(explain(a_job(extras=TIMED), Facts(START_US)).details)
    assert "has not started in 60 s" in said
    assert "has not ended in 10 min" in said
    assert "starts when a thread is free" in said
    assert "unique key 'invoice:42' until it has finished" in said


def test_a_running_job_has_no_expiry_left() -> None:
    job = a_job(extras=TIMED, status="running", attempt=1, claim_id=1, worker_id="w1", claimed_at=START_US)
    said = " ".join(explain(job, Facts(START_US)).details)
    assert "expires_at" not in said
    assert "deadline_at" in said


def test_an_ended_job_says_that_its_time_was_up() -> None:
    expired = explain(ended(a_job(extras=TIMED), "expired", START_US), Facts(START_US))
    assert "had not started by its expires_at" in expired.summary
    overdue = explain(ended(a_job(extras=TIMED), "overdue", START_US), Facts(START_US))
    assert "missed its deadline" in overdue.summary


def test_a_plain_job_says_nothing_of_these() -> None:
    assert not any(
        "unique" in text or "deadline" in text for text in explain(a_job(), Facts(START_US)).details
    )
