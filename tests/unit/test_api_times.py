"""Times at the edge."""

from datetime import UTC, datetime

import pytest

from stoker.api.schemas import times
from stoker.api.schemas.times import parse_moment, parse_rfc3339, rfc3339


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (5, "1970-01-01T00:00:00.000005Z"),
        (999_999, "1970-01-01T00:00:00.999999Z"),
        (1_767_323_045_678_901, "2026-01-02T03:04:05.678901Z"),
        (1_767_323_045_000_001, "2026-01-02T03:04:05.000001Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_times_have_all_six_digits(us: int, text: str) -> None:
    assert rfc3339(us) == text
    assert parse_rfc3339(text) == us


def test_what_is_remembered_is_bounded() -> None:
    for second in range(3 * times._REMEMBERED_SECONDS):
        rfc3339(second * 1_000_000)
    assert len(times._to_the_second) <= times._REMEMBERED_SECONDS
    assert rfc3339(1_000_000) == "1970-01-01T00:00:01.000000Z"


def test_an_offset_is_taken_into_account() -> None:
    expected = int(datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC).timestamp()) * 1_000_000
    assert parse_rfc3339("2026-01-02T03:04:05+02:00") == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-01-02T03:04:05", "offset from UTC"),
        ("tomorrow", "RFC 3339"),
        ("2026-01-02", "RFC 3339"),
        ("2026-13-02T03:04:05Z", "RFC 3339"),
        ("1960-01-01T00:00:00Z", "1970"),
        ("0001-01-01T00:00:00+14:00", "1970"),
    ],
)
def test_what_is_not_a_moment_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_rfc3339(text)


@pytest.mark.parametrize(
    ("text", "ago"), [("30s", 30), ("10m", 600), ("2h", 7_200), ("7d", 604_800), ("0s", 0)]
)
def test_a_moment_may_be_how_long_ago_it_was(text: str, ago: int) -> None:
    now = 1_767_323_045_678_901
    assert parse_moment(text, now) == now - ago * 1_000_000
    assert parse_moment("2026-01-02T03:04:05.678901Z", 0) == now


@pytest.mark.parametrize("text", ["10", "m", "-5m", "10 m", "1w", "", "yesterday"])
def test_what_is_neither_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="how long ago"):
        parse_moment(text, 0)
