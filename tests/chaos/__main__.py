"""`make chaos`: real processes under steady load, while everything that can break is broken; then the verdict.

Each round has a fresh system. It ends with a quiet time in which everything must come to its end. The table and the
pictures go to `--out`; the exit code is 1 when anything is wrong, and the history that shows it is kept there. It is 1
as well when a kind of fault was never played, or nothing was there to judge: such a run has not shown what it is for.
"""

import argparse
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos import judge
from tests.chaos.books import Clock as Conversion
from tests.chaos.books import monotonic
from tests.chaos.clients import Crowd
from tests.chaos.faults import Director
from tests.chaos.load import Meddler, has_a_key, mixture
from tests.chaos.picture import draw
from tests.chaos.readiness import Balancer
from tests.chaos.stage import LEASE_SECONDS, PostgresStage, Stage, stage
from tests.chaos.watching import with_kills
from tests.checkers.history import History, Rules

STORES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL + Redis"}
ROUND_SECONDS: Final = 240.0
JOBS_PER_SECOND: Final = 95.0
FAULT_EVERY_SECONDS: Final = 1.7
AT_ONCE: Final = 3
QUIET_SECONDS: Final = 120.0
STUCK_SECONDS: Final = 45.0
RULES: Final = Rules(backoff_base=1.0, lease=LEASE_SECONDS, clock_slack=0.01)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    options = _options()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    stores = list(STORES) if options.store == "both" else [options.store]
    deadline = time.monotonic() + options.hours * 3600
    verdicts: dict[str, list[judge.Verdict]] = {store: [] for store in stores}
    round = 0
    while round == 0 or time.monotonic() < deadline:
        for store in stores:
            verdicts[store].append(play(store, options.seconds, options.seed + round, out, keep=options.keep))
        round += 1
    totals = [judge.together(found) for found in verdicts.values()]
    text = judge.table(totals)
    (out / "table.md").write_text(f"{text}\n", encoding="utf-8")
    say(text)
    for verdict in totals:
        for skipped in verdict.skipped:
            say(f"{verdict.store}: not done here: {skipped}")
        for untried in verdict.untried:
            say(f"{verdict.store}: not once in this run, which must be longer: {untried}")
        for violation in verdict.violations[:20]:
            say(f"{verdict.store}: {violation.invariant}: {violation.job}: {violation.text}")
    return int(any(verdict.violations or verdict.untried for verdict in totals))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--store", choices=[*STORES, "both"], default="both")
    parser.add_argument("--seconds", type=float, default=ROUND_SECONDS, help="of a round")
    parser.add_argument("--hours", type=float, default=0.0, help="rounds are played until this time is over")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of the faults")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"))
    parser.add_argument(
        "--keep", action="store_true", help="the history of every round, also where nothing is wrong"
    )
    return parser.parse_args()


def play(store: str, seconds: float, seed: int, out: Path, *, keep: bool = False) -> judge.Verdict:
    """One round."""
    say(f"{STORES[store]}: {seconds:.0f} s under load, seed {seed}")
    with stage(store) as made:
        director = Director(made, seed)
        began = time.monotonic()
        crowd = Crowd(
            [door.port for door in made.doors],
            int(seconds * JOBS_PER_SECOND),
            clients=20,
            per_second=JOBS_PER_SECOND,
            spec=mixture,
            keys=has_a_key,
        )
        balancer = Balancer(made.ports)
        meddlers = [Meddler(crowd, f"meddler-{index}", seed + index) for index in range(3)]
        _torment(director, began + seconds)
        history = _aftermath(made, crowd, meddlers, balancer)
        verdict = judge.judge(
            history,
            store=STORES[store],
            seconds=seconds,
            kinds=director.kinds,
            played=director.played,
            requests_failed=len(crowd.failures),
            skipped=director.skipped,
            coordinators=len(made.ports),
            findings=made.findings,
            peak_rss_kb=made.memory.peak_kb,
        )
        title = f"{STORES[store]}: {verdict.jobs:,} jobs, {len(director.played)} faults"
        picture = draw(history, director.played, began, title)
        (out / f"{store}.svg").write_text(picture, encoding="utf-8")
        if verdict.violations or keep:
            _keep(made, history, out / f"{'failed' if verdict.violations else 'fine'}-{store}-{seed}")
        return verdict


def _torment(director: Director, until: float) -> None:
    with ThreadPoolExecutor(AT_ONCE) as players:
        playing = []
        while (left := until - time.monotonic()) > 0:
            playing.append(players.submit(director.play_one))
            time.sleep(min(FAULT_EVERY_SECONDS, left))
        for play in playing:
            play.result()


def _aftermath(made: Stage, crowd: Crowd, meddlers: list[Meddler], balancer: Balancer) -> History:
    """Wait until everything is over, and read what became of it."""
    for meddler in meddlers:
        meddler.stop()
    made.revive()
    quiet_from = time.monotonic()
    for submitters in (crowd, *made.rushes):
        submitters.join(QUIET_SECONDS)
    _until_nothing_moves(made)
    balancer.stop()
    ended = time.monotonic()
    assert not made.ears.misheard, f"frames that could not be read: {made.ears.misheard[:5]}"
    kept = made.books.read(_conversion(made))
    return History(
        rules=RULES,
        ops=[op for submitters in (crowd, *made.rushes) for op in submitters.ops]
        + [op for meddler in meddlers for op in meddler.ops],
        effects=with_kills(made.effects(), made.watcher.deaths),
        journal=kept.journal,
        acks=made.ears.acks,
        reports=made.ears.reports,
        jobs=kept.jobs,
        attempts=kept.attempts,
        counts=kept.counts,
        faults=made.faults,
        outages=made.outages,
        unwritable=made.unwritable,
        readies=balancer.answers,
        deaths=made.dead,
        quiet_from=quiet_from,
        ended=ended,
    )


def _until_nothing_moves(made: Stage) -> None:
    """Until everything is final, or nothing has become final for so long that nothing will. A backlog is not stuck."""
    fewest, since = made.unfinished(), time.monotonic()
    while fewest and time.monotonic() < since + STUCK_SECONDS:
        time.sleep(0.5)
        left = made.unfinished()
        if left < fewest:
            fewest, since = left, time.monotonic()
    if fewest:
        say(f"{fewest} jobs do not come to their end: {made.any().get('/stats')}")


def _conversion(made: Stage) -> Conversion:
    """From the store's time of day to the observer's clock. SQLite's is the coordinator's, which was set forward."""
    here = monotonic()
    if isinstance(made, PostgresStage):
        return here
    past = made.clocks["c0"].past

    def convert(at: float) -> float:
        moments = [(here(at - offset), since) for since, offset in reversed(past)]
        return next((moment for moment, since in moments if moment >= since - 1), moments[-1][0])

    return convert


def _keep(made: Stage, history: History, place: Path) -> None:
    """What a person needs to find out what went wrong."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "history.json").write_bytes(msgspec.json.encode(history))
    for log in made.folder.glob("*.log"):
        (place / log.name).write_bytes(log.read_bytes()[-5_000_000:])


if __name__ == "__main__":
    sys.exit(main())
