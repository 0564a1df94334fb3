"""What jobs that completed waited, ran and took."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.coordinator.durations import durations_of
from stoker.coordinator.metrics import Metrics
from stoker.coordinator.reports import each
from stoker.store.outcomes import Completions, Finish
from tests.support.clock import START_US
from tests.support.jobs import a_claim, completions

us = st.integers(0, 10_000_000)


@st.composite
def batches(draw: st.DrawFn) -> Completions:
    """Jobs of one batch, due at once or later, claimed by clocks that may disagree."""
    delay = draw(st.sampled_from([0, 0, 5_000]))
    created = [START_US + draw(us) for _ in range(draw(st.integers(1, 60)))]
    claim = a_claim(queue=draw(st.sampled_from(["a", "b"])), created_at=created[0], run_at=created[0] + delay)
    count = len(created)
    started = [START_US + draw(us) for _ in range(count)]
    finished = [at + draw(us) for at in started]
    nothing: list[int | None] = [None] * count
    return Completions(
        claim,
        [str(n) for n in range(count)],
        list(range(count)),
        created,
        started if draw(st.booleans()) else None,
        finished,
        nothing,
        nothing,
        [b"1"] * count,
    )


@given(st.lists(batches(), max_size=4))
def test_many_at_once_are_counted_as_one_by_one(completed: list[Completions]) -> None:
    at_once, singly = Metrics("0"), Metrics("0")
    at_once.completed(completed, durations_of(completed))
    singly.ended([(Finish(*end), "completed") for end in each(completed)])
    assert at_once.ends == singly.ends
    for one, other in ((at_once.wait, singly.wait), (at_once.run, singly.run), (at_once.total, singly.total)):
        assert vars(one) == vars(other)


def test_nothing_is_negative_whatever_the_clocks_did() -> None:
    claim = a_claim(created_at=START_US, run_at=START_US)
    batch = completions(claim, started_at=START_US - 5, finished_at=START_US - 3)
    (found,) = durations_of([batch]).values()
    assert (found.waits, found.runs, found.totals) == ([0], [2], [0])
