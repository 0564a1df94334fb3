"""`python -m bench [PART…]`: measure, print, judge."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import msgspec

from bench.context import QUICK, Context, Sizes
from bench.facts import facts, load_average, source_digest
from bench.http import BadResponse
from bench.parts import drain, durable, latency, reads, runner, throughput, unserved
from bench.processes import BenchFailed
from bench.results import FAIL, PASS, Line, Report, table, unjudged

LIMIT_SECONDS: Final = 900.0
TOGETHER: Final = (throughput.BARE, throughput.SINGLES, throughput.BATCHES)
ALONE: Final[dict[str, Callable[[Context], list[Line]]]] = {
    "drain": drain.run,
    "latency": latency.run,
    "reads": reads.run,
    "unserved": unserved.run,
    "durable": durable.run,
    "runner": runner.run,
}


class OutOfTime(BenchFailed):
    """The whole run took longer than it may."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    signal.signal(signal.SIGTERM, _leave)
    with (
        tempfile.TemporaryDirectory(prefix="stoker-bench-", dir=options.dir) as name,
        _limited(options.limit),
    ):
        report = _measure(Path(name), options.parts, quick=options.quick)
    print(_text(report))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return 1 if report.failures or FAIL in report.verdicts.values() else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [*TOGETHER, *ALONE]
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Stoker on this machine.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(names)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: small numbers, timing is not judged"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also save everything here")
    parser.add_argument("--dir", type=Path, help="where to put the temporary folder (default: the system's)")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="give up after so many seconds")
    options = parser.parse_args(argv)
    unknown = set(options.parts) - set(names)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
    options.parts = options.parts or names
    return options


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> NoReturn:
        raise OutOfTime(f"not done after {seconds:g} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _measure(folder: Path, parts: Sequence[str], *, quick: bool) -> Report:
    context = Context(folder, QUICK if quick else Sizes())
    environment = facts(folder)
    lines: list[Line] = []
    failures: list[str] = []
    for name, part in _steps(parts):
        context.progress(name)
        try:
            lines += part(context)
        except OutOfTime as error:
            failures.append(f"{name}: {error}")
            break
        except (BenchFailed, BadResponse, OSError) as error:
            failures.append(f"{name}: {error}")
            context.progress(f"{name} failed: {error}")
    environment["load average at the end"] = load_average()
    if source_digest() != environment["source"]:
        failures.append(
            "Stoker's source was changed during the run, and the figures mix versions; run it again"
        )
    if quick:
        lines = [unjudged(line) for line in lines]
    verdicts = {line.name: line.verdict for line in lines if line.verdict}
    return Report(environment, quick, lines, verdicts, context.notes, failures, round(context.seconds, 1))


def _steps(parts: Sequence[str]) -> Iterator[tuple[str, Callable[[Context], list[Line]]]]:
    together = [name for name in TOGETHER if name in parts]
    if together:
        yield ", ".join(together), lambda context: throughput.run(context, together)
    for name, part in ALONE.items():
        if name in parts:
            yield name, part


def _text(report: Report) -> str:
    width = max(map(len, report.environment))
    shown = [f"{name.ljust(width)}  {value}" for name, value in report.environment.items()]
    shown += ["", table([_without_long_rounds(line) for line in report.lines])]
    if report.notes:
        shown += ["", "One request, as strace saw it:", *report.notes]
    shown += ["", *(f"NOT VALID  {failure}" for failure in report.failures)]
    return "\n".join([*shown, _summary(report)])


def _without_long_rounds(line: Line) -> Line:
    return line if len(line.rounds) <= 5 else msgspec.structs.replace(line, rounds=())


def _summary(report: Report) -> str:
    verdicts = list(report.verdicts.values())
    kind = "smoke run, timing not judged" if report.quick else "full run"
    counts = f"{verdicts.count(PASS)} of {len(verdicts)} targets met"
    return f"{counts}, {len(report.failures)} problems; {kind}, {report.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
