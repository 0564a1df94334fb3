"""One window of the event stream (`stoker.coordinator.events`): what happened to jobs in it, in bounded memory."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stoker.bus.base import HAPPENED_IDS, Happened
from stoker.coordinator.durations import Durations, Key
from stoker.coordinator.latencies import Buckets, in_buckets
from stoker.domain.lifecycle import FINAL, Status
from stoker.domain.retry import Kind
from stoker.store.outcomes import Completions, Finish
from stoker.store.submissions import Accepted

MAX_JOBS: Final = 200


class EventBuffer:
    """The events since the window was opened. Beyond `MAX_JOBS` ids, changes are only counted."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self.more = 0
        """The number of changes of jobs that are not in `ids`."""
        self.tally: Counter[str] = Counter()
        self.waits: Counter[int] = Counter()
        self.runs: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self.ids or self.more)

    def changed(self, ids: Iterable[str]) -> None:
        known = self.ids
        for id in ids:
            if id not in known:
                if len(known) < MAX_JOBS:
                    known[id] = None
                else:
                    self.more += 1

    def add(
        self, ids: Iterable[str], more: int, tally: Mapping[str, int], waits: Buckets, runs: Buckets
    ) -> None:
        self.changed(ids)
        self.more += more
        self.tally.update(tally)
        self.waits.update(waits)
        self.runs.update(runs)

    def take_in(self, other: "EventBuffer") -> None:
        self.add(other.ids, other.more, other.tally, other.waits, other.runs)

    def submitted(self, accepted: Sequence[Accepted]) -> None:
        new = [id for item in accepted if not item.repeated for id in item.batch.ids]
        self.tally["submitted"] += len(new)
        self.changed(new)

    def completed(self, completed: Sequence[Completions], durations: Mapping[Key, Durations]) -> None:
        for batch in completed:
            self.changed(batch.ids)
            self.tally["completed"] += len(batch.ids)
        for of in durations.values():
            self.waits.update(in_buckets(of.waits))
            self.runs.update(in_buckets(of.runs))

    def ended(self, ended: Sequence[tuple[Finish, Status | None]]) -> None:
        """Add attempts that did not complete their jobs."""
        ids: list[str] = []
        words: list[str] = []
        waits: list[int] = []
        runs: list[int] = []
        for finish, status in ended:
            if status is None:
                continue
            claim, outcome = finish.claim, finish.outcome
            ids.append(claim.id)
            words.append(word_for(status, outcome.kind))
            finished = outcome.finished_at
            if finished is not None and status in FINAL:
                started = outcome.started_at or finished
                waits.append(started - claim.run_at)
                runs.append(finished - started)
        self.changed(ids)
        self.tally.update(words)
        self.waits.update(in_buckets(waits))
        self.runs.update(in_buckets(runs))


def word_for(status: Status, kind: Kind) -> str:
    """Return the counter that the end of an attempt adds to."""
    if status in FINAL:
        return status
    return "handed_back" if kind == "handed_back" else "retried"


def happened(window: EventBuffer) -> Happened:
    """Return a window as a notification for other coordinators. A message of the bus is short, so ids beyond
    `HAPPENED_IDS` are sent only as a count."""
    ids = list(window.ids)
    return Happened(
        ids[:HAPPENED_IDS],
        window.more + len(ids[HAPPENED_IDS:]),
        dict(window.tally),
        dict(window.waits.most_common(HAPPENED_IDS // 2)),
        dict(window.runs.most_common(HAPPENED_IDS // 2)),
    )
