"""`add_numbers` and `large_array_sum`. The rule of both, in both runners:

- if all numbers are integers, the sum is exact, however large (up to the 1,000 digits that a number may have);
- if one is not, each is taken as the nearest double, and the exact sum of those is rounded once (`math.fsum`).

So the result depends neither on the order nor on the number of threads. Threads would not help here, since they share one
interpreter; the C++ runner splits the work.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from stoker.domain.json_text import MAX_DIGITS
from stoker.executors.builtins.payload import Fields, PayloadRefused

_TOO_LONG: Final = 10**MAX_DIGITS
_SMALLEST_EXPONENT: Final = 1074
"""Every double is a whole multiple of 2**-1074."""


def add_numbers(payload: bytes) -> bytes:
    """`{"x", "y"}` → `{"sum"}`"""
    fields = Fields(payload, "x", "y")
    for name in ("x", "y"):
        fields.require(name)
        fields.number(name)
    return msgspec.json.encode({"sum": total([fields.get("x"), fields.get("y")])})


def large_array_sum(payload: bytes) -> bytes:
    """`{"numbers": […]}` or `{"array": […]}` → `{"sum"}`"""
    fields = Fields(payload, "numbers", "array")
    if fields.get("numbers") is not None and fields.get("array") is not None:
        raise PayloadRefused("give either numbers or array")
    name = "numbers" if fields.get("array") is None else "array"
    numbers = fields.require(name)
    if not isinstance(numbers, list):
        raise PayloadRefused(f"{name} must be an array")
    if not set(map(type, numbers)) <= {int, float}:
        index = next(i for i, number in enumerate(numbers) if type(number) not in (int, float))
        raise PayloadRefused(f"{name}[{index}] is not a number that can be added")
    return msgspec.json.encode({"sum": total(numbers)})


def total(numbers: Sequence[int | float]) -> int | float:
    """Return the sum by the rule above, or `PayloadRefused` if it is out of range."""
    if float in set(map(type, numbers)):
        return _total_of_doubles(numbers)
    result = sum(numbers)
    if abs(result) >= _TOO_LONG:
        raise PayloadRefused(f"the sum has more than {MAX_DIGITS} digits")
    return result


def _total_of_doubles(numbers: Sequence[int | float]) -> float:
    try:
        return math.fsum(numbers) + 0.0  # never -0.0
    except OverflowError:  # also when only a sum on the way was out of range
        return _total_by_integers(numbers)


def _total_by_integers(numbers: Sequence[int | float]) -> float:
    """Return the sum as `_sum` would, slowly, but without a bound on what is added up on the way."""
    try:
        exact = sum(_scaled(float(number)) for number in numbers)
        return exact / (1 << _SMALLEST_EXPONENT)
    except OverflowError:
        raise PayloadRefused("the sum is out of the range of a double") from None


def _scaled(number: float) -> int:
    numerator, denominator = number.as_integer_ratio()
    return numerator * ((1 << _SMALLEST_EXPONENT) // denominator)
