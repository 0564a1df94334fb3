"""What the embedded store keeps in memory between transactions."""

import apsw

from stoker.domain.placement import Lane
from stoker.store.ended_jobs import PurgedUntil
from stoker.store.first_in_line import FirstInLine
from stoker.store.sqlite.rows import Q


class SqliteMemory:
    """What the store keeps in memory between transactions; all of it can be rebuilt from the file.

    `active` holds every lane that may have queued jobs. It may hold more: a lane is dropped when a look finds it empty.
    `paused` holds the queues from which nothing is claimed, and since when.
    """

    def __init__(self) -> None:
        self.lanes: dict[Lane, int] = {}
        self.lane_of: dict[int, Lane] = {}
        self.active: set[int] = set()
        self.paused: dict[str, int] = {}
        self.first_in_line = FirstInLine()
        self.next_seq = 1
        self.purged = PurgedUntil()
        self.completed_to = 0
        """The highest sequence number that completed in this process. Raised before the commit, so no reader sees a
        completed job above it."""

    def load(self, db: apsw.Connection) -> None:
        for id, *fields in db.execute(Q["all_lanes"]):
            self.add_lane(Lane(*fields), int(id))
        self.active = {int(row[0]) for row in db.execute(Q["active_lanes"])}
        self.paused = dict(db.execute(Q["paused_queues"]))
        (last,) = db.execute(Q["last_seq"]).fetchone() or (0,)
        kept = db.execute(Q["get_meta"], ("last_seq",)).fetchone()
        self.next_seq = max(int(last), int(kept[0]) if kept else 0) + 1

    def add_lane(self, lane: Lane, id: int) -> None:
        self.lanes[lane] = id
        self.lane_of[id] = lane
