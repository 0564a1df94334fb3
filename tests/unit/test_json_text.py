"""Values as JSON: what msgspec would write as `null`, though it is something else, is refused."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from stoker.domain.json_text import encode

NAN = float("nan")
INFINITY = float("inf")


@dataclass
class Measured:
    value: float
    unit: str | None = None


class Reading(msgspec.Struct):
    value: float


@pytest.mark.parametrize(
    "value",
    [
        NAN,
        INFINITY,
        -INFINITY,
        [1, None, NAN],
        {"a": {"b": [INFINITY]}},
        {1: (NAN,)},
        {2.5: NAN},
        Measured(NAN),
        [Reading(-INFINITY)],
        [msgspec.Raw(b"1"), NAN],
    ],
)
def test_what_is_no_number_is_refused_wherever_it_stands(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON has no NaN and no infinity"):
        encode(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [None, 1.5, "null", "NaN"],
        {"a": None, 1: {"b": -0.0}},
        Measured(1e308),
        [msgspec.Raw(b"null"), msgspec.Raw(b"[1]")],
        {"big": 10**30, "none": None},
    ],
)
def test_what_may_be_null_is_written_as_ever(value: Any) -> None:
    assert encode(value) == msgspec.json.encode(value)


def test_other_things_that_are_not_json_are_refused_as_before() -> None:
    with pytest.raises(TypeError):
        encode([None, object()])
