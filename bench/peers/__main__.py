"""`python -m bench.peers`: Stoker beside its peers. `python -m bench.peers growth`: Stoker as backlog and history grow."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.command import leave, limited
from bench.context import Run
from bench.facts import load_average, source_digest
from bench.peers import documents, growth
from bench.peers.compare import Found, compare
from bench.peers.figures import Verdict, figures, missing, verdicts, wrong_jobs
from bench.peers.systems import BY_KEY, SYSTEMS
from bench.peers.tables import figure_table, verdict_table
from bench.processes import BenchFailed

COMPARE, GROWTH = "compare", "growth"
_SECONDS: Final = 2.0
_QUICK_SECONDS: Final = 0.5
_ROUNDS: Final = 5
_GROWTH_ROUNDS: Final = 3


class Report(msgspec.Struct, frozen=True):
    environment: dict[str, str]
    found: Found
    medians: dict[str, dict[str, float]]
    verdicts: Sequence[Verdict]
    passed: dict[str, bool]
    """By the row of the table of verdicts."""
    problems: Sequence[str]


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    signal.signal(signal.SIGTERM, leave)
    with (
        tempfile.TemporaryDirectory(
            prefix="stoker-bench-", dir=options.dir, ignore_cleanup_errors=True
        ) as name,
        limited(options.limit),
    ):
        run = Run(Path(name))
        try:
            return _growth(options, run) if options.what == GROWTH else _compare(options, run)
        except BenchFailed as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("what", nargs="?", choices=(COMPARE, GROWTH), default=COMPARE)
    parser.add_argument("--rounds", type=int, help=f"default: {_ROUNDS}; for growth {_GROWTH_ROUNDS}")
    parser.add_argument("--seconds", type=float, help=f"of each measurement (default: {_SECONDS:g})")
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=[system.key for system in SYSTEMS],
        help="default: all; not for growth",
    )
    parser.add_argument("--curves", nargs="+", choices=list(growth.CURVES), help="of growth (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: one short round, small sizes, nothing is judged"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also save everything here")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="write tables and picture into docs/benchmarks.md and README.md",
    )
    parser.add_argument("--dir", type=Path, help="where to put the temporary folder (default: the system's)")
    parser.add_argument("--limit", type=float, default=3_600.0, help="give up after so many seconds")
    options = parser.parse_args(argv)
    if options.quick and options.write_docs:
        parser.error("--quick figures say nothing and do not belong into the docs; leave out one of the two")
    default = _GROWTH_ROUNDS if options.what == GROWTH else _ROUNDS
    options.rounds = options.rounds or (1 if options.quick else default)
    options.seconds = options.seconds or (_QUICK_SECONDS if options.quick else _SECONDS)
    options.systems = options.systems or [system.key for system in SYSTEMS]
    options.curves = options.curves or list(growth.CURVES)
    return options


def _compare(options: argparse.Namespace, run: Run) -> int:
    systems = [BY_KEY[key] for key in options.systems]
    environment = run.facts()
    found = compare(run, systems, options.rounds, options.seconds)
    environment["load average at the end"] = load_average()
    environment["rounds"] = f"{options.rounds}, {options.seconds:g} s for each measurement"
    numbers = {key: of for key, of in figures(found.turns).items() if of}
    judged = verdicts(numbers)
    wrong = wrong_jobs(found.turns)
    problems = [*found.failures]
    problems += [f"{BY_KEY[key].title}: {count} jobs lost or run twice" for key, count in wrong.items()]
    unjudged = missing(judged, options.systems)
    problems += [f"{goal.system}, {goal.quantity}: not judged, a figure is missing" for goal in unjudged]
    if source_digest() != environment["source"]:
        problems.append(
            "Stoker's source was changed during the run, and the figures mix versions; run it again"
        )
    print(_text(environment, figure_table(numbers), verdict_table(judged), problems))
    if options.json is not None:
        medians = {key: {name: figure.median for name, figure in of.items()} for key, of in numbers.items()}
        passed = {
            f"{each.goal.system}, {each.goal.quantity}, {each.goal.against}": each.met for each in judged
        }
        report = Report(environment, found, medians, judged, passed, problems)
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    if options.write_docs:
        documents.write_comparison(environment, numbers, judged, problems)
    own_problem = any(BY_KEY[key].is_stoker for key in (*wrong, *found.failed))
    missed = bool(unjudged) or not all(verdict.met for verdict in judged)
    return int(own_problem or (missed and not options.quick))


def _growth(options: argparse.Namespace, run: Run) -> int:
    environment = run.facts()
    sizes = growth.QUICK if options.quick else growth.SIZES
    curves, failures = growth.measure(run, options.curves, sizes, options.rounds, options.seconds)
    environment["load average at the end"] = load_average()
    environment["rounds"] = f"{options.rounds}, {options.seconds:g} s for each measurement"
    judged = [] if options.quick else growth.judged(curves)
    print(_text(environment, growth.table(curves), growth.verdict_table(judged), failures))
    if options.json is not None:
        document = {"environment": environment, "curves": curves, "verdicts": judged, "failures": failures}
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
    if options.write_docs:
        documents.write_growth(environment, curves, judged, failures)
    return int(bool(failures) or not all(verdict.met for verdict in judged))


def _text(environment: dict[str, str], table: str, verdict_lines: str, failures: Sequence[str]) -> str:
    width = max(map(len, environment))
    shown = [f"{name.ljust(width)}  {value}" for name, value in environment.items()]
    shown += [line for text in (table, verdict_lines) if text for line in ("", text)]
    shown += ["", *(f"PROBLEM  {failure}" for failure in failures)] if failures else []
    return "\n".join(shown)


if __name__ == "__main__":
    sys.exit(main())
