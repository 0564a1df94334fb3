"""A job's own retry policy: how long to wait before each retry, and after which errors there is none.

A job without a policy of its own follows the coordinator's (`stoker.domain.retry.RetryPolicy`). What each end of an attempt
means under a policy:

| The attempt ended by | Charged | Retried | Delay |
|---|---|---|---|
| an error | yes | if `never` does not match it, and `on` is empty or matches it | by the policy |
| `RetryAfter(s)` | yes | yes, whatever `on` and `never` say | `s` |
| `Snooze(s)` | no | yes, up to `MAX_SNOOZES` times | `s` |
| `Fail(reason)`, an error that no retry can mend | yes | no | |
| a timeout | yes | if `never` does not name `timeout` | by the policy |
| a crash of the process | yes | if `never` does not name `crash`, up to three crashes | by the policy |
| a lost lease | yes | if `never` does not name `lost` | none |

`on` says which errors of the task are worth a retry. What happens to the task from outside (a timeout, a crash, a lost
worker) is not an error that it raised, so only `never` concerns it.

A rule is the qualified name of an exception class (`requests.exceptions.Timeout`; built-in ones have no module:
`OSError`), or the `type` of an error as it is stored on the job. It matches an error of that class and of every class
derived from it, because the report of an attempt carries the names of the base classes.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Final, Literal

import msgspec

MAX_RETRIES: Final = 99
"""One less than the most attempts that a job can have."""
MAX_RULES: Final = 32
MAX_NAMES: Final = 32
MAX_NAME_CHARS: Final = 200
MAX_SNOOZES: Final = 1_000
MAX_RETRY_SEC: Final = 30 * 86_400
MAX_ASKED_SEC: Final = 366 * 86_400
"""The longest delay that a task can ask for by `RetryAfter` or `Snooze`."""

DEFAULT_BASE_SEC: Final = 2.0
DEFAULT_CAP_SEC: Final = 600.0
DEFAULT_JITTER: Final = 0.3
_MAX_EXPONENT: Final = 64
"""2.0 ** 5000 overflows a float."""

Backoff = Literal["exponential", "linear", "fixed"]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_RETRY_SEC)]
_NAME = r"\A[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+\Z"
RuleName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS, pattern=_NAME)]
RuleNames = Annotated[tuple[RuleName, ...], msgspec.Meta(max_length=MAX_RULES)]


class RetryRules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """When and whether a job is tried again. Either `delays_sec`, one delay for each retry, or a backoff: `exponential`
    waits `base_sec` * 2^(retry - 1), `linear` `base_sec` * retry and `fixed` `base_sec`, at most `cap_sec`. Each delay
    is spread by ±`jitter` of it; the default is 0.3 for a backoff and none for `delays_sec`."""

    backoff: Backoff | None = None
    base_sec: Seconds | None = None
    cap_sec: Seconds | None = None
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    delays_sec: Annotated[tuple[Seconds, ...], msgspec.Meta(min_length=1, max_length=MAX_RETRIES)] | None = (
        None
    )
    on: RuleNames = ()
    never: RuleNames = ()

    def __post_init__(self) -> None:
        if self.delays_sec is None:
            return
        for name in ("backoff", "base_sec", "cap_sec"):
            if getattr(self, name) is not None:
                raise ValueError(f"delays_sec cannot be combined with {name}; give one or the other")


def attempts_of(rules: RetryRules | None) -> int | None:
    """Return the `max_attempts` that a policy implies: one more than it has delays. None for a policy without a list of
    delays."""
    return None if rules is None or rules.delays_sec is None else len(rules.delays_sec) + 1


def delay_sec(rules: RetryRules, retry: int, spread: float) -> float:
    """Seconds to wait before retry number `retry` (1, 2, …); `spread` in [-1, 1] places it inside the jitter.

    A retry beyond the list of delays, of a job that has more attempts than its type, waits as long as the last of them.
    """
    if rules.delays_sec is not None:
        plain = rules.delays_sec[min(retry, len(rules.delays_sec)) - 1]
        return plain * (1.0 + (rules.jitter or 0.0) * spread)
    base = DEFAULT_BASE_SEC if rules.base_sec is None else rules.base_sec
    cap = DEFAULT_CAP_SEC if rules.cap_sec is None else rules.cap_sec
    jitter = DEFAULT_JITTER if rules.jitter is None else rules.jitter
    return min(min(base * _factor(rules.backoff, retry), cap) * (1.0 + jitter * spread), cap)


def _factor(backoff: Backoff | None, retry: int) -> float:
    if backoff == "fixed":
        return 1.0
    return float(retry) if backoff == "linear" else 2.0 ** min(retry - 1, _MAX_EXPONENT)


def delay_bounds(rules: RetryRules, retry: int) -> tuple[float, float]:
    """Return the shortest and the longest delay before retry number `retry`."""
    return delay_sec(rules, retry, -1.0), delay_sec(rules, retry, 1.0)


def policy_text(rules: RetryRules) -> str:
    """A policy in a few words, for people."""
    if rules.delays_sec is not None:
        how = f"retries after {', '.join(f'{delay:g}' for delay in rules.delays_sec)} s"
    else:
        base = DEFAULT_BASE_SEC if rules.base_sec is None else rules.base_sec
        cap = DEFAULT_CAP_SEC if rules.cap_sec is None else rules.cap_sec
        how = f"{rules.backoff or 'exponential'} backoff from {base:g} s, at most {cap:g} s"
    on = f", only after {', '.join(rules.on)}" if rules.on else ""
    never = f", never after {', '.join(rules.never)}" if rules.never else ""
    return how + on + never


def retries_error(rules: RetryRules, names: Collection[str]) -> bool:
    """Return whether an error with these names (its class, the base classes, its type) is worth a retry."""
    if not set(names).isdisjoint(rules.never):
        return False
    return not rules.on or not set(names).isdisjoint(rules.on)


def bounded_names(names: Iterable[str]) -> list[str]:
    """Return the names of an error as a report carries them: each once, of bounded length and number, the most specific
    first."""
    plain = (name[:MAX_NAME_CHARS].encode("utf-8", "replace").decode() for name in names)
    return list(dict.fromkeys(name for name in plain if name))[:MAX_NAMES]


def class_name(kind: type[BaseException]) -> str:
    """Return the name under which a rule knows an exception class."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def class_names(error: BaseException) -> list[str]:
    """Return the names of an exception's class and of its base classes, up to `Exception` and `BaseException`."""
    found: Sequence[type] = type(error).__mro__
    return bounded_names(class_name(kind) for kind in found if issubclass(kind, BaseException))


class ErrorNote(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the report of an attempt says of its error beside the text: the names that rules match, and what the task
    asked for by `RetryAfter` or `Snooze`."""

    names: list[str] = []
    retry_after_sec: float | None = None
    snooze_sec: float | None = None


NO_NOTE: Final = ErrorNote()


def asked_us(seconds: float) -> int:
    """A delay that a task asked for, in microseconds, within bounds whatever a worker sent."""
    return int(min(max(seconds, 0.0), MAX_ASKED_SEC) * 1_000_000) if seconds == seconds else 0
