"""The Python runner: one job, then the end, by the same contract as the C++ one (docs/reference/runner.md).

    python -m stoker.executors.runner --job-id ID --type TYPE --payload JSON

It stands in where there was no compiler, and it is an example for authors of their own runners.
"""

import argparse
import os
import sys
from typing import Final

import msgspec

from stoker import __version__
from stoker.context import JobContext, enter_job
from stoker.executors.builtin import BUILTINS
from stoker.executors.runner_contract import MARK

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # argparse's own
INVALID_PAYLOAD: Final = 3
UNKNOWN_TYPE: Final = 4

MESSAGE_MAX: Final = 4_000
MAX_THREADS: Final = 1_024


def main() -> int:
    options = _options()
    if options.types:
        print("\n".join([f"{' '.join(MARK)} threads json", *sorted(BUILTINS)]))  # noqa: T201 - this is a command line
        return OK
    run = BUILTINS.get(options.type)
    if run is None:
        _write_error("unknown_type", f"this runner has no type {options.type!r}; --types lists what it has")
        return UNKNOWN_TYPE
    enter_job(_context(options))
    try:
        result = run(_payload(options.payload))
    except Exception as error:  # noqa: BLE001 - whatever a job raises is the job's failure, not ours
        _write_error(getattr(error, "error_type", type(error).__name__), str(error))
        return FAILED if getattr(error, "retryable", True) else INVALID_PAYLOAD
    sys.stdout.buffer.write(result + b"\n")
    return OK


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="stoker.executors.runner", description="Run one job.", allow_abbrev=False
    )
    parser.add_argument("--job-id")
    parser.add_argument("--type")
    parser.add_argument("--payload", default="null", help="JSON; '-' reads it from standard input")
    parser.add_argument("--threads", type=_threads, default=os.environ.get("STOKER_THREADS", "1"))
    parser.add_argument("--types", action="store_true", help="list the types that this runner has")
    parser.add_argument("--version", action="version", version=f"stoker-runner {__version__} (Python)")
    options = parser.parse_args(_joined(sys.argv[1:]))
    if not options.types and (options.job_id is None or options.type is None):
        parser.error("--job-id and --type are required")
    return options


def _joined(arguments: list[str]) -> list[str]:
    """`--payload -1e5` as `--payload=-1e5`: argparse would take the number for an option."""
    if "--payload" not in arguments[:-1]:
        return arguments
    at = arguments.index("--payload")
    return [*arguments[:at], f"--payload={arguments[at + 1]}", *arguments[at + 2 :]]


def _threads(text: str) -> int:
    value = int(text)
    if not 1 <= value <= MAX_THREADS:
        raise ValueError
    return value


def _payload(argument: str) -> bytes:
    return sys.stdin.buffer.read() if argument == "-" else os.fsencode(argument)


def _context(options: argparse.Namespace) -> JobContext:
    """Return the job's context. The attempt and the claim id come from the environment that the supervisor sets; each is 1
    when it is not set, as when a developer runs a job by hand."""
    attempt = _number("STOKER_ATTEMPT")
    claim_id = _number("STOKER_CLAIM_ID")
    return JobContext(
        options.job_id, claim_id, options.type, attempt, attempt, options.threads, "default", None, {}
    )


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 1


def _write_error(type: str, message: str) -> None:
    text = message[:MESSAGE_MAX].encode("utf-8", "backslashreplace").decode()
    sys.stderr.write(msgspec.json.encode({"type": type, "message": text}).decode() + "\n")


if __name__ == "__main__":
    sys.exit(main())
