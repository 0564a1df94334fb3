"""What one coordinator keeps in memory of the shared store; all of it can be read again.

Lanes only ever grow in number, in the order of their ids, so knowing them means reading those after the last one known.
`active` holds the lanes that may have queued jobs, as far as this coordinator knows: its own work, and what a look around
found. Others fill lanes too, and say so (`look_again`); behind that stands a look of its own every `LOOK_SECONDS`.

Sequence numbers come in blocks, so that a job has its number, and its place among those of its coordinator, before anything
is written. A block is given up after `BLOCK_SECONDS`, which bounds how far the jobs of two coordinators can be out of order.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import astuple

from stoker.clock import Clock
from stoker.domain.placement import Lane
from stoker.store.ended_jobs import PurgedUntil
from stoker.store.first_in_line import FirstInLine
from stoker.store.postgres.lazy_transaction import Statements
from stoker.store.postgres.rows import Q

LOOK_SECONDS: Final = 0.9
BLOCK: Final = 10_000
BLOCK_SECONDS: Final = 0.1
REFUSED_SECONDS: Final = 1.0

_LANE_ID: Final = 3
"""Where a selected row has its lane."""


class PostgresMemory:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lanes: dict[tuple[Any, ...], int] = {}
        self.lane_of: dict[int, Lane] = {}
        self.active: set[int] = set()
        self.first_in_line = FirstInLine()
        self.purged = PurgedUntil()
        self._woken: set[int] = set()
        self._last_lane = 0
        self._next_seq = 0
        self._end_seq = 0
        self._block_until = 0.0
        self._look_at = 0.0
        self._refused_until = 0.0

    # ── lanes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def know_lanes(self, link: Statements, wanted: Collection[tuple[Any, ...]]) -> None:
        """Make sure that these lanes exist and are known. New ones become visible with the caller's transaction; should that
        fail, they are forgotten by `forget_lanes_after`."""
        if all(key in self.lanes for key in wanted):
            return
        await link.execute(Q["lock_lanes"])
        await self.read_lanes(link)
        new = sorted((key for key in wanted if key not in self.lanes), key=repr)
        if new:
            rows = [(self._last_lane + number, *key) for number, key in enumerate(new, 1)]
            await link.execute(Q["insert_lanes"], *zip(*rows, strict=True))
            self._learn(rows)

    async def lane_beside(self, link: Statements, key: tuple[Any, ...]) -> int:
        """Return the id of a lane for a transaction that is not the one which makes lanes: a new one is not known here
        before it was committed (`learn`), so that no other transaction uses it."""
        if key not in self.lanes:
            await self.read_lanes(link)
        if key in self.lanes:
            return self.lanes[key]
        await link.execute(Q["lock_lanes"])
        rows = {tuple(fields): id for id, *fields in await link.fetch(Q["lanes_after"], 0)}
        if key not in rows:
            rows[key] = max(rows.values(), default=0) + 1
            await link.execute(Q["insert_lanes"], *zip((rows[key], *key), strict=True))
        return int(rows[key])

    def learn(self, id: int, key: tuple[Any, ...]) -> None:
        """A lane that was made beside was committed."""
        self._learn([(id, *key)])

    @property
    def last_lane(self) -> int:
        return self._last_lane

    def forget_lanes_after(self, id: int) -> None:
        """Forget lanes whose transaction failed: other lanes will get their ids."""
        for late in [known for known in self.lane_of if known > id]:
            del self.lanes[astuple(self.lane_of.pop(late))]
        self.active = {known for known in self.active if known <= id}
        self._last_lane = min(self._last_lane, id)

    async def read_lanes(self, link: Statements) -> None:
        self._learn(await link.fetch(Q["lanes_after"], self._last_lane))

    def _learn(self, rows: Iterable[Any]) -> None:
        for id, *fields in rows:
            lane = Lane(*fields)
            self.lane_of[id] = lane
            self.lanes[astuple(lane)] = id
            self._last_lane = max(self._last_lane, id)

    async def lanes_of(self, link: Statements, rows: Iterable[Any]) -> Mapping[int, Lane]:
        """Return the lanes, at least those of these rows."""
        return await self.lanes_named(link, {row[_LANE_ID] for row in rows})

    async def lanes_named(self, link: Statements, ids: Collection[int]) -> Mapping[int, Lane]:
        if any(id not in self.lane_of for id in ids):
            await self.read_lanes(link)
        return self.lane_of

    def lanes_matching(
        self, queue: str | None, type: str | None, types: Collection[str] | None = None
    ) -> list[int]:
        """Return the lanes of a queue and a type, and of any of `types`; None stands for all."""
        return [
            id
            for id, lane in self.lane_of.items()
            if queue in (None, lane.queue)
            and type in (None, lane.type)
            and (types is None or lane.type in types)
        ]

    # ── what waits ─────────────────────────────────────────────────────────────────────────────────────────────────

    def wake(self, lanes: Collection[int]) -> None:
        """These have queued jobs now."""
        self.active.update(lanes)
        self._woken.update(lanes)
        self.first_in_line.forget(lanes)

    def begin_claim(self) -> None:
        """From here on it is remembered which lanes are given jobs, by the other write pipeline too."""
        self._woken = set()

    def emptied(self, lanes: Collection[int]) -> None:
        """A claim found nothing in these lanes; they have queued jobs only if they were given some since it began."""
        self.active -= set(lanes) - self._woken

    def look_again(self) -> None:
        self._look_at = 0.0

    @property
    def should_look(self) -> bool:
        """Whether it is time to find out which lanes have queued jobs."""
        return self._clock.monotonic() >= self._look_at

    async def look_around(self, link: Statements) -> None:
        """Find out which lanes have queued jobs, if it is time for that. Called when a claim begins."""
        if not self.should_look:
            return
        ids = {row[0] for row in await link.fetch(Q["active_lanes"])}
        await self.lanes_named(link, ids)
        self.active = ids | self._woken
        self.first_in_line.forget_all()
        self._look_at = self._clock.monotonic() + LOOK_SECONDS

    # ── writing before looking ───────────────────────────────────────────────────────────────────────────────────────

    def refused(self) -> None:
        """A job was written that a look would have kept back: a client sent its id again, or its queue is paused."""
        self._refused_until = self._clock.monotonic() + REFUSED_SECONDS

    @property
    def look_first(self) -> bool:
        """Whether jobs were refused a moment ago: then it is worth a look before anything is written."""
        return self._clock.monotonic() < self._refused_until

    # ── numbers ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def numbers(self, link: Statements, count: int) -> list[int]:
        """Return this many new sequence numbers, each greater than all that this coordinator had before."""
        found: list[int] = []
        if self._clock.monotonic() >= self._block_until:
            self._next_seq = self._end_seq
        while len(found) < count:
            if self._next_seq == self._end_seq:
                block = int(await link.fetchval(Q["next_block"]))
                self._next_seq, self._end_seq = block * BLOCK, (block + 1) * BLOCK
                self._block_until = self._clock.monotonic() + BLOCK_SECONDS
            take = min(count - len(found), self._end_seq - self._next_seq)
            found += range(self._next_seq, self._next_seq + take)
            self._next_seq += take
        return found
