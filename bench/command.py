"""The command line of a suite of measurements: which parts, how long at most, what is printed and saved, the exit code."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn, Protocol

import msgspec

from bench.context import Run
from bench.facts import load_average, source_digest
from bench.http import BadResponse
from bench.processes import BenchFailed
from bench.results import FAIL, PASS, Line, Report, table, unjudged

Step = tuple[str, Callable[[], list[Line]]]
"""What to call it while it runs, and what runs it."""


class OutOfTime(BenchFailed):
    """The whole run took longer than it may."""


class Suite(Protocol):
    """What is measured; everything around it is done here."""

    program: str
    description: str
    parts: Sequence[str]
    limit_seconds: float
    notes_title: str

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Options beyond those that every suite has."""

    def prepare(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> Run:
        """Start what the parts share, to be ended by the stack."""

    def steps(self, parts: Sequence[str]) -> Iterable[Step]:
        """Those parts, in the order in which they are to run. Called after `prepare`."""


def main(suite: Suite, argv: Sequence[str] | None = None) -> int:
    options = _options(suite, argv)
    signal.signal(signal.SIGTERM, leave)
    with (
        tempfile.TemporaryDirectory(prefix="stoker-bench-", dir=options.dir) as name,
        limited(options.limit),
        ExitStack() as stack,
    ):
        run = suite.prepare(options, Path(name), stack)
        report = _measure(run, suite.steps(options.parts), quick=options.quick)
    print(_text(report, suite.notes_title))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return 1 if report.failures or FAIL in report.verdicts.values() else 0


def _options(suite: Suite, argv: Sequence[str] | None) -> argparse.Namespace:
    names = suite.parts
    parser = argparse.ArgumentParser(prog=suite.program, description=suite.description)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(names)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: small numbers, timing is not judged"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also save everything here")
    parser.add_argument("--dir", type=Path, help="where to put the temporary folder (default: the system's)")
    parser.add_argument(
        "--limit", type=float, default=suite.limit_seconds, help="give up after so many seconds"
    )
    suite.add_options(parser)
    options = parser.parse_args(argv)
    unknown = set(options.parts) - set(names)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    options.parts = options.parts or list(names)
    return options


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """End by an exception, so that what was started is stopped on the way out: a handler of signals."""
    sys.exit(128 + number)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `OutOfTime` inside when it takes longer."""

    def give_up(number: int, frame: FrameType | None) -> NoReturn:
        raise OutOfTime(f"not done after {seconds:g} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _measure(run: Run, steps: Iterable[Step], *, quick: bool) -> Report:
    environment = run.facts()
    lines: list[Line] = []
    failures: list[str] = []
    for name, part in steps:
        run.progress(name)
        try:
            lines += part()
        except OutOfTime as error:
            failures.append(f"{name}: {error}")
            break
        except (BenchFailed, BadResponse, OSError) as error:
            failures.append(f"{name}: {error}")
            run.progress(f"{name} failed: {error}")
    environment["load average at the end"] = load_average()
    if source_digest() != environment["source"]:
        failures.append(
            "Stoker's source was changed during the run, and the figures mix versions; run it again"
        )
    if quick:
        lines = [unjudged(line) for line in lines]
    verdicts = {line.name: line.verdict for line in lines if line.verdict}
    return Report(environment, quick, lines, verdicts, run.notes, failures, round(run.seconds, 1))


def _text(report: Report, notes_title: str) -> str:
    width = max(map(len, report.environment))
    shown = [f"{name.ljust(width)}  {value}" for name, value in report.environment.items()]
    shown += ["", table([_without_long_rounds(line) for line in report.lines])]
    if report.notes:
        shown += ["", notes_title, *report.notes]
    shown += ["", *(f"NOT VALID  {failure}" for failure in report.failures)]
    return "\n".join([*shown, _summary(report)])


def _without_long_rounds(line: Line) -> Line:
    return line if len(line.rounds) <= 5 else msgspec.structs.replace(line, rounds=())


def _summary(report: Report) -> str:
    verdicts = list(report.verdicts.values())
    kind = "smoke run, timing not judged" if report.quick else "full run"
    counts = f"{verdicts.count(PASS)} of {len(verdicts)} targets met"
    return f"{counts}, {len(report.failures)} problems; {kind}, {report.seconds:.0f} s"
