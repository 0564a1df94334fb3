"""Ends on their way into report frames."""

import msgspec
import pytest

from stoker.executors.pipe import OutcomeBatch, WorkOutcome
from stoker.wire import codec
from stoker.wire.frames import Done, Report, Reports
from stoker.worker import ends
from stoker.worker.ends import REPORT_FRAME_BYTES, REPORT_FRAME_JOBS, Unreported, frame, report_at, split

ERROR = b'{"type":"error","message":"no"}'


def outcomes(*ids: str, result: bytes = b"1", others: list[WorkOutcome] | None = None) -> OutcomeBatch:
    n = len(ids)
    return OutcomeBatch(
        [0] * n, [result] * n, [10.0] * n, [10.5] * n, [7] * n, [None] * n, list(ids), [1] * n, others or []
    )


def failed(id: str) -> WorkOutcome:
    return WorkOutcome(0, "error", None, ERROR, 10.0, 10.25, id=id, claim_id=2)


def ids_of(batches: list[OutcomeBatch]) -> list[list[str]]:
    return [[ended.id for ended in batch] for batch in batches]


def test_a_lone_job_is_reported_at_once_and_short_ones_wait_for_each_other() -> None:
    assert report_at(100.0, 99.0, more=False) <= 100.0
    assert report_at(100.0, 99.999, more=False) == pytest.approx(100.004)
    assert report_at(100.0, 99.0, more=True) == pytest.approx(100.003)
    assert report_at(100.0, 99.999, more=True) == pytest.approx(100.004)


def test_what_completed_goes_in_columns_and_the_rest_beside_it() -> None:
    found = frame(outcomes("a", "b", others=[failed("c")]), 3, 11.0, batches=True)
    assert found == Reports(
        3,
        [Report("c", 2, "error", None, ERROR, 1_000_000, 750_000)],
        Done(["a", "b"], [1, 1], [b"1"] * 2, [1_000_000] * 2, [500_000] * 2, [7, 7], [None, None]),
    )
    assert codec.decode_from_worker(codec.encode(found)) == found


def test_a_coordinator_that_reads_no_batches_gets_the_same_one_by_one() -> None:
    found = frame(outcomes("a", others=[failed("c")]), 3, 11.0, batches=False)
    assert found == Reports(
        3,
        [
            Report("a", 1, "completed", b"1", None, 1_000_000, 500_000, 7),
            Report("c", 2, "error", None, ERROR, 1_000_000, 750_000),
        ],
    )


@pytest.mark.parametrize("batches", [True, False])
def test_times_are_told_as_of_the_moment_of_sending_and_never_lie_ahead(batches: bool) -> None:
    batch = outcomes("a")
    for now, ago in ((10.5, 0), (70.5, 60_000_000), (9.0, 0)):
        found = frame(batch, 1, now, batches=batches)
        finished = found.reports[0].finished_us if found.done is None else found.done.finished_us[0]
        assert finished == ago


def test_without_completed_ones_there_are_no_columns() -> None:
    assert frame(outcomes(others=[failed("a")]), 1, 11.0, batches=True).done is None


def test_what_ended_later_joins_the_same_frame_in_the_same_columns() -> None:
    assert not OutcomeBatch()
    merged = OutcomeBatch.merged([outcomes("a", others=[failed("b")]), outcomes("c")])
    assert [ended.id for ended in merged] == ["a", "c", "b"]
    assert len(merged) == 3
    unreported = Unreported()
    unreported.in_batches = True
    unreported.unsent += [outcomes("a", others=[failed("b")]), outcomes("c")]
    assert unreported.claims_among({"a", "b", "x"}) == {"a": 1, "b": 2}
    assert unreported.next_frames(11.0) == [frame(merged, 1, 11.0, batches=True)]
    assert unreported.claims_among({"a", "b", "x"}) == {"a": 1, "b": 2}
    assert unreported.frames_again(12.0) == [frame(merged, 1, 12.0, batches=True)]


def test_nothing_makes_no_frame() -> None:
    assert Unreported().next_frames(11.0) == []
    assert split(OutcomeBatch()) == []


def test_no_frame_has_too_many_and_none_is_left_out() -> None:
    names = [f"j{n}" for n in range(2 * REPORT_FRAME_JOBS)]
    batches = split(outcomes(*names, others=[failed("x"), failed("y")]))
    assert [len(batch) for batch in batches] == [REPORT_FRAME_JOBS, REPORT_FRAME_JOBS, 2]
    assert sum(ids_of(batches), []) == [*names, "x", "y"]  # noqa: RUF017 - three lists


def test_a_frame_may_end_among_the_completed_ones_and_begin_with_them() -> None:
    names = [f"j{n}" for n in range(REPORT_FRAME_JOBS + 1)]
    first, second = split(outcomes(*names, others=[failed("x")]))
    assert (len(first.ids), len(first.others)) == (REPORT_FRAME_JOBS, 0)
    assert (second.ids, [ended.id for ended in second.others]) == (names[-1:], ["x"])


def test_one_large_result_travels_alone() -> None:
    large = outcomes("large", result=b"x" * REPORT_FRAME_BYTES)
    together = OutcomeBatch.merged([outcomes("a"), large, outcomes("b", others=[failed("c")])])
    assert ids_of(split(together)) == [["a"], ["large"], ["b", "c"]]


def test_frames_stay_below_their_size() -> None:
    batches = split(outcomes(*[f"j{n}" for n in range(300)], result=b"x" * 10_000))
    assert len(batches) > 2
    for batch in batches:
        assert len(msgspec.msgpack.encode(frame(batch, 1, 11.0, batches=True))) < ends.REPORT_FRAME_BYTES
