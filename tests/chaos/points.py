"""Named points of the code at which a process may be killed: around commit, answer, send, spawn and acknowledgement."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

FOLDER: Final = Path(__file__).with_name("crash")
Role = Literal["coordinator", "worker"]


class Point(NamedTuple):
    """Before or after which function a process dies, and what must be under way."""

    role: Role
    module: str
    function: str
    when: Literal["before", "after"]
    conditions: tuple[str, ...] = ()

    def environment(self, count: int = 1) -> dict[str, str]:
        """What a process is started with so that it dies at the point, when it comes there for the n-th time."""
        text = "|".join((self.module, self.function, self.when, *self.conditions))
        return {"PYTHONPATH": str(FOLDER), "STOKER_CRASH_AT": text, "STOKER_CRASH_COUNT": str(count)}


VERBS: Final = (
    "insert",
    "claim",
    "started",
    "finish",
    "cancel",
    "replay",
    "renew",
    "open_session",
    "promote",
)


def points(store: str) -> dict[str, Point]:
    """All of them, for a system on this store."""
    found = {}
    for verb in VERBS:
        for when in ("before", "after"):
            found[f"{when} the commit of {verb}"] = _commit(store, verb, when)
    return found | OTHERS


def _commit(store: str, verb: str, when: str) -> Point:
    moment: Literal["before", "after"] = "before" if when == "before" else "after"
    if store == "sqlite":
        writer = "stoker.store.sqlite.writer"
        return Point("coordinator", writer, "ThreadWriter._commit", moment, (f"verb:{verb}",))
    module = "stoker.store.postgres.lazy_transaction"
    return Point("coordinator", module, "LazyTransaction.end", moment, (f"verb:{verb}",))


OTHERS: Final[dict[str, Point]] = {
    "before the answer to a submission": Point(
        "coordinator", "stoker.api.handlers.jobs", "submit_spec", "after"
    ),
    "before assignments are sent": Point("coordinator", "stoker.coordinator.dispatch", "assign", "before"),
    "after assignments are sent": Point("coordinator", "stoker.coordinator.dispatch", "assign", "after"),
    "when a report arrives": Point(
        "coordinator", "stoker.coordinator.reports", "ReportSink.release", "before"
    ),
    "before a report is acknowledged": Point(
        "coordinator", "stoker.coordinator.reports", "ReportSink.take", "after"
    ),
    "when assignments arrive": Point("worker", "stoker.worker.supervisor", "Supervisor._take", "before"),
    "when assignments were taken": Point("worker", "stoker.worker.supervisor", "Supervisor._take", "after"),
    "before a child is spawned": Point("worker", "stoker.worker.supervisor", "Supervisor._spawn", "before"),
    "after a child is spawned": Point("worker", "stoker.worker.supervisor", "Supervisor._spawn", "after"),
    "before results are noted": Point("worker", "stoker.worker.child_pool", "ChildPool.on_results", "before"),
    "after results are noted": Point("worker", "stoker.worker.child_pool", "ChildPool.on_results", "after"),
    "before reports are sent": Point("worker", "stoker.worker.supervisor", "Supervisor._flush", "before"),
    "after reports are sent": Point("worker", "stoker.worker.supervisor", "Supervisor._flush", "after"),
    "when an acknowledgement arrives": Point(
        "worker", "stoker.worker.supervisor", "Supervisor._handle", "before", ("kind:Ack",)
    ),
    "before a heartbeat": Point("worker", "stoker.worker.supervisor", "Supervisor._beat", "before"),
}
