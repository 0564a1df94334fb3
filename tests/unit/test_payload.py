"""What a payload may be, and that whatever it may be comes back as it was sent."""

import json
import time

import pytest

from stoker.api.handlers.payload import check_payload
from stoker.api.problems import Kind, RequestProblem
from stoker.domain.json_text import MAX_DEPTH, MAX_DIGITS, depth, is_json

MIB = 1024 * 1024


def refusal(raw: bytes, max_bytes: int = MIB) -> RequestProblem:
    with pytest.raises(RequestProblem) as caught:
        check_payload(raw, "payload", max_bytes)
    return caught.value


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b'"a bare string"',
        b'{"nul": "a\\u0000b"}',
        str(2**200).encode(),
        b"-" + b"9" * MAX_DIGITS,
        b"0." + b"1" * (MAX_DIGITS - 1),
        b'"' + b"9" * 5000 + b'"',
        b'"\\ud83d\\ude00"',
        "\U0001f600é".join('""').encode(),
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH,
        b"[" + b"[]," * 5000 + b"[]]",
        json.dumps("[" * 5000).encode(),
        json.dumps('\\"[[{{' * 500).encode(),
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_accepted(raw: bytes) -> None:
    check_payload(raw, "payload", MIB)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"1e999", "out of range"),
        (b"[-1e400]", "out of range"),
        (b"9" * (MAX_DIGITS + 1), "digits"),
        (b"-" + b"9" * 100_000, "digits"),
        (b"0." + b"1" * MAX_DIGITS, "digits"),
        (b'{"a":[' + b"1" * 5000 + b"]}", "digits"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "nested"),
        (b"[" * 900 + b"]" * 900, "nested"),
        (b"NaN", "not valid JSON"),
        (b'"\\ud800"', "not valid JSON"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_refused_as_invalid(raw: bytes, words: str) -> None:
    problem = refusal(raw)
    assert problem.kind is Kind.INVALID
    assert [error.field for error in problem.errors] == ["payload"]
    assert words in problem.errors[0].message


def test_text_that_is_not_utf8_is_unreadable() -> None:
    assert refusal(b'"\xff"').kind is Kind.UNREADABLE
    assert refusal(b'"\xed\xa0\x80"').kind is Kind.UNREADABLE


@pytest.mark.parametrize(
    "raw",
    [
        b'"' + (b"9" * 900 + b"x") * 4600 + b'"',
        b"[" + (b"[" * 255 + b"]" * 255 + b",") * 8000 + b"1]",
        b"[" + b"[]," * 1_300_000 + b"[]]",
        b'"' + b"\\\\" * 2_000_000 + b'"',
        b"[" + b'"[",' * 900_000 + b"1]",
    ],
    ids=["digits", "deep", "wide", "backslashes", "strings"],
)
def test_hostile_texts_take_no_longer_than_others_of_their_size(raw: bytes) -> None:
    started = time.process_time()
    check_payload(raw, "payload", 8 * MIB)
    assert time.process_time() - started < 5


def test_size_is_judged_first() -> None:
    problem = refusal(b"[" * 2000, max_bytes=1999)
    assert problem.kind is Kind.TOO_LARGE
    assert problem.errors[0].field == "payload"
    check_payload(b'"' + b"x" * 98 + b'"', "payload", 100)


@pytest.mark.parametrize(
    ("text", "levels"),
    [(b"1", 0), (b"[]", 1), (b"[[],{}]", 2), (b"[{},[{}],[[[]]]]", 4), (b"[],[]", 1)],
)
def test_depth_is_exact(text: bytes, levels: int) -> None:
    assert depth(text) == levels


@pytest.mark.parametrize("text", [b"null", b"1", b'{"a":[1,2]}', b"9" * 1000, b'"\\u0000"', b"-1.5e300"])
def test_json_within_bounds_is_json(text: bytes) -> None:
    assert is_json(text)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"nul", b"1e999", b"-1e999", b"9" * 1001, b"[" * 300 + b"]" * 300, b'"\xff"', b"NaN"]
)
def test_what_nobody_could_read_back_is_not_json(text: bytes) -> None:
    assert not is_json(text)
