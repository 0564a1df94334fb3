"""What a runner says of itself, and what it is therefore given. Pure.

A runner that knows Stoker answers `--types` with `stoker-runner 1` and the words for what it takes (`threads`, `json`) on
the first line, then the types that it has, one per line; without any it takes every type. Any other answer, and any exit
code but 0, means a runner of the plain contract: it is called with `--job-id ID --type TYPE --payload TEXT` and nothing
else, for every type that no task of the app has.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from stoker.domain.json_text import plain_text

MARK: Final = ("stoker-runner", "1")
ARGUMENT_MAX: Final = 64 * 1024
"""One argument cannot exceed 128 kB; longer payloads come on stdin."""
FROM_STDIN: Final = "-"

_TYPE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,127}")


class RunnerContract(msgspec.Struct, frozen=True):
    """How to call a runner."""

    types: tuple[str, ...] = ()
    """The types that it lists; none if it takes every type."""
    threads: bool = False
    """It takes `--threads`; any runner finds the number in its environment."""
    json: bool = False
    """It wants text payloads as JSON, like all others."""
    codes: bool = False
    """Its exit codes are those of docs/reference/runner.md; for others every code but 0 is a failure that may be retried."""

    @property
    def any_type(self) -> bool:
        return not self.types


PLAIN: Final = RunnerContract()


def read_types(answer: str) -> RunnerContract:
    """Return the contract behind an answer to `--types`."""
    first, *lines = answer.splitlines() or [""]
    words = first.split()
    if tuple(words[:2]) != MARK:
        return PLAIN
    return RunnerContract(type_names(lines), "threads" in words[2:], "json" in words[2:], codes=True)


def type_names(lines: Iterable[str]) -> tuple[str, ...]:
    """Return those of these lines that are the name of a type."""
    return tuple(name for line in lines if _TYPE.fullmatch(name := line.strip()))


def payload_argument(payload: bytes, *, json: bool = False) -> tuple[str, bytes]:
    """Return the argument for `--payload`, and what to write to stdin. What no argument can carry goes to stdin."""
    text = payload if json else plain_text(payload)
    if len(text) > ARGUMENT_MAX or b"\0" in text or text == FROM_STDIN.encode():
        return FROM_STDIN, text
    return text.decode("utf-8", "replace"), b""
