"""The table of what may happen to a job."""

from typing import get_args

import pytest

from stoker.domain.lifecycle import (
    EVENTS,
    FINAL,
    STATUSES,
    TRANSITIONS,
    UNFINISHED,
    WAITING,
    Event,
    Status,
    after,
    sources,
    target,
    targets,
    waiting,
)


def test_statuses_and_events_are_those_of_their_types() -> None:
    assert set(STATUSES) == set(get_args(Status))
    assert set(EVENTS) == set(get_args(Event))


def test_final_and_unfinished_divide_the_statuses() -> None:
    assert set(STATUSES) == FINAL | UNFINISHED
    assert not FINAL & UNFINISHED


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_pair_of_status_and_event_has_an_answer(status: Status, event: Event) -> None:
    expected = TRANSITIONS.get((status, event), ())
    assert after(status, event) == expected
    assert (status in sources(event)) == (expected != ())


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_leads_to_the_same_statuses_wherever_it_starts(event: Event) -> None:
    assert {to for (_, name), to in TRANSITIONS.items() if name == event} == {targets(event)}


@pytest.mark.parametrize("event", EVENTS)
def test_only_released_and_replayed_lead_to_several_statuses(event: Event) -> None:
    if event in ("released", "replayed"):
        assert targets(event) == WAITING
        with pytest.raises(ValueError, match="too many values"):
            target(event)
    else:
        assert (target(event),) == targets(event)


@pytest.mark.parametrize(
    ("pending_deps", "run_at", "expected"),
    [(1, 0, "blocked"), (1, 9, "blocked"), (0, 9, "scheduled"), (0, 5, "queued"), (0, 0, "queued")],
)
def test_what_a_job_waits_for_gives_its_status(pending_deps: int, run_at: int, expected: Status) -> None:
    assert waiting(pending_deps, run_at, 5) == expected


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_only_replayed_leaves_failed_and_cancelled(status: Status) -> None:
    assert [event for event in EVENTS if after(status, event)] == ["replayed"]


def test_nothing_leaves_completed() -> None:
    assert [event for event in EVENTS if after("completed", event)] == []


def test_every_unfinished_job_can_still_be_cancelled() -> None:
    assert set(sources("cancelled")) == UNFINISHED


def test_every_status_can_be_reached_and_every_unfinished_one_can_be_left() -> None:
    born: set[Status] = {"blocked", "scheduled", "queued"}
    assert born.union(*TRANSITIONS.values()) == set(STATUSES)
    assert {status for status, _ in TRANSITIONS} >= UNFINISHED


def test_only_a_claim_makes_a_job_run() -> None:
    into_running = {(status, event) for (status, event), to in TRANSITIONS.items() if "running" in to}
    assert into_running == {("queued", "claimed"), ("running", "cancel_requested")}
