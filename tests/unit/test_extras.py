"""The optional features of a job: what a submission asks for, what is stored of it, and what is refused."""

from typing import Any

import pytest

from stoker.api.handlers import idempotency
from stoker.api.handlers.idempotency import digest_of
from stoker.api.schemas.views import job_view
from stoker.domain import extras
from stoker.domain.extras import NO_EXTRAS, Extras, InvalidOption, extras_of
from stoker.domain.job import NO_DEFAULTS, JobDefaults, JobSpec
from stoker.domain.job_batch import batches_of
from stoker.domain.retry import claim_of
from stoker.domain.retry_rules import RetryRules
from tests.support.clock import START_US
from tests.support.jobs import a_job

NOW = START_US


def asked(defaults: JobDefaults = NO_DEFAULTS, **fields: Any) -> Extras:
    moment = fields.pop("moment", None)
    if moment is not None:
        fields["expires_at"] = "a time, as text"
    return extras.decode(extras_of(JobSpec(**fields), defaults, NOW, moment))


def test_a_job_that_uses_none_has_nothing_in_its_column() -> None:
    assert extras_of(JobSpec(), NO_DEFAULTS, NOW) is None
    assert extras_of(JobSpec(priority=3), JobDefaults(timeout_sec=4), NOW) is None
    assert extras.encode(NO_EXTRAS) is None
    assert extras.decode(None) is NO_EXTRAS


def test_what_is_stored_is_canonical_and_comes_back() -> None:
    used = Extras(unique_key="invoice:42", deadline_at=5, retry=RetryRules(base_sec=2.0))
    text = extras.encode(used)
    assert text == '{"unique_key":"invoice:42","deadline_at":5,"retry":{"base_sec":2.0}}'
    assert extras.decode(text) == used


def test_durations_become_points_in_time() -> None:
    assert asked(expires_in_sec=10, deadline_sec=60.5) == Extras(
        expires_at=NOW + 10_000_000, deadline_at=NOW + 60_500_000
    )


def test_what_workers_announced_counts_where_the_submission_says_nothing() -> None:
    announced = JobDefaults(expires_in_sec=5, deadline_sec=9, soft_timeout_sec=3, unique_until="started")
    assert asked(announced) == Extras(
        expires_at=NOW + 5_000_000, deadline_at=NOW + 9_000_000, soft_timeout_sec=3.0
    )
    assert asked(announced, expires_in_sec=None, deadline_sec=None, soft_timeout_sec=None) == NO_EXTRAS
    assert asked(announced, unique_key="k").unique_until == "started"
    assert asked(announced, unique_key="k", unique_until="finished").unique_until == "finished"
    assert asked(announced, moment=NOW + 1).expires_at == NOW + 1


def test_an_announced_soft_timeout_gives_way_to_a_shorter_timeout() -> None:
    assert asked(JobDefaults(soft_timeout_sec=30), timeout_sec=10) == NO_EXTRAS


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"on_conflict": "reject"}, "on_conflict"),
        ({"unique_until": "started"}, "unique_until"),
        ({"moment": NOW}, "expires_at"),
        ({"moment": NOW + 5, "expires_in_sec": 5}, "expires_at"),
        ({"soft_timeout_sec": 5, "timeout_sec": 5}, "soft_timeout_sec"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        asked(**fields)
    assert refused.value.field == field


def test_fields_that_are_left_out_do_not_change_a_digest() -> None:
    # The digest of a plain submission, as releases before these fields made it.
    assert digest_of(JobSpec()).hex() == "b80509ddb37118ef68b980b9fc84c6ab49e297a0979a481f5604b7874b7d016e"
    assert digest_of(JobSpec(expires_in_sec=None)) == digest_of(JobSpec())
    assert digest_of(JobSpec(unique_key="k")) != digest_of(JobSpec())
    assert digest_of(JobSpec(deadline_sec=4)) != digest_of(JobSpec(deadline_sec=5))


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_a_digest_does_not_depend_on_what_was_asked_before(zeros: tuple[float, float]) -> None:
    idempotency._written_once.cache_clear()
    digests = [
        digest_of(JobSpec(type=f"in {zeros}", delay_sec=zero, retry=RetryRules(jitter=zero)))
        for zero in zeros
    ]
    idempotency._written_once.cache_clear()
    again = digest_of(JobSpec(type=f"in {zeros}", delay_sec=zeros[1], retry=RetryRules(jitter=zeros[1])))
    assert digests == [again, again]


def test_jobs_with_different_extras_are_not_alike() -> None:
    one, other = '{"unique_key":"a"}', '{"unique_key":"b"}'
    jobs = [a_job(extras=text) for text in (one, one, other, None)]
    assert [len(batch) for batch in batches_of(jobs)] == [2, 1, 1]


def test_a_claim_carries_the_extras() -> None:
    assert claim_of(a_job(extras='{"deadline_at":5}')).extras == '{"deadline_at":5}'


def test_a_view_shows_only_the_extras_in_use() -> None:
    plain = job_view(a_job())
    assert plain.unique_key is plain.expires_at is plain.snoozes
    text = extras.encode(Extras(unique_key="k", expires_at=NOW, soft_timeout_sec=2.0))
    shown = job_view(a_job(extras=text))
    assert (shown.unique_key, shown.unique_until, shown.soft_timeout_sec) == ("k", "finished", 2.0)
    assert isinstance(shown.expires_at, str)
    assert shown.deadline_at is plain.deadline_at
