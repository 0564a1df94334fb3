"""Frames to bytes and back, and what garbage does: it is refused, and nothing else happens."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.domain.retry import Kind
from stoker.wire import frames
from stoker.wire.codec import BadFrame, decode_from_worker, decode_to_worker, encode, encode_text
from stoker.wire.frames import Frame

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
json_bytes = JSON_VALUES.map(msgspec.json.encode)
idents = st.from_regex(r"\A[a-z][a-z0-9_.-]{0,9}\Z")
texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=9)
numbers = st.integers(0, 2**53)
small = st.integers(0, 2**31 - 1)
labels = st.from_regex(r"\A[a-z0-9. -]{0,30}\Z")
maybe = st.none() | numbers
refs = st.builds(frames.ClaimRef, idents, numbers)
claim_lists = st.lists(refs, max_size=3)

FROM_WORKER: dict[type, st.SearchStrategy[Any]] = {
    frames.Hello: st.builds(
        frames.Hello,
        protocol=st.just(1),
        session=idents,
        name=texts,
        threads=st.integers(1, 64),
        types=st.lists(idents, max_size=3),
        queues=st.none() | st.lists(idents, max_size=3),
        labels=st.dictionaries(idents, texts, max_size=3),
        host=st.none() | labels,
        pid=st.none() | small,
        version=st.none() | texts,
        draining=st.booleans(),
        batches=st.booleans(),
        schemas=st.dictionaries(
            idents,
            st.builds(
                frames.TypeNote,
                description=st.none() | texts,
                schema=st.none() | st.dictionaries(texts, st.integers(-(2**53), 2**53) | texts, max_size=3),
            ),
            max_size=2,
        ),
    ),
    frames.Heartbeat: st.builds(frames.Heartbeat, numbers, small, claim_lists, st.booleans()),
    frames.Reports: st.builds(
        frames.Reports,
        numbers,
        st.lists(
            st.builds(
                frames.Report,
                id=idents,
                claim_id=numbers,
                kind=st.sampled_from(get_args(Kind)),
                # A null result and no result mean the same.
                result=st.none() | json_bytes.filter(lambda data: data != b"null"),
                error=st.none() | json_bytes.filter(lambda data: data != b"null"),
                started_us=maybe,
                finished_us=numbers,
                cpu_us=maybe,
                peak_memory_kb=maybe,
            ),
            max_size=3,
        ),
    ),
    frames.Started: st.builds(
        frames.Started, st.lists(st.builds(frames.StartNote, idents, numbers, numbers), max_size=3)
    ),
    frames.Output: st.builds(
        frames.Output,
        st.lists(
            st.builds(
                frames.OutputChunk,
                idents,
                numbers,
                st.sampled_from(get_args(frames.Stream)),
                numbers,
                st.binary(max_size=20),
            ),
            max_size=3,
        ),
    ),
    frames.Progress: st.builds(
        frames.Progress,
        st.lists(
            st.builds(
                frames.ProgressNote,
                idents,
                numbers,
                st.floats(allow_nan=False, allow_infinity=False),
                st.none() | st.floats(0, 1e9),
                st.none() | texts,
            ),
            max_size=3,
        ),
    ),
    frames.Goodbye: st.just(frames.Goodbye()),
}
TO_WORKER: dict[type, st.SearchStrategy[Any]] = {
    frames.Welcome: st.builds(
        frames.Welcome,
        protocol=st.just(1),
        session=idents,
        heartbeat_seconds=st.floats(0.1, 60),
        lease_seconds=st.floats(0.1, 60),
        max_result_bytes=numbers,
    ),
    frames.Refused: st.builds(frames.Refused, texts, st.booleans()),
    frames.Assign: st.builds(
        frames.Assign,
        st.lists(
            st.builds(
                frames.Assignment,
                id=idents,
                claim_id=numbers,
                type=idents,
                payload=json_bytes,
                attempt=numbers,
                max_attempts=numbers,
                threads=st.integers(1, 64),
                timeout_sec=st.none() | st.floats(0.1, 60),
                name=st.none() | texts,
                queue=idents,
                metadata=st.dictionaries(idents, texts, max_size=3),
            ),
            max_size=3,
        ),
    ),
    frames.Renewed: st.builds(frames.Renewed, numbers),
    frames.Ack: st.builds(frames.Ack, numbers, claim_lists),
    frames.Cancel: st.builds(frames.Cancel, claim_lists),
    frames.Drop: st.builds(frames.Drop, claim_lists),
    frames.Drain: st.just(frames.Drain()),
}


def test_every_frame_is_covered_here() -> None:
    assert set(FROM_WORKER) == set(get_args(frames.FromWorker))
    assert set(TO_WORKER) == set(get_args(frames.ToWorker))


@pytest.mark.parametrize("frame_type", FROM_WORKER)
@settings(max_examples=25)
@given(data=st.data())
def test_what_a_worker_says_survives_both_ways_of_writing(frame_type: type, data: st.DataObject) -> None:
    frame: Frame = data.draw(FROM_WORKER[frame_type])
    assert decode_from_worker(encode(frame)) == frame
    assert decode_from_worker(encode_text(frame)) == frame


@pytest.mark.parametrize("frame_type", TO_WORKER)
@settings(max_examples=25)
@given(data=st.data())
def test_what_a_coordinator_says_survives_both_ways_of_writing(frame_type: type, data: st.DataObject) -> None:
    frame: Frame = data.draw(TO_WORKER[frame_type])
    assert decode_to_worker(encode(frame)) == frame
    assert decode_to_worker(encode_text(frame)) == frame


def test_a_job_without_a_payload_can_be_sent_as_text() -> None:
    frame = frames.Assign([frames.Assignment("j", 1, "echo", b"null")])
    assert decode_to_worker(encode_text(frame)) == frame


def test_an_inline_null_is_no_result_and_no_error_but_a_payload_of_null() -> None:
    reports = decode_from_worker(
        '{"frame":"reports","number":1,'
        '"reports":[{"id":"j","claim_id":1,"kind":"error","result":null,"error": null}]}'
    )
    assert reports == frames.Reports(1, [frames.Report("j", 1, "error")])
    assign = decode_to_worker('{"frame":"assign","jobs":[{"id":"j","claim_id":1,"type":"t","payload":null}]}')
    assert assign == frames.Assign([frames.Assignment("j", 1, "t", b"null")])


def test_big_integers_and_nul_characters_travel_inline_unchanged() -> None:
    payload = b'{"n":123456789012345678901234567890,"s":"\\u0000"}'
    frame = frames.Assign([frames.Assignment("j", 1, "echo", payload)])
    assert payload.decode() in encode_text(frame)
    assert decode_to_worker(encode_text(frame)) == frame


def test_a_text_frame_is_json_with_its_values_inline() -> None:
    frame = frames.Reports(7, [frames.Report("j", 1, "completed", b'{"a":1}')])
    assert msgspec.json.decode(encode_text(frame)) == {
        "frame": "reports",
        "number": 7,
        "reports": [{"id": "j", "claim_id": 1, "kind": "completed", "result": {"a": 1}}],
    }


# ── garbage ────────────────────────────────────────────────────────────────────────────────────────────────────────


def refused_or_read(data: bytes | str) -> None:
    for decode in (decode_from_worker, decode_to_worker):
        try:
            decode(data)
        except BadFrame:
            pass


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    refused_or_read(data)


@given(st.text(st.characters(), max_size=200))
def test_random_text_is_refused(text: str) -> None:
    refused_or_read(text)


ANY_FRAME = st.one_of(*FROM_WORKER.values(), *TO_WORKER.values())


@settings(max_examples=60)
@given(ANY_FRAME, st.data())
def test_mutated_bytes_are_refused_or_still_a_frame(frame: Frame, data: st.DataObject) -> None:
    mutated = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(mutated) - 1))
        mutated[place] = data.draw(st.integers(0, 255))
    refused_or_read(bytes(mutated))
    refused_or_read(bytes(mutated[: data.draw(st.integers(0, len(mutated)))]))


@settings(max_examples=60)
@given(ANY_FRAME, st.data())
def test_mutated_text_is_refused_or_still_a_frame(frame: Frame, data: st.DataObject) -> None:
    text = encode_text(frame)
    place = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.text(st.sampled_from('{}[]",:0e-\\ntux\ud800\x00é'), max_size=4))
    refused_or_read(text[:place] + junk + text[place + data.draw(st.integers(0, 5)) :])


@settings(max_examples=60)
@given(st.sampled_from(["jobs", "reports", "held", "claims", "frame", "starts"]), JSON_VALUES, ANY_FRAME)
def test_a_field_of_any_other_shape_is_refused_or_read(field: str, value: object, frame: Frame) -> None:
    plain = msgspec.json.decode(encode_text(frame))
    plain[field] = value
    refused_or_read(msgspec.json.encode(plain).decode())
    refused_or_read(msgspec.msgpack.encode(plain))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        "",
        "null",
        "[]",
        "{}",
        '{"frame":"reports"}',
        '{"frame":"reports","number":1,"reports":[1]}',
        '{"frame":"reports","number":1,"reports":{"id":1}}',
        '{"frame":"hello","protocol":1,"session":"s","name":"n","threads":0,"types":[]}',
        '{"frame":"hello","protocol":1,"session":"","name":"n","threads":1,"types":[]}',
        '{"frame":"nonsense"}',
        '{"frame":"goodbye"',
        '{"frame":"goodbye"}x',
        "[" * 100_000,
        '{"jobs":' + "[" * 100_000,
        '{"number":' + "9" * 100_000 + "}",
        b"\x91" * 100_000,
        "\ud800",
    ],
    ids=repr,
)
def test_what_is_not_a_frame_is_refused_with_a_reason(data: bytes | str) -> None:
    with pytest.raises(BadFrame, match="not a frame"):
        decode_from_worker(data)


def test_a_worker_may_not_say_what_only_a_coordinator_says() -> None:
    with pytest.raises(BadFrame):
        decode_from_worker(encode(frames.Drain()))
    with pytest.raises(BadFrame):
        decode_to_worker(encode(frames.Goodbye()))


# ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_and_columns_come_through_as_they_were() -> None:
    template = frames.Assignment("", 2, "echo", b"", timeout_sec=1.5)
    assign = frames.Assign([], 3, [frames.AssignmentBatch(template, ["a", "b"], [b"1", b'"2"'])])
    assert decode_to_worker(encode(assign)) == assign
    done = frames.Done(["a"], [2], [b"1"], [9], [3], [None], [7])
    reports = frames.Reports(4, [frames.Report("b", 1, "error")], done)
    assert decode_from_worker(encode(reports)) == reports


@pytest.mark.parametrize("short", range(7))
def test_columns_of_different_lengths_are_refused(short: int) -> None:
    columns: list[list[Any]] = [["a"], [2], [b"1"], [9], [3], [None], [7]]
    columns[short] = []
    with pytest.raises(BadFrame, match="one length"):
        decode_from_worker(msgspec.msgpack.encode({"frame": "reports", "number": 1, "done": columns}))


def test_a_batch_with_more_ids_than_payloads_is_refused() -> None:
    template = {"id": "", "claim_id": 1, "type": "echo", "payload": b""}
    with pytest.raises(BadFrame, match="as many payloads"):
        decode_to_worker(
            msgspec.msgpack.encode({"frame": "assign", "lots": [[template, ["a", "b"], [b"1"]]]})
        )


def test_who_does_not_speak_in_batches_sees_nothing_of_them() -> None:
    """Workers of another make, and older ones, refuse fields that they do not know."""
    job = frames.Assignment("a", 1, "echo", b"1")
    for frame in (
        frames.Assign([job], 1),
        frames.Reports(1, [frames.Report("a", 1, "completed")]),
        frames.Welcome(1, "s", 1.0, 5.0, 100),
    ):
        assert not {"lots", "done"} & set(msgspec.msgpack.decode(encode(frame)))
