"""Jobs of schedules that have a retry policy, a retention of their own or a webhook."""

import pytest

from stoker.clock import SECOND
from stoker.coordinator.schedule_fields import definition_of
from stoker.domain import extras
from stoker.domain.job import JobSpec
from stoker.domain.recurrence import BadSchedule
from stoker.domain.retry_rules import RetryRules
from stoker.domain.webhooks import WEBHOOK_QUEUE
from stoker.store.base import Store
from stoker.store.reads import JobFilter, JobQuery
from stoker.store.upkeep import Retention
from stoker.wire.schedules import ScheduleFields
from tests.conformance.steps import claim, end
from tests.conformance.stores import every_job
from tests.support.clock import FakeClock
from tests.support.schedules import HOOK_HOSTS, ScheduleDriver

URL = f"https://{HOOK_HOSTS[0]}/ended"
DAY = 86_400 * SECOND


async def deliveries(store: Store) -> int:
    return len((await store.page(JobQuery(JobFilter(queue=WEBHOOK_QUEUE)))).jobs)


async def test_the_jobs_of_a_schedule_have_its_policy_retention_and_webhook(
    store: Store, clock: FakeClock
) -> None:
    driver = ScheduleDriver(store)
    retry = RetryRules(delays_sec=(1.0, 5.0))
    await driver.set(job=JobSpec(retry=retry, keep_sec=60, notify_url=URL))
    clock.advance(60)
    await driver.fire()
    (job,) = await claim(store)
    used = extras.decode(job.extras)
    assert (used.retry, used.keep_sec, used.notify_url, used.schedule) == (retry, 60, URL, "s")
    assert job.max_attempts == 3
    await end(store, job, "completed")
    assert await deliveries(store) == 1
    clock.advance(61)
    assert await store.purge(Retention(7 * DAY, 7 * DAY), 10) == 1
    assert (await store.get([job.id]))[0] is None


async def test_a_job_that_its_successor_cancels_tells_of_its_end(store: Store, clock: FakeClock) -> None:
    driver = ScheduleDriver(store)
    await driver.set(overlap="cancel_previous", job=JobSpec(keep_sec=0, notify_url=URL))
    for _ in range(2):
        clock.advance(60)
        await driver.fire()
    jobs = [job for job in await every_job(store) if job.queue != WEBHOOK_QUEUE]
    assert [job.status for job in jobs] == ["queued", "cancelled"]
    assert await deliveries(store) == 1
    clock.advance(1)
    assert await store.purge(Retention(7 * DAY, 7 * DAY), 10) == 1


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (JobSpec(notify_url="https://elsewhere.example.com/"), "job.notify_url"),
        (JobSpec(queue=WEBHOOK_QUEUE), "job.queue"),
    ],
    ids=["a host that is not listed", "the queue of deliveries"],
)
def test_a_schedule_cannot_do_what_a_submission_may_not(job: JobSpec, field: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        definition_of(ScheduleFields(cron="@daily"), job, webhook_hosts=HOOK_HOSTS)
    assert caught.value.field == field
