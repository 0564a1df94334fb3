"""A past for a new database: series, written with the store's own statements before anybody has the file."""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stoker.domain.series import COARSE_SEC, FINE_SEC, SECOND, GaugeRow, Gauges, Tally, TallyRow, part_of
from stoker.store.series import gauge_values, tally_values
from stoker.store.sqlite import database
from stoker.store.sqlite.rows import Q

SHARD: Final = 1
PAIRS: Final = {
    # queue, type: jobs per second, seconds to run, share that fails
    ("mail", "send_mail"): (5.2, 0.11, 0.0),
    ("images", "make_thumbnail"): (1.8, 0.7, 0.002),
    ("imports", "import_orders"): (0.2, 5.2, 0.01),
    ("reports", "build_report"): (0.1, 11.5, 0.0),
    ("billing", "charge_card"): (1.2, 0.17, 0.06),
    ("billing", "write_invoice"): (0.7, 0.06, 0.1),
    ("search", "index_product"): (3.4, 0.05, 0.01),
}


def write_series(path: Path, now: int, hours: float = 26.0) -> None:
    """What the shop of `dashboard_app` did in the last hours, with a day's rise and fall."""
    db = database.open_writer(path)
    database.migrate(db)
    spread = random.Random(7)
    with db:
        for bucket_sec, span in ((FINE_SEC, min(hours, 3.0)), (COARSE_SEC, hours)):
            end = now // SECOND // bucket_sec * bucket_sec
            # A little beyond now: a system takes a moment to start.
            ready = now / SECOND + FINE_SEC
            for at in range(end - int(span * 3600), int(ready), bucket_sec):
                rows = list(_tallies(bucket_sec, at, min(bucket_sec, ready - at), spread))
                db.executemany(Q["put_tally"], [(SHARD, *tally_values(row)) for row in rows])
                db.execute(Q["put_gauge"], (SHARD, *gauge_values(_gauges(bucket_sec, at, spread))))
    db.close()


def _load(at: int) -> float:
    return 1.0 + 0.3 * math.sin(at / 2600) + 0.15 * math.sin(at / 340)


def _tallies(bucket_sec: int, at: int, seconds: float, spread: random.Random) -> Iterator[TallyRow]:
    for (queue, type), (per_second, run_seconds, failing) in PAIRS.items():
        count = max(0, round(per_second * seconds * _load(at) * spread.uniform(0.85, 1.15)))
        failed = sum(spread.random() < failing for _ in range(count))
        tally = Tally(count, count - failed, failed, 0, failed * 2, max(0, round(6 * _load(at))), {}, {})
        for _ in range(min(count, 40)):
            wait = part_of(int(spread.lognormvariate(-4.2, 0.7) * _load(at) * SECOND))
            run = part_of(int(run_seconds * spread.lognormvariate(0, 0.35) * SECOND))
            tally.wait[wait] = tally.wait.get(wait, 0) + 1
            tally.run[run] = tally.run.get(run, 0) + 1
        yield TallyRow(bucket_sec, at * SECOND, queue, type, tally)


def _gauges(bucket_sec: int, at: int, spread: random.Random) -> GaugeRow:
    load = _load(at)
    used = max(1, min(12, round(5.5 * load + spread.uniform(-1, 1))))
    gauges = Gauges(round(9 * load**3 * spread.uniform(0.7, 1.3)), used, 12, 3, 2 + round(load))
    return GaugeRow(bucket_sec, at * SECOND, gauges)
