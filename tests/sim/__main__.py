"""`python -m tests.sim`: run seeds, or one seed with its trace.

python -m tests.sim --seeds 200 --start 0 --jobs 2
python -m tests.sim --seed 42 --trace
python -m tests.sim --check-hashes            (and --write-hashes 100)
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

from tests.sim import hashes
from tests.sim.world import Result, run

REWRITE: Final = "make sim-hashes WRITE=100"
MOST_VOID: Final = 0.2
"""More runs than this without an expired lease would mean that the faults have lost their teeth."""

PROGRESS: Final = 500
"""A line after so many seeds: a run of thousands takes an hour."""


class Verdict(NamedTuple):
    """What one seed came to, small enough to travel between processes."""

    seed: int
    hash: str
    violations: list[str]
    void: str | None
    jobs: int
    faults: Counter[str]
    leases: int
    virtual_seconds: float


def judge(seed: int) -> Verdict:
    return verdict(run(seed, keep_lines=False))


def verdict(result: Result) -> Verdict:
    history = result.history
    return Verdict(
        result.seed,
        result.hash,
        [f"{v.invariant}: {v.job or ''} {v.text}" for v in result.violations],
        result.void,
        len(history.jobs),
        Counter(fault.kind for fault in history.faults),
        sum(attempt.kind == "lost" for attempt in history.attempts),
        result.seconds,
    )


def verdicts(seeds: range, jobs: int) -> Iterator[Verdict]:
    """In the order of the seeds."""
    if jobs == 1:
        yield from map(judge, seeds)
        return
    with ProcessPoolExecutor(jobs, initializer=gc.freeze) as pool:
        yield from pool.map(judge, seeds, chunksize=5)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Simulate Stoker, seed by seed.")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: print everything that happened")
    parser.add_argument("--write-hashes", type=int, metavar="N", help="write the hashes of the first N seeds")
    parser.add_argument(
        "--check-hashes", action="store_true", help="compare with the hashes that were written"
    )
    options = parser.parse_args()
    if options.seed is not None:
        return one(options.seed, trace=options.trace)
    if options.write_hashes:
        return write_hashes(options.write_hashes, options.jobs)
    if options.check_hashes:
        return check_hashes(options.jobs)
    return many(range(options.start, options.start + options.seeds), options.jobs)


def one(seed: int, *, trace: bool) -> int:
    result = run(seed)
    if trace:
        say("\n".join(result.lines))
    say(summary(verdict(result)))
    return 0 if result.ok else 1


def summary(found: Verdict) -> str:
    head = (
        f"seed {found.seed}: trace {found.hash}, {found.virtual_seconds:.0f} virtual seconds, {found.jobs} jobs, "
        f"{found.leases} leases expired, faults {dict(found.faults)}"
    )
    void = [f"  void: {found.void}"] if found.void else []
    return "\n".join([head, *void, *(f"  VIOLATION {text}" for text in found.violations)])


def many(seeds: range, jobs: int) -> int:
    started = time.monotonic()
    bad, void, total, leases = 0, 0, 0, 0
    faults: Counter[str] = Counter()
    for count, found in enumerate(verdicts(seeds, jobs), 1):
        total, leases = total + found.jobs, leases + found.leases
        faults += found.faults
        void += found.void is not None
        if found.violations:
            bad += 1
            say(summary(found))
            say(f"  replay it: SEED={found.seed} make sim")
        if count % PROGRESS == 0 and count < len(seeds):
            say(f"{count} seeds in {time.monotonic() - started:.0f} s, {bad} with violations")
    taken = time.monotonic() - started
    say(
        f"{len(seeds)} seeds in {taken:.0f} s: {total} jobs, {sum(faults.values())} faults, {leases} leases expired, "
        f"{void} void (no lease expired), {bad} with violations"
    )
    say("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())))
    if void > max(1, MOST_VOID * len(seeds)):
        say("too many void runs: the faults do not reach the leases any more")
        return 1
    return 1 if bad else 0


def write_hashes(count: int, jobs: int) -> int:
    hashes.write((found.seed, found.hash) for found in verdicts(range(count), jobs))
    say(f"{count} hashes written to {hashes.HASHES.name}: {hashes.maker()}")
    return 0


def check_hashes(jobs: int) -> int:
    if not hashes.HASHES.exists():
        say(f"no hashes were written yet; write them: {REWRITE}")
        return 1
    written = hashes.read()
    same = written.maker == hashes.maker()
    if not same:
        say(f"they were written for other sources ({written.maker}), these are {hashes.maker()}")
    differ = 0
    for found in verdicts(range(len(written.hashes)), jobs):
        expected = written.hashes[found.seed]
        if found.hash != expected:
            differ += 1
            say(f"seed {found.seed}: {found.hash}, and {expected} was written")
    say(f"{len(written.hashes)} seeds compared, {differ} differ")
    if not same:
        say(f"if the change was meant, write them anew: {REWRITE}")
    elif differ:
        say("the sources are the same, so a run depends on something that is not its seed")
    return 0 if same and not differ else 1


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
