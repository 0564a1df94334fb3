"""`python -m bench.cost [--base REV]`: what a job costs, and whether it costs more than in another revision."""

import argparse
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from bench.command import leave, limited
from bench.context import Run
from bench.cost import stores
from bench.cost.calls import HOW_TO_COUNT, Counter, find_counter
from bench.cost.figures import Bounds, Costs, Quotient, Subject, cost_table, quotient_table, quotients
from bench.cost.measure import IDLE, Cost, Revision, bench_of
from bench.cost.revisions import other_revision, this_revision
from bench.cost.workloads import WORKLOADS, Workload
from bench.facts import load_average
from bench.http import BadResponse
from bench.processes import BenchFailed
from tests.support.servers import Postgres

_IDLE_SECONDS: Final = 3.0
_STORES: Final = ("sqlite", "postgres")


class Measured(msgspec.Struct, frozen=True):
    """One cost, as `--json` saves it."""

    revision: str
    subject: Subject
    rounds: Sequence[Cost]


class Report(msgspec.Struct, frozen=True):
    environment: dict[str, str]
    costs: Sequence[Measured]
    quotients: Sequence[Quotient]


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    signal.signal(signal.SIGTERM, leave)
    with (
        tempfile.TemporaryDirectory(prefix="stoker-cost-", dir=options.dir) as name,
        limited(options.limit),
        ExitStack() as stack,
    ):
        try:
            report, text = _measured(options, Path(name), stack)
        except (BenchFailed, BadResponse, OSError) as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    print(text)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return 1 if any(each.exceeded for each in report.quotients) else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [workload.name for workload in WORKLOADS]
    bounds = Bounds()
    parser = argparse.ArgumentParser(
        prog="python -m bench.cost",
        description="Measure what a job costs each process of Stoker: CPU time, system calls, transactions.",
    )
    parser.add_argument(
        "--base", metavar="REV", help="compare with this revision; exit code 1 if a bound is exceeded"
    )
    parser.add_argument(
        "--pairs", type=int, default=10, help="how often both are measured in turn (default: 10)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often, without --base (default: 3)")
    parser.add_argument(
        "--quick", action="store_true", help="few jobs, once: a look, nothing to conclude from"
    )
    parser.add_argument("--stores", nargs="+", choices=_STORES, default=_STORES)
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--most", type=float, default=bounds.most, help="of CPU, calls, transactions: this / base"
    )
    parser.add_argument(
        "--least-rate", type=float, default=bounds.least_rate, help="of jobs per second: this / base"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also save everything here")
    parser.add_argument("--dir", type=Path, help="where to put the temporary folder (default: the system's)")
    parser.add_argument("--limit", type=float, default=3_600.0, help="give up after so many seconds")
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds = options.pairs = 1
    return options


def _measured(options: argparse.Namespace, folder: Path, stack: ExitStack) -> tuple[Report, str]:
    run = Run(folder)
    revisions = [this_revision()]
    if options.base:
        revisions.append(other_revision(options.base, run.progress))
    counter = find_counter()
    environment = {
        **run.facts(),
        "revisions": ", ".join(revision.name for revision in revisions),
        "system calls": HOW_TO_COUNT if counter is None else counter.name,
    }
    costs: dict[Revision, defaultdict[Subject, list[Cost]]] = {each: defaultdict(list) for each in revisions}
    for in_turn, store in _turns(options, revisions, _stores(options, folder, stack)):
        for (revision, subject), cost in _side_by_side(in_turn, store, counter, _amounts(options)):
            costs[revision][subject].append(cost)
            run.progress(_progress(revision, subject, cost))
    environment["load average at the end"] = load_average()
    bounds = Bounds(options.most, options.least_rate)
    found = quotients(costs[revisions[0]], costs[revisions[1]], bounds) if options.base else []
    return _report(environment, costs, found), _text(environment, costs, found, bounds)


def _amounts(options: argparse.Namespace) -> dict[Workload, int]:
    chosen = [workload for workload in WORKLOADS if workload.name in options.workloads]
    return {workload: workload.quick_jobs if options.quick else workload.jobs for workload in chosen}


def _turns(
    options: argparse.Namespace, revisions: Sequence[Revision], places: Sequence[stores.Store]
) -> Iterator[tuple[Sequence[Revision], stores.Store]]:
    """Every round, every store; which revision begins alternates, since the second finds a warmer machine."""
    for turn in range(options.pairs if len(revisions) > 1 else options.rounds):
        for store in places:
            yield (revisions if turn % 2 else revisions[::-1]), store


def _side_by_side(
    revisions: Sequence[Revision],
    store: stores.Store,
    counter: Counter | None,
    amounts: Mapping[Workload, int],
) -> Iterator[tuple[tuple[Revision, Subject], Cost]]:
    """Measure all revisions on systems that are up at the same time, workload by workload. A shared machine may become
    faster or slower within minutes; what is compared is seconds apart."""
    with ExitStack() as stack:
        benches = {each: stack.enter_context(bench_of(each, store, counter)) for each in revisions}
        quick = {
            (revision, workload): bench.cost(workload, jobs)
            for workload, jobs in amounts.items()
            for revision, bench in benches.items()
        }
        for (revision, workload), cost in quick.items():
            counted = benches[revision].counted(workload, amounts[workload], cost)
            yield (revision, Subject(store.name, workload.name)), counted
        for revision, bench in benches.items():
            yield (revision, Subject(store.name, IDLE)), bench.idle(_IDLE_SECONDS)


def _stores(options: argparse.Namespace, folder: Path, stack: ExitStack) -> list[stores.Store]:
    found: list[stores.Store] = []
    if "sqlite" in options.stores:
        found.append(stores.Sqlite(folder))
    if "postgres" in options.stores:
        folder.chmod(0o755)  # the server may have to run as another user
        server = Postgres(folder / "pg", settings=stores.SETTINGS)
        stack.callback(server.stop)
        server.start()
        found.append(stores.OnPostgres(folder, server))
    return found


def _progress(revision: Revision, subject: Subject, cost: Cost) -> str:
    cpu, calls = sum(cost.cpu_us.values()), sum(cost.calls.values())
    figures = f"{cpu:.1f} µs, {calls:.2f} calls, {cost.transactions:.3f} transactions a job, {cost.rate:,.0f} jobs/s"
    return f"{revision.name}, {subject.store}, {subject.workload}: {figures}"


def _report(
    environment: dict[str, str], costs: Mapping[Revision, Costs], found: Sequence[Quotient]
) -> Report:
    measured = [
        Measured(revision.name, subject, rounds)
        for revision, of in costs.items()
        for subject, rounds in of.items()
    ]
    return Report(environment, measured, found)


def _text(
    environment: dict[str, str], costs: Mapping[Revision, Costs], found: Sequence[Quotient], bounds: Bounds
) -> str:
    width = max(map(len, environment))
    shown = [f"{name.ljust(width)}  {value}" for name, value in environment.items()]
    for revision, of in costs.items():
        shown += ["", f"{revision.name}: medians; for idle, of each second", cost_table(of)]
    if found:
        exceeded = sum(each.exceeded for each in found)
        limits = f"at most {bounds.most:g} of CPU, calls and transactions, at least {bounds.least_rate:g} of the rate"
        shown += ["", f"this / base: median of the pairs ({limits}, of all processes together)"]
        shown += [quotient_table(found), "", f"{exceeded} bounds exceeded"]
    return "\n".join(shown)


if __name__ == "__main__":
    sys.exit(main())
