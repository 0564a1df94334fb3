"""The workers that are connected to this coordinator, and what each of them holds.

The store knows every session of every coordinator; this is the part that is connected here, with its free threads and
its prefetch. It is a cache of the truth: after a restart or a reconnect it is loaded from the store again, and each
heartbeat is compared with it.

Two things can be lost on the way. A claim that was committed but never reached its worker (the coordinator or the
connection died in between) is missing from the worker's heartbeat; `GRACE_US` after the claim it goes back,
uncharged. One that is only late is not lost: a heartbeat says which frame of assignments came last, and what was sent
after that is still on its way to a worker that will run it. A claim that the worker still runs although the job was
given to another is answered with `Drop`.

Where several coordinators share a store, a worker may be connected to another one, or have just moved there while its
old connection still looks alive here. The first are known by `elsewhere`, for they count when a job looks for a large
worker; the second are given nothing new once they have been quiet for a while.

A worker may take any type (`any_type`). It is offered a type only if no session of the last `SEEN_LATELY_US` names it, here
or elsewhere: a worker that restarts finds its jobs waiting. Built-in types belong to no particular worker, so for these only
workers that are there now count. While no worker that takes any type is connected here, nothing is counted.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

import msgspec
from msgspec.structs import replace

from stoker.coordinator.pace import Pace
from stoker.domain.builtin_types import BUILTIN_TYPES
from stoker.domain.job_batch import claim_in_batch
from stoker.domain.placement import PREFETCH_MAX_JOBS, PREFETCH_US, WorkerView
from stoker.domain.retry import Claim
from stoker.store.sessions import Session
from stoker.wire import frames
from stoker.wire.frames import ClaimRef, Frame

GRACE_US: Final = 5_000_000
SEEN_LATELY_US: Final = 60_000_000
SUSPECT_SECONDS: Final = 1.0
NAMED_US: Final = 1_000_000
"""How long the set of named types is kept before it is computed again."""
_NOTHING: Final[frozenset[str]] = frozenset()

Send = Callable[[Frame], None]
"""Hands a frame to the worker's connection without waiting; a connection that cannot keep up is closed by its owner."""


class HeldClaims(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Claims of one batch that a session holds here."""

    template: Claim
    """The first of them."""
    places: dict[str, int]
    """The place of each job in the columns, by its id."""
    seqs: Sequence[int]
    created: Sequence[int]
    cost: int
    """The microseconds of prefetch that each job takes."""
    frame: int
    """The frame in which they were sent; 0 for what was not sent on this connection."""
    sent_at: int = 0
    """When that was; 0 likewise."""
    each_bytes: int = 0
    """The average bytes of a job in the worker's memory."""

    def claim(self, id: str) -> Claim:
        """Return the claim of one of these jobs."""
        if self.template.id == id:
            return self.template
        place = self.places[id]
        return claim_in_batch(self.template, id, self.seqs[place], self.created[place])


class Unsent:
    """Assignments on their way to a connection, by their sizes, until they were written to it."""

    __slots__ = ("_sizes", "bytes")

    def __init__(self) -> None:
        self._sizes: deque[int] = deque()
        self.bytes = 0

    def add(self, size: int) -> None:
        self._sizes.append(size)
        self.bytes += size

    def written(self) -> int:
        """Note that the first of them was written. Return how many bytes waited until then."""
        before = self.bytes
        self.bytes -= self._sizes.popleft()
        return before


class WorkerSession:
    """One connected worker process."""

    def __init__(self, hello: frames.Hello, send: Send, *, pull: bool = False) -> None:
        self.id = hello.session
        self.name = hello.name
        self.threads = hello.threads
        self.types = frozenset(hello.types)
        self.queues = None if hello.queues is None else frozenset(hello.queues)
        self.labels = dict(hello.labels)
        self.any_type = hello.any_type
        self.async_types = frozenset(hello.async_types)
        self.async_concurrency = hello.async_concurrency
        self.draining = hello.draining
        self.pull = pull
        self.batches = False
        """Whether assignments travel in batches on this connection."""
        self.wanted = 0
        """For a worker that asks over HTTP: how many jobs it asked for and has not got yet."""
        self.held: dict[str, HeldClaims] = {}
        self.ending: dict[int, Sequence[tuple[str, int]]] = {}
        """Claims (job id, claim id) whose reports are being stored at this moment, by the number of their frame."""
        self.suspects: dict[tuple[str, int], float] = {}
        """Claims that looked forgotten at the last heartbeat, and since when, by the monotonic clock."""
        self.heard_at: int | None = None
        """When the last frame came; None for sessions whose silence means nothing."""
        self.last_assigned = 0
        self.pace = Pace()
        self.frames_sent = 0
        """`Assign` frames on this connection so far."""
        self.unsent: Unsent | None = None
        """Frames that wait to be written to the connection; None for workers without one."""
        self._send = send
        self._used = 0
        self._slow = 0
        """Threads of `_used` whose jobs are not known to be short."""
        self._held_bytes = 0
        self._backlog_us = 0
        self._async_used = 0
        self._view: WorkerView | None = None
        """The view that was made last; None after a change of what this session holds."""
        self._viewed = (False, 0, 0)
        """What else that view shows and others change: `draining`, `wanted` and the bytes that are not sent."""

    @property
    def threads_used(self) -> int:
        return min(self._used + (self._async_used > 0), self.threads)

    def send(self, frame: Frame) -> None:
        self._send(frame)

    def send_assign(self, frame: frames.Assign, size: int) -> None:
        """Send jobs whose payloads take this many bytes, about."""
        if self.unsent is not None:
            self.unsent.add(size)
        self._send(frame)

    def view(self) -> WorkerView:
        """Return this worker for the planner, which copies what it changes. With hundreds of workers most are as they were
        at the last claim, so the view is kept until something changes."""
        now = (self.draining, self.wanted, 0 if self.unsent is None else self.unsent.bytes)
        if self._view is None or self._viewed != now:
            self._view, self._viewed = self._new_view(), now
        return self._view

    def _new_view(self) -> WorkerView:
        free = 0 if self.draining else max(0, self.threads - self._used - (self._async_used > 0))
        whole = int(self.threads * PREFETCH_US * self.pace.share)
        prefetch_us = 0 if self.draining else max(0, whole - self._backlog_us)
        room = max(0, PREFETCH_MAX_JOBS - len(self.held))
        if self.pull:
            free, prefetch_us, room = (free if self.wanted else 0), 0, self.wanted
        return WorkerView(
            self.id,
            self.threads,
            free,
            prefetch_us,
            self.types,
            self.queues,
            self.labels,
            self.last_assigned,
            room,
            self.async_types,
            0 if self.draining else max(0, self.async_concurrency - self._async_used),
            self._async_used,
            not self.draining,
            free if self.pull else max(free, self.threads - self._slow - (self._async_used > 0)),
            0 if self.unsent is None else self.unsent.bytes,
            self._held_bytes,
        )

    def hold(self, claim: Claim, cost_us: int = PREFETCH_US, frame: int = 0) -> None:
        """Hold one claim, which takes `cost_us` of the prefetch per thread."""
        self.hold_batch(claim, [claim.id], [claim.seq], [claim.created_at], cost_us, frame)

    def hold_batch(
        self,
        template: Claim,
        ids: Sequence[str],
        seqs: Sequence[int],
        created: Sequence[int],
        cost_us: int,
        frame: int,
        sent_at: int = 0,
        size: int = 0,
    ) -> None:
        """Hold the claims of a batch, `size` bytes in all; `template` is the first of them."""
        self._view = None
        held = self.held
        if not held.keys().isdisjoint(ids):
            for id in ids:
                self.release(id)
        count = len(ids)
        self.wanted = max(0, self.wanted - count)
        side_by_side = template.type in self.async_types
        cost = 0 if side_by_side else cost_us * template.threads
        places = dict(zip(ids, range(count), strict=True))
        each_bytes = size // count
        held_claims = HeldClaims(template, places, seqs, created, cost, frame, sent_at, each_bytes)
        held.update(dict.fromkeys(ids, held_claims))
        self._held_bytes += each_bytes * count
        if side_by_side:
            self._async_used += count
        else:
            self._used += template.threads * count
            self._slow += template.threads * count if cost_us >= PREFETCH_US else 0
            self._backlog_us += cost * count

    def note_start(self, held_claims: HeldClaims, started_at: int) -> None:
        """Adjust the pace of the prefetch to a job that started."""
        if held_claims.sent_at and 0 < held_claims.cost < PREFETCH_US:
            self.pace.note(held_claims.sent_at, started_at)
            self._view = None

    def claim(self, id: str, claim_id: int) -> Claim | None:
        """A claim that this session holds here."""
        held_claims = self.held.get(id)
        return (
            None
            if held_claims is None or held_claims.template.claim_id != claim_id
            else held_claims.claim(id)
        )

    def release(self, id: str, claim_id: int | None = None) -> HeldClaims | None:
        """Stop holding the claim of a job, or only this claim of it. Return what it was held with; None when it is not held
        here."""
        held_claims = self.held.get(id)
        if held_claims is None or claim_id not in (None, held_claims.template.claim_id):
            return None
        del self.held[id]
        self._count_released(held_claims, 1)
        return held_claims

    def release_many(self, ids: Sequence[str], claim_ids: Sequence[int]) -> list[HeldClaims | None]:
        """Release many claims, each by its number, like `release`."""
        held = self.held
        found = list(map(held.pop, ids, repeat(None)))
        for place, (held_claims, claim_id) in enumerate(zip(found, claim_ids, strict=True)):
            if held_claims is not None and held_claims.template.claim_id != claim_id:
                held[ids[place]], found[place] = held_claims, None
        for held_claims, count in Counter(found).items():
            if held_claims is not None:
                self._count_released(held_claims, count)
        return found

    def _count_released(self, held_claims: HeldClaims, count: int) -> None:
        self._view = None
        self._held_bytes -= held_claims.each_bytes * count
        if held_claims.template.type in self.async_types:
            self._async_used -= count
        else:
            threads = held_claims.template.threads
            self._used -= threads * count
            self._slow -= threads * count if held_claims.cost >= PREFETCH_US * threads else 0
            self._backlog_us -= held_claims.cost * count

    @property
    def claims(self) -> list[Claim]:
        """Everything that this session holds here."""
        return [held_claims.claim(id) for id, held_claims in self.held.items()]

    def release_all(self) -> None:
        self._view = None
        self.held.clear()
        self._used = self._slow = self._backlog_us = self._async_used = self._held_bytes = 0


def compare(
    session: WorkerSession, held: Sequence[ClaimRef], now: int, received: int | None = None
) -> tuple[list[Claim], list[ClaimRef]]:
    """Compare a heartbeat with what the session holds: find claims that never reached the worker, and claims that it
    must drop. `received` is the last frame of assignments that the worker has seen, if it says so."""
    reported = {(ref.id, ref.claim_id) for ref in held}
    missing = [
        held_claims.claim(id)
        for id, held_claims in session.held.items()
        if _is_old(held_claims.template, now)
        and (received is None or held_claims.frame <= received)
        and (id, held_claims.template.claim_id) not in reported
    ]
    foreign = [ref for ref in held if not _holds(session, ref)]
    return missing, foreign


def _is_old(claim: Claim, now: int) -> bool:
    """Return whether its assignment had time enough to arrive. A claim that was made far in the future was made before the
    clock was set back, and would look new until the clock has caught up."""
    return abs(now - claim.claimed_at) > GRACE_US


def _holds(session: WorkerSession, ref: ClaimRef) -> bool:
    held_claims = session.held.get(ref.id)
    return held_claims is not None and held_claims.template.claim_id == ref.claim_id


def forgotten(
    session: WorkerSession, stored: Sequence[Claim], held: Sequence[ClaimRef], now: int
) -> list[Claim]:
    """Return the claims that the store keeps for this session, but that neither the worker nor this coordinator knows of.
    They were made by a commit whose answer was lost, or on a connection that was dead already."""
    reported = {(ref.id, ref.claim_id) for ref in held}
    reported.update(*session.ending.values())
    return [
        claim
        for claim in stored
        if _is_old(claim, now) and (claim.id, claim.claim_id) not in reported and claim.id not in session.held
    ]


def still_forgotten(session: WorkerSession, found: Sequence[Claim], now: float) -> list[Claim]:
    """Return the claims that have looked forgotten for a while, by the monotonic clock. A claim whose commit took long, or
    that was made just before a clock was set, looks old in the moment between its commit and its assignment."""
    keys = [(claim.id, claim.claim_id) for claim in found]
    session.suspects = {key: session.suspects.get(key, now) for key in keys}
    return [claim for claim in found if now - session.suspects[claim.id, claim.claim_id] >= SUSPECT_SECONDS]


def kept_until(type: str, rows: Iterable[Session]) -> int:
    """Until when a type is kept from workers that take any, for one of these that named it; 0 if none did."""
    if type in BUILTIN_TYPES:
        return 0
    return max((row.last_heartbeat_at + SEEN_LATELY_US for row in rows if type in row.types), default=0)


class Sessions:
    """Keeps the sessions that are connected here, the sizes of those that left lately, and what is known of others
    elsewhere."""

    def __init__(self, quiet_us: int = 60_000_000) -> None:
        self._quiet_us = quiet_us
        """A session that was not heard for this long is given nothing new: its connection may be dead."""
        self._sessions: dict[str, WorkerSession] = {}
        self._departed: dict[str, tuple[int, WorkerView]] = {}
        self._elsewhere: list[WorkerView] = []
        self._types: frozenset[str] = frozenset()
        self.seen_types: set[str] = set()
        """Every type that some worker was seen to serve."""
        self._named: dict[str, int] = {}
        """When types were last named by sessions that are not known otherwise, while `any_type`."""
        self._taken = (0, _NOTHING)
        """Until when this holds, and the types that are not offered to workers that take any type."""
        self.any_type = False
        """Whether a worker connected here takes any type."""
        self._any_type_elsewhere = False

    def __iter__(self) -> Iterator[WorkerSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, id: str) -> WorkerSession | None:
        return self._sessions.get(id)

    def name_of(self, id: str) -> str:
        """Return the name of a session's worker; the id for a session that is not connected here."""
        session = self._sessions.get(id)
        return id if session is None else session.name

    def find(self, id_or_name: str) -> WorkerSession | None:
        """By id, or by name when exactly one session has it."""
        if id_or_name in self._sessions:
            return self._sessions[id_or_name]
        named = [session for session in self._sessions.values() if session.name == id_or_name]
        return named[0] if len(named) == 1 else None

    def add(self, session: WorkerSession) -> WorkerSession | None:
        """Connect a session; the connection that it replaces, if it was still thought to be here."""
        replaced = self._sessions.get(session.id)
        self._sessions[session.id] = session
        self._departed.pop(session.id, None)
        self._elsewhere = [view for view in self._elsewhere if view.session_id != session.id]
        self._count_types()
        return replaced

    def remove(self, session: WorkerSession, now: int) -> None:
        """Disconnect; nothing happens when a newer connection of the same session took its place."""
        if self._sessions.get(session.id) is not session:
            return
        del self._sessions[session.id]
        self._departed[session.id] = (now, _ghost(session))
        self._count_types()

    def views(self, now: int) -> list[WorkerView]:
        """Return all workers for the planner: those connected here, which can take work, and, for their size only, those
        that left within the last minute or are connected elsewhere."""
        for id in [id for id, (left, _) in self._departed.items() if left < now - SEEN_LATELY_US]:
            del self._departed[id]
        quiet = now - self._quiet_us
        here = [
            session.view() if session.heard_at is None or session.heard_at >= quiet else _ghost(session)
            for session in self._sessions.values()
        ]
        if self.any_type:
            taken = self.named(now)
            for session, view in zip(self._sessions.values(), here, strict=True):
                view.any_but = taken if session.any_type else None
        return here + [ghost for _, ghost in self._departed.values()] + self._elsewhere

    def named(self, now: int) -> frozenset[str]:
        """Return the types that a session of the last minute names. Counted anew when sessions change, and every second."""
        until, taken = self._taken
        if until <= now or now < until - NAMED_US:
            since = now - SEEN_LATELY_US
            self._named = {type: at for type, at in self._named.items() if at >= since}
            left = [ghost.types for at, ghost in self._departed.values() if at >= since]
            taken = self._types | (frozenset(self._named).union(*left) - BUILTIN_TYPES.keys())
            self._taken = (now + NAMED_US, taken)
        return taken

    def note_named(self, rows: Iterable[Session], now: int) -> None:
        """Note the types that sessions of the store which are not connected here named lately. They are not offered to
        workers that take any type."""
        for row in rows:
            if row.id not in self._sessions and row.last_heartbeat_at >= now - SEEN_LATELY_US:
                for type in row.types:
                    self._named[type] = max(self._named.get(type, 0), row.last_heartbeat_at)
        self._taken = (0, _NOTHING)

    def note_elsewhere(self, rows: Iterable[Session]) -> None:
        """The live sessions of the store: those that are not connected here are kept in mind, one of each kind."""
        kinds: dict[tuple[object, ...], WorkerView] = {}
        for row in rows:
            if row.status == "live" and row.id not in self._sessions:
                queues = None if row.queues is None else frozenset(row.queues)
                view = WorkerView(row.id, row.threads, 0, 0, frozenset(row.types), queues, row.labels)
                view.room, view.present = 0, False
                view.any_but = _NOTHING if row.any_type else None
                kinds[row.threads, view.types, queues, row.any_type, tuple(sorted(row.labels.items()))] = view
        self._elsewhere = list(kinds.values())
        self._count_types()

    @property
    def types(self) -> frozenset[str]:
        """Every type that a connected worker names, here or elsewhere."""
        return self._types

    def _count_types(self) -> None:
        known: list[WorkerSession | WorkerView] = [*self._sessions.values(), *self._elsewhere]
        self._types = frozenset(type for worker in known for type in worker.types)
        self.seen_types |= self._types
        self.any_type = any(session.any_type for session in self._sessions.values())
        self._taken = (0, _NOTHING)
        others = [view for view in self._elsewhere if view.any_but is not None]
        for view in others:
            view.any_but = self._types
        self._any_type_elsewhere = bool(others)

    def serves(self, type: str) -> bool:
        """Return whether a worker can run jobs of this type, here or elsewhere."""
        return type in self._types or self.any_type or self._any_type_elsewhere


def _ghost(session: WorkerSession) -> WorkerView:
    """A worker that takes nothing, but whose size is known."""
    return replace(session.view(), free=0, soon=0, prefetch_us=0, room=0, present=False)
