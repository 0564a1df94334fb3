"""A job's own retry policy: delays, bounds, and which errors a rule matches."""

import pytest

from stoker import Retry
from stoker.client.errors import ArgumentError
from stoker.client.retry import check_attempts, rules_of
from stoker.domain.retry_rules import (
    MAX_NAME_CHARS,
    MAX_NAMES,
    RetryRules,
    asked_us,
    attempts_of,
    bounded_names,
    class_names,
    delay_bounds,
    delay_sec,
    retries_error,
)


class Refused(ConnectionError):
    """An error of a task."""


@pytest.mark.parametrize(
    ("rules", "delays"),
    [
        (RetryRules(jitter=0), [2, 4, 8, 16]),
        (RetryRules(backoff="exponential", base_sec=3, jitter=0), [3, 6, 12, 24]),
        (RetryRules(backoff="exponential", base_sec=3, cap_sec=10, jitter=0), [3, 6, 10, 10]),
        (RetryRules(backoff="linear", base_sec=5, jitter=0), [5, 10, 15, 20]),
        (RetryRules(backoff="linear", base_sec=5, cap_sec=12, jitter=0), [5, 10, 12, 12]),
        (RetryRules(backoff="fixed", base_sec=7, jitter=0), [7, 7, 7, 7]),
        (RetryRules(delays_sec=(1, 5, 30)), [1, 5, 30, 30]),
        (RetryRules(base_sec=0), [0, 0, 0, 0]),
    ],
)
def test_the_delay_before_each_retry(rules: RetryRules, delays: list[float]) -> None:
    assert [delay_sec(rules, retry, 1.0) for retry in (1, 2, 3, 4)] == delays


def test_the_hundredth_retry_waits_for_the_cap_and_overflows_nothing() -> None:
    assert delay_sec(RetryRules(), 5_000, 0.0) == 600


@pytest.mark.parametrize("retry", [1, 2, 20])
def test_jitter_spreads_a_delay_but_never_beyond_the_cap(retry: int) -> None:
    rules = RetryRules(base_sec=10, cap_sec=100, jitter=0.5)
    low, high = delay_bounds(rules, retry)
    plain = min(10 * 2 ** (retry - 1), 100)
    assert (low, high) == (plain * 0.5, min(plain * 1.5, 100))


def test_a_list_of_delays_is_exact_unless_it_is_given_a_jitter() -> None:
    assert delay_bounds(RetryRules(delays_sec=(10,)), 1) == (10, 10)
    assert delay_bounds(RetryRules(delays_sec=(10,), jitter=0.1), 1) == (9, 11)


def test_a_list_of_delays_says_how_many_attempts_there_are() -> None:
    assert attempts_of(RetryRules(delays_sec=(1, 5, 30))) == 4
    assert attempts_of(RetryRules()) is None
    assert attempts_of(None) is None


def test_the_names_of_an_error_are_those_of_its_class_and_base_classes() -> None:
    own = f"{__name__}.Refused"
    assert class_names(Refused()) == [own, "ConnectionError", "OSError", "Exception", "BaseException"]


def test_names_are_bounded_in_number_and_length() -> None:
    names = bounded_names([f"{number}" + "x" * 1_000 for number in range(100)])
    assert len(names) == MAX_NAMES
    assert {len(name) for name in names} == {MAX_NAME_CHARS}


@pytest.mark.parametrize(
    ("on", "never", "retried"),
    [
        ((), (), True),
        (("OSError",), (), True),
        (("ValueError",), (), False),
        ((f"{__name__}.Refused",), (), True),
        ((), ("OSError",), False),
        ((), ("ValueError",), True),
        (("OSError",), ("ConnectionError",), False),
        (("Exception",), ("ValueError",), True),
    ],
)
def test_rules_match_the_class_and_its_base_classes_and_never_goes_first(
    on: tuple[str, ...], never: tuple[str, ...], retried: bool
) -> None:
    assert retries_error(RetryRules(on=on, never=never), class_names(Refused())) is retried


@pytest.mark.parametrize(
    ("seconds", "us"),
    [(1.5, 1_500_000), (-1, 0), (float("nan"), 0), (float("inf"), 366 * 86_400 * 1_000_000)],
)
def test_what_a_task_asked_for_is_kept_within_bounds(seconds: float, us: int) -> None:
    assert asked_us(seconds) == us


def test_a_policy_in_python_names_classes_and_is_the_one_that_rest_takes() -> None:
    policy = Retry("linear", 5, on=(OSError, "requests.Timeout"), never=Refused)
    assert policy.rules == RetryRules(
        backoff="linear", base_sec=5, on=("OSError", "requests.Timeout"), never=(f"{__name__}.Refused",)
    )
    assert rules_of({"backoff": "linear", "base_sec": 5}) == Retry("linear", 5).rules
    assert repr(Retry(delays_sec=[1, 2])) == "Retry(delays_sec=(1.0, 2.0))"
    assert Retry(delays_sec=[1, 2]) == Retry(delays_sec=(1, 2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"backoff": "random"}, "backoff: invalid enum value"),
        ({"base_sec": -1}, "base_sec: expected"),
        ({"jitter": 2}, "jitter: expected"),
        ({"delays_sec": []}, "delays_sec: expected"),
        ({"delays_sec": [1], "base_sec": 2}, "cannot be combined with base_sec"),
        ({"delays_sec": [1] * 100}, "delays_sec: expected"),
        ({"on": (3,)}, "exception classes"),
        ({"never": (int,)}, "exception classes"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_written(
    given: dict[str, object], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        Retry(**given)  # type: ignore[arg-type]


def test_a_list_of_delays_and_another_number_of_attempts_disagree() -> None:
    rules = RetryRules(delays_sec=(1, 5, 30))
    check_attempts(rules, None)
    check_attempts(rules, 4)
    check_attempts(RetryRules(), 7)
    with pytest.raises(ArgumentError, match="means 4 attempts"):
        check_attempts(rules, 5)
