"""What the checkers read: plain records of what clients asked and were told, what jobs did, what the store holds.

The simulator and the chaos runs both write these, as JSON lines or in memory; the checkers know neither of them. Times
(`at`, `called`, …) are seconds of the observer's own clock, never of the system under test. A part that a run cannot
observe is left empty, and the checks that need it have nothing to say.
"""

from pathlib import Path
from typing import Literal

import msgspec

Answer = Literal["ok", "refused", "unknown"]
"""`refused`: the answer says that nothing was done. `unknown`: no answer, or one that leaves it open."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class Item(Record, frozen=True):
    """One job of a submission. `marker` is part of its payload and names it for ever, also when it is sent again;
    `body` stands for everything else that was sent under the key, or with the id that the client made."""

    marker: str
    key: str | None = None
    body: str = ""
    delay: float = 0.0
    id: str | None = None


class Op(Record, frozen=True):
    """One request of a client and what it was told. `jobs` are the ids in the answer to a submission, in the order of
    `items`, or the id that the request named; `status`, `claim` and `value` are those of the job in the answer. `why` is the
    name of the error with which it was refused."""

    what: Literal["submit", "cancel", "replay", "get", "edit"]
    client: str
    called: float
    answered: float | None = None
    answer: Answer = "unknown"
    items: list[Item] = []
    jobs: list[str] = []
    status: str | None = None
    claim: int | None = None
    value: str | None = None
    why: str | None = None


class Effect(Record, frozen=True):
    """A line of a job's own log: it starts, it ends (with what it returned), or the kernel says that it was killed; by its
    own fault if `kind` is `crash`. `worker` is the host, `run` the process."""

    at: float
    what: Literal["start", "end", "killed"]
    job: str
    claim: int
    attempt: int
    worker: str
    run: str = ""
    kind: str | None = None
    value: str | None = None


class Change(Record, frozen=True):
    """A committed change of a job's status or claim; `old` is null when it was inserted, `new` when it was deleted.
    `worker` is the session that holds it, or held it until then."""

    at: float
    job: str
    old: str | None
    new: str | None
    claim: int = 0
    attempt: int = 0
    worker: str | None = None


class Ack(Record, frozen=True):
    """A worker was told that its report of an attempt is stored, or that it came too late."""

    at: float
    worker: str
    job: str
    claim: int
    kind: str
    stale: bool = False


class Told(Record, frozen=True):
    """A worker's report of an attempt reached a coordinator."""

    at: float
    worker: str
    job: str
    claim: int
    kind: str


class Outage(Record, frozen=True):
    """A time in which no heartbeat could be stored, whoever sent it."""

    begins: float
    ends: float


class Ready(Record, frozen=True):
    """What a coordinator answered when it was asked whether it is ready."""

    asked: float
    answered: float
    coordinator: str
    ready: bool


class StoredJob(Record, frozen=True):
    id: str
    marker: str
    status: str
    claim: int = 0
    attempt: int = 0
    max_attempts: int = 4
    crashes: int = 0
    value: str | None = None
    """The stored result."""
    timeout: float | None = None
    rank: int = 0
    place: str | None = None
    """The one worker that may run it, if there is only one and the job needs but one of its threads."""
    expired: bool = False
    """Ended because it had not started in time."""
    delays: list[tuple[float, float]] | None = None
    """The shortest and the longest delay before each retry, for a job with a retry policy of its own."""
    never: bool = False
    """By that policy an error of the job itself is the last."""
    snoozes: int = 0
    """How often it snoozed since it was last replayed, as the store has counted."""
    notify: bool = False
    """Its end is told by a webhook."""


class StoredAttempt(Record, frozen=True):
    """An attempt that did not complete its job."""

    job: str
    claim: int
    attempt: int
    kind: str
    charged: bool = True
    worker: str | None = None
    retry_delay: float | None = None


class Delivery(Record, frozen=True):
    """A stored delivery of a webhook: the job whose end it tells of, how that ended, and the status of the delivery
    itself."""

    job: str
    ended: str
    status: str


class Fault(Record, frozen=True):
    """Something that was done to the system. `who` is a host, or `*` for all of them. Kind `pause` is a process or
    machine that stood still, `clock` a clock that was set, `skew` the time in which clocks do not agree, `set_back`
    the time after the store's clock was set back in which nothing else was wrong; what other kinds are called is up
    to the run."""

    kind: str
    who: str
    begins: float
    ends: float


class Death(Record, frozen=True):
    """A worker process, and so its session, was gone for good from then on."""

    session: str
    at: float


class Tick(Record, frozen=True):
    """A schedule and one of the moments at which it had to fire (`expected`), or the job that it made there."""

    schedule: str
    tick: str
    job: str | None = None


class Bytes(Record, frozen=True):
    """The most bytes of payloads that were seen in one `place` of a coordinator, what is allowed there, and the largest
    payload, which may always be there alone."""

    place: str
    peak: int
    bound: int
    largest: int = 0


class KeyClash(Record, frozen=True):
    """At a commit several unfinished jobs held one unique key."""

    at: float
    key: str
    jobs: list[str]


class Start(Record, frozen=True):
    """What a job was when a claim of it was committed. `claimed_at` and `expires_at` are microseconds of the store's clock;
    `edit` is the last edit that the row had, and `told` the last one that a client was told of."""

    at: float
    job: str
    attempt: int
    claimed_at: int
    expires_at: int | None = None
    edit: int = 0
    told: int = 0


class Rules(Record, frozen=True):
    """What was promised to this run."""

    backoff_base: float = 2.0
    backoff_cap: float = 300.0
    backoff_jitter: float = 0.3
    crash_limit: int = 3
    lease: float = 30.0
    rescue_slack: float = 5.0
    kill_slack: float = 5.0
    """How much longer than allowed a job may be seen to run: grace, kill, and the log's own delay."""
    clock_slack: float = 0.0
    """How far times in the journal may be from the observer's: a store notes its own."""
    ready_trust: float = 2.0
    """For so long after the last write that succeeded a coordinator may believe that the next one will."""
    ready_again: float = 10.0
    """So long after all faults ended every coordinator is ready."""


class History(Record, frozen=True):
    rules: Rules = Rules()
    ops: list[Op] = []
    effects: list[Effect] = []
    journal: list[Change] = []
    acks: list[Ack] = []
    reports: list[Told] | None = None
    jobs: list[StoredJob] = []
    attempts: list[StoredAttempt] = []
    counts: dict[str, int] | None = None
    """Jobs by status, as the store's own counters have it."""
    faults: list[Fault] = []
    outages: list[Outage] = []
    unwritable: list[Outage] = []
    """Times in which the store could be read and nothing could be stored: a full disk, a read-only server."""
    readies: list[Ready] = []
    deaths: list[Death] = []
    expected_ticks: list[Tick] = []
    fired_ticks: list[Tick] = []
    quiet_from: float | None = None
    """From here on nothing was done to the system, and all of it was up."""
    ended: float = 0.0
    bytes: list[Bytes] = []
    deliveries: list[Delivery] | None = None
    key_clashes: list[KeyClash] = []
    starts: list[Start] = []


class Violation(Record, frozen=True):
    invariant: str
    job: str | None
    text: str


def read(path: Path) -> History:
    return msgspec.json.decode(path.read_bytes(), type=History)
