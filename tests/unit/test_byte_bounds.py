"""Plans cut to what fits by bytes."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.domain.byte_bounds import UNREAD, ByteBounds, filled, unread, within
from stoker.domain.job_batch import JobBatch, batches_of
from stoker.domain.placement import Placed, Plan
from tests.support.jobs import a_job, a_worker

sizes = st.lists(st.integers(1, 60), min_size=1, max_size=8)


def a_batch(payloads: list[bytes], start: int) -> JobBatch:
    first = a_job()
    (batch,) = batches_of(
        replace(first, seq=start + n, id=f"{start + n}", payload=payload)
        for n, payload in enumerate(payloads)
    )
    return batch


@given(
    batches=st.lists(st.tuples(sizes, st.sampled_from("ab"), st.booleans()), max_size=6),
    bounds=st.builds(ByteBounds, st.integers(1, 200), st.integers(1, 100), st.integers(1, 150)),
    unsent=st.integers(0, 120),
    free=st.integers(0, 4),
)
def test_a_plan_is_cut_to_its_bounds_in_order_and_nothing_is_lost(
    batches: list[tuple[list[int], str, bool]], bounds: ByteBounds, unsent: int, free: int
) -> None:
    lengths: dict[int, int] = {}
    placed: list[Placed] = []
    for number, (each, session, large) in enumerate(batches):
        start = number * 100 + 1
        lengths |= {start + n: size for n, size in enumerate(each)}
        placed.append(Placed(a_batch([UNREAD if large else b"x" * size for size in each], start), session, 1))
    before = {item: [seq for p in placed if p.session_id == item for seq in p.batch.seqs] for item in "ab"}
    workers = [
        replace(a_worker(name), free=free, unsent_bytes=waits, held_bytes=waits)
        for name, waits in (("a", unsent), ("b", 0))
    ]
    cut, more = within(Plan(placed, 0, []), workers, lengths, bounds)
    kept = {item: [seq for p in cut.placed if p.session_id == item for seq in p.batch.seqs] for item in "ab"}
    rest = [seq for batch in cut.rest for seq in batch.seqs]
    assert sorted([*kept["a"], *kept["b"], *rest]) == sorted(before["a"] + before["b"])
    total = 0
    for name, waits in (("a", unsent), ("b", 0)):
        assert kept[name] == before[name][: len(kept[name])], "the first of each worker, in order"
        size = sum(lengths[seq] for seq in kept[name])
        total += size
        if len(kept[name]) > (waits == 0):
            assert waits + size <= bounds.line
        if len(kept[name]) > free:
            assert waits + size <= bounds.held
    assert total <= bounds.claim or len(kept["a"]) + len(kept["b"]) == 1
    assert not more or rest
    if placed and placed[0].session_id == "b" and free:
        assert kept["b"], "where nothing waits, one is placed however large it is"
    whole = filled(cut, {seq: b"x" * lengths[seq] for seq in unread(cut)})
    assert all(
        len(payload) == lengths[seq]
        for item in whole.placed
        for seq, payload in zip(item.batch.seqs, item.batch.payloads, strict=True)
    )
    assert all(item.batch.template.payload == item.batch.payloads[0] for item in whole.placed)


def test_a_plan_that_fits_stays_as_it_is() -> None:
    placed = [Placed(a_batch([b"1"] * 100, 1), "a", 1)]
    cut, more = within(Plan(placed, 7, []), [a_worker("a")], {}, ByteBounds())
    assert (cut.placed, cut.cursor, cut.rest, more) == (placed, 7, [], False)


def test_what_waits_for_a_worker_counts_also_where_it_is_known_from_elsewhere() -> None:
    """Found by seed 1699: it had just come back to this coordinator, and stood in the list twice."""
    placed = [Placed(a_batch([b"12"], 1), "a", 1)]
    here, elsewhere = replace(a_worker("a"), unsent_bytes=9), replace(a_worker("a"), present=False)
    cut, _ = within(Plan(placed, 0, []), [here, elsewhere], {}, ByteBounds(line=10))
    assert cut.placed == []
