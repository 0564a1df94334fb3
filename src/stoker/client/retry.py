"""`stoker.Retry`: the retry policy of a task or a job, as it is written in Python.

@app.task(retry=Retry(backoff="linear", base_sec=5, on=(OSError,), never=(FileNotFoundError,)))
def fetch(url: str) -> str: ...

fetch.options(retry=Retry(delays_sec=[1, 5, 30])).submit("https://example.com")  # four attempts
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stoker.client.errors import ArgumentError
from stoker.domain.retry_rules import Backoff, RetryRules, attempts_of, class_name

Rule = type[BaseException] | str


class Retry:
    """A retry policy: whether a failed attempt is followed by another, and when.

    Either `delays_sec`, the seconds before each retry, which also says how many there are (`max_attempts` is one more); or a
    backoff: `exponential` waits base_sec * 2^(retry - 1), `linear` base_sec * retry and `fixed` base_sec, at most `cap_sec`,
    spread by ±`jitter`. `on` and `never` are exception classes, or their qualified names: with `on`, only these are tried
    again; `never` goes before it. A rule also holds for classes that are derived from it.
    """

    __slots__ = ("rules",)

    rules: RetryRules

    def __init__(
        self,
        backoff: Backoff | None = None,
        base_sec: float | None = None,
        cap_sec: float | None = None,
        jitter: float | None = None,
        *,
        delays_sec: Sequence[float] | None = None,
        on: Iterable[Rule] | Rule = (),
        never: Iterable[Rule] | Rule = (),
    ) -> None:
        given = {
            "backoff": backoff,
            "base_sec": base_sec,
            "cap_sec": cap_sec,
            "jitter": jitter,
            "delays_sec": None if delays_sec is None else tuple(delays_sec),
            "on": _names("on", on),
            "never": _names("never", never),
        }
        object.__setattr__(
            self, "rules", _checked({name: it for name, it in given.items() if it is not None})
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Retry does not change; make another one")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and other.rules == self.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def __repr__(self) -> str:
        given = msgspec.to_builtins(self.rules)
        return f"Retry({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def rules_of(given: object, where: str = "retry") -> RetryRules:
    """Return the rules of a `Retry`, or of the dict that the REST API takes. Raises `ArgumentError`."""
    if isinstance(given, Retry):
        return given.rules
    if isinstance(given, RetryRules):
        return given
    if isinstance(given, dict):
        return _checked(given)
    raise ArgumentError(f"{where} must be a stoker.Retry, not {type(given).__name__}", "retry")


def check_attempts(rules: RetryRules | None, max_attempts: int | None) -> None:
    """Raise `ArgumentError` when a list of delays and `max_attempts` disagree."""
    implied = attempts_of(rules)
    if implied is not None and max_attempts is not None and max_attempts != implied:
        raise ArgumentError(
            f"max_attempts={max_attempts} disagrees with delays_sec, which means {implied} attempts; leave it out",
            "max_attempts",
        )


def _checked(given: dict[str, Any]) -> RetryRules:
    try:
        return msgspec.convert(given, RetryRules)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"Retry will not do: {_reason(str(error))}", "retry") from None


def _reason(text: str) -> str:
    reason, _, path = text.partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    plain = reason[:1].lower() + reason[1:]
    if "matching regex" in reason:  # only names of exceptions have one
        plain = "must be the name of an exception class, such as ValueError or requests.Timeout"
    return f"{field}: {plain}" if field else plain


def _names(field: str, given: Iterable[Rule] | Rule) -> tuple[str, ...]:
    rules = (given,) if isinstance(given, (str, type)) else tuple(given)
    return tuple(_name(field, rule) for rule in rules)


def _name(field: str, rule: object) -> str:
    if isinstance(rule, str):
        return rule.removeprefix("builtins.")
    if isinstance(rule, type) and issubclass(rule, BaseException):
        return class_name(rule)
    raise ArgumentError(f"Retry({field}=...) takes exception classes or their names, not {rule!r}", "retry")
