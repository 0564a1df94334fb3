"""What supervisors and children say to each other, cut into any pieces."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stoker.context import JobContext
from stoker.executors.native import answers, request, requests
from stoker.executors.pipe import (
    FROM_CHILD,
    MARK,
    MAX_FRAME_BYTES,
    TO_CHILD,
    ChildBatch,
    OutcomeBatch,
    Unpacker,
    WorkOutcome,
    pack,
)
from stoker.wire.frames import Assignment
from tests.runner import serving

TEMPLATE = Assignment("", 3, "echo", b"", 2, 5, 1, None, "name", "queue", {"k": "v"}, 100)


def framed(body: bytes) -> bytes:
    return MARK + len(body).to_bytes(4, "little") + body


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(0, 60), max_size=20))
def test_messages_come_out_whole_however_they_are_cut(bodies: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(map(framed, bodies))
    unpacker = Unpacker()
    found: list[bytes] = []
    for size in [*sizes, len(stream)]:
        found += unpacker.feed(stream[:size])
        stream = stream[size:]
    assert found == bodies


def test_a_message_in_thousands_of_pieces_is_put_together_once() -> None:
    unpacker = Unpacker()
    stream = framed(b"x" * 3_000_000) + framed(b"y")
    found = [body for at in range(0, len(stream), 1000) for body in unpacker.feed(stream[at : at + 1000])]
    assert [len(body) for body in found] == [3_000_000, 1]


def test_a_message_that_is_too_large_is_refused_before_it_comes() -> None:
    unpacker = Unpacker(mark=b"")
    with pytest.raises(ValueError, match="bytes"):
        list(unpacker.feed((MAX_FRAME_BYTES + 1).to_bytes(4, "little")))


@given(
    st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(0, 60), max_size=20),
)
def test_what_stands_between_messages_is_skipped_however_it_is_cut(
    pairs: list[tuple[bytes, bytes]], sizes: list[int]
) -> None:
    assume(not any(byte in garbage for garbage, _ in pairs for byte in MARK))
    stream = b"".join(garbage + framed(body) for garbage, body in pairs)
    unpacker = Unpacker()
    found: list[bytes] = []
    for size in [*sizes, len(stream)]:
        found += unpacker.feed(stream[:size])
        stream = stream[size:]
    assert found == [body for _, body in pairs]
    assert unpacker.skipped == sum(len(garbage) for garbage, _ in pairs)


def test_a_mark_with_an_impossible_length_is_skipped_like_other_garbage() -> None:
    unpacker = Unpacker()
    stream = MARK + (MAX_FRAME_BYTES + 1).to_bytes(4, "little") + framed(b"after")
    assert list(unpacker.feed(stream)) == [b"after"]


def test_a_batch_comes_out_as_its_jobs() -> None:
    batch = ChildBatch(7, TEMPLATE, ["a", "b"], [b"1", b"2"], [0, 1])
    (body,) = Unpacker().feed(pack(batch))
    order = TO_CHILD.decode(body)
    assert isinstance(order, ChildBatch)
    assert list(order.jobs()) == [
        JobContext(
            id,
            3,
            "echo",
            2,
            5,
            1,
            "queue",
            "name",
            {"k": "v"},
            index,
            payload=payload,
            memory_mb=100,
            cpus=[0, 1],
        )
        for index, id, payload in ((7, "a", b"1"), (8, "b", b"2"))
    ]


def test_results_are_in_columns_if_they_completed_and_else_by_themselves() -> None:
    good, bad = (
        WorkOutcome(1, "completed", b"1", None, 0.5, 1.0, 10, 20),
        WorkOutcome(2, "error", None, b"{}", 1, 2),
    )
    (body,) = Unpacker().feed(pack(OutcomeBatch.of(good, bad)))
    assert FROM_CHILD.decode(body) == OutcomeBatch([1], [b"1"], [0.5], [1.0], [10], [20], others=[bad])


def test_columns_of_different_length_are_refused() -> None:
    broken = FROM_CHILD.decode(
        msgspec.msgpack.encode(["r", [1, 2], [b"1"], [0.5], [1.0], [10], [20], [], [], []])
    )
    assert isinstance(broken, OutcomeBatch)
    with pytest.raises(ValueError, match="one length"):
        broken.check()


def test_the_native_runner_is_sent_a_batch_as_its_jobs_one_after_the_other() -> None:
    template = Assignment("", 3, "echo", b"", 1)
    ids, payloads = ["job-1", "job-1", "é", ""], [b"1", b"22", b"", b"4"]
    alone = [
        request(JobContext(id, 3, "echo", 1, 1, 1, "default", None, {}, 5 + n, payload=payload))
        for n, (id, payload) in enumerate(zip(ids, payloads, strict=True))
    ]
    assert requests(template, 5, ids, payloads) == b"".join(alone)
    assert alone[:2] == [
        serving.request(5, "echo", b"1", claim_id=3),
        serving.request(6, "echo", b"22", claim_id=3),
    ]


def answer(index: int, kind: int, body: bytes) -> bytes:
    return serving._ANSWER.pack(index, kind, 1.0, 2.0, 30) + body


def test_answers_of_the_native_runner_keep_their_kinds() -> None:
    found = answers([answer(1, 0, b"1"), answer(2, 3, b""), answer(3, 0, b"3"), answer(4, 1, b"{}")])
    assert found == OutcomeBatch(
        [1, 3],
        [b"1", b"3"],
        [1.0, 1.0],
        [2.0, 2.0],
        [30, 30],
        [None, None],
        others=[
            WorkOutcome(2, "handed_back", None, None, 1.0, 2.0, 30),
            WorkOutcome(4, "error", None, b"{}", 1.0, 2.0, 30),
        ],
    )
    assert answers([]) == OutcomeBatch()


@pytest.mark.parametrize("message", [b"", answer(1, 0, b"")[:-1], answer(1, 4, b"")])
def test_answers_that_make_no_sense_are_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="a response"):
        answers([message])
