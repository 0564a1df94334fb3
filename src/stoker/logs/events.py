"""The table of all events that Stoker logs; `docs/reference/events.md` is made from it (`python -m stoker.logs.events`).

A test compares it with the code: no event without a row, no row without an event, and the fields as declared.

Programs that read logs match on `event`. A name that is here does not change its meaning.
"""

from typing import Final, Literal, NamedTuple

Level = Literal["debug", "info", "warning", "error", "critical"]
Where = Literal["coordinator", "worker", "autoscaler", "any"]


class Event(NamedTuple):
    name: str
    level: Level
    where: Where
    """The kind of process that logs it."""
    text: str
    fields: tuple[str, ...] = ()
    """Its fields besides `timestamp`, `level`, `event`, and `request_id` where a request was its cause."""


TABLE: Final[list[Event]] = []


def _event(name: str, level: Level, where: Where, text: str, *fields: str) -> None:
    TABLE.append(Event(name, level, where, text, fields))


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_event("job_submitted", "info", "coordinator", "A job was accepted; it is durable.", "job_id", "type")
_event(
    "job_dispatched",
    "info",
    "coordinator",
    "A job was claimed for a worker and sent to it.",
    *("job_id", "type", "worker_id", "claim"),
)
_event(
    "job_completed",
    "info",
    "coordinator",
    "A job was done.",
    *("job_id", "type", "worker_id", "claim"),
)
_ENDED: Final = ("job_id", "type", "worker_id", "reason", "attempt", "claim")
_event(
    "job_retried",
    "info",
    "coordinator",
    "An attempt ended without success, and the job will be tried again later; `reason` says how: error, timeout, crash; "
    "`error` is the last line of its error.",
    *(*_ENDED, "error"),
)
_event(
    "job_requeued",
    "info",
    "coordinator",
    "An attempt was given back without charge (a drain, a job that was too slow for its place), and the job waits again.",
    *_ENDED,
)
_event(
    "job_failed",
    "warning",
    "coordinator",
    "A job is out of attempts, or failed in a way that no retry can mend: it is a dead letter now. `error` is the last line "
    "of its error.",
    *(*_ENDED, "error"),
)
_event(
    "job_cancelled",
    "info",
    "coordinator",
    "A job was cancelled: at once, or when the attempt under way had ended (then with the fields of that end).",
    *_ENDED,
)
_event(
    "job_cancel_requested",
    "info",
    "coordinator",
    "A job that runs was cancelled; its worker was told.",
    "job_id",
)
_event(
    "report_refused",
    "info",
    "coordinator",
    "A worker reported an end of a claim that is no longer its own; nothing was changed.",
    *_ENDED,
)
_event(
    "job_lease_expired",
    "warning",
    "coordinator",
    "The worker of a job fell silent; `status` is what the job is now.",
    *("job_id", "worker_id", "claim", "status"),
)
_event(
    "job_expired",
    "info",
    "coordinator",
    "A job had not started by its expires_at; it is cancelled.",
    "job_id",
)
_event(
    "job_overdue",
    "info",
    "coordinator",
    "A job that waited had not ended by its deadline; it has failed.",
    "job_id",
)
_event("job_edited", "info", "coordinator", "A job was changed while it waited.", "job_id")
_event("job_replayed", "info", "coordinator", "A finished job was queued to run again.", "job_id")
_event("dead_letters_replayed", "info", "coordinator", "Dead letters were queued to run again.", "count")
_event("dead_letters_discarded", "info", "coordinator", "Dead letters were taken off the list.", "count")

# ── workers, as the coordinator sees them ────────────────────────────────────────────────────────────────────────────

_event(
    "worker_registered",
    "info",
    "coordinator",
    "A worker connected; `held` is the number of claims it brought along.",
    *("worker_id", "worker", "threads", "types", "held"),
)
_event("worker_heartbeat", "debug", "coordinator", "A worker is alive.", "worker_id", "held")
_event(
    "worker_stale",
    "warning",
    "coordinator",
    "A worker was silent for too long and was given up; its jobs go to others.",
    "worker_id",
)
_event("worker_draining", "info", "coordinator", "A worker was asked to leave.", "worker_id", "worker")
_event(
    "events_failed",
    "error",
    "coordinator",
    "Those who watch could not be told what happened. Said once; they are told when it is possible again.",
    "detail",
)
_event("queue_paused", "info", "coordinator", "A queue was paused.", "queue")
_event("queue_resumed", "info", "coordinator", "A queue was resumed.", "queue")
_event("worker_gone", "info", "coordinator", "A worker said goodbye.", "worker_id", "worker")
_event(
    "worker_resting",
    "warning",
    "coordinator",
    "A worker that is dialled does not answer as it should, and gets nothing for a while.",
    *("worker_id", "reason", "seconds"),
)
_event(
    "worker_secret_wrong",
    "warning",
    "coordinator",
    "A hello named a session that began with another secret, and was refused: another process tried to take it over.",
    *("worker_id", "worker"),
)
_event(
    "worker_bad_frame",
    "warning",
    "coordinator",
    "A worker sent what cannot be read, and was disconnected; most often its version does not fit.",
    *("worker", "detail"),
)
_event(
    "worker_connection_dropped",
    "error",
    "coordinator",
    "A worker was disconnected because the store does not answer; it keeps its reports and comes back.",
    "detail",
)
_event(
    "worker_frame_failed",
    "error",
    "coordinator",
    "What a worker sent could not be dealt with; it was disconnected and will send it again.",
    "detail",
)
_event("worker_connection_failed", "error", "coordinator", "A defect ended a worker's connection.")
_event("push_failed", "error", "coordinator", "A defect while dialling a worker.", "worker_id", "detail")
_event(
    "push_report_waits",
    "warning",
    "coordinator",
    "The answer of a worker that was dialled cannot be stored yet; it is tried again.",
    *("job_id", "detail"),
)

# ── the coordinator itself ───────────────────────────────────────────────────────────────────────────────────────────

_event(
    "coordinator_started",
    "info",
    "coordinator",
    "The API answers. Passwords in addresses are masked.",
    *("url", "database", "database_from", "redis"),
)
_event("shutting_down", "info", "coordinator", "It was told to stop: no new requests.")
_event("coordinator_stopped", "info", "coordinator", "Everything is stored and closed.")
_event("migration_applied", "info", "coordinator", "The database was brought up to date.", "version")
_event(
    "out_of_memory",
    "error",
    "coordinator",
    "There was no memory for a request; it was answered with 503 and `Retry-After`.",
    "method",
    "path",
)
_event(
    "dispatch_failed",
    "error",
    "coordinator",
    "Jobs could not be handed out; it is tried again in a second. Without a stack it is the store that does not answer.",
    "detail",
)
_event(
    "upkeep_failed",
    "error",
    "coordinator",
    "Leases, due jobs or retention could not be looked after; it is tried again.",
    "detail",
)
_event(
    "upkeep_asleep",
    "warning",
    "coordinator",
    "This process, or its machine, stood still, or its clock was set: no lease ends before workers could renew theirs.",
    *("seconds", "clock_jump_seconds"),
)
_event(
    "retries_brought_forward",
    "warning",
    "coordinator",
    "The store's clock was set back: retries that were due later than their own delay from now are due after that delay.",
    "jobs",
)
_event(
    "loop_died", "critical", "coordinator", "A defect ended a loop: restart this process.", "loop", "error"
)
_event(
    "request_failed", "error", "coordinator", "A defect: a request was answered with 500.", "method", "path"
)
_event(
    "stream_interrupted",
    "info",
    "coordinator",
    "A stream ended early because the store does not answer; the client may follow again.",
    "detail",
)
_event("stream_failed", "error", "coordinator", "A defect ended a stream.")
_event(
    "output_not_stored",
    "error",
    "coordinator",
    "What jobs write cannot be stored now and is lost; the gap is marked.",
    "detail",
)
_event("output_stored_again", "warning", "coordinator", "What jobs write is stored again.", "lost_pieces")
_event("output_not_purged", "error", "coordinator", "Old output could not be deleted; later.", "detail")
_event(
    "prepared_statements_off",
    "warning",
    "coordinator",
    "A pooler before PostgreSQL does not keep prepared statements; they are not used from now on, which costs some speed.",
    "detail",
)

_event(
    "database_connections_replaced",
    "warning",
    "coordinator",
    "PostgreSQL is read-only, in recovery or shutting down. All connections are made anew: there may be another server "
    "behind the same address, or the same one may be writable again.",
    "detail",
)
_event(
    "database_file_lost",
    "error",
    "coordinator",
    "The SQLite file, or the write-ahead log beside it, was deleted or replaced while it was open. Nothing is accepted "
    "until the file is back; `detail` says what to do.",
    *("file", "detail"),
)
_event(
    "database_file_back",
    "warning",
    "coordinator",
    "The SQLite file that was missing stands under its name again, and jobs are accepted.",
    "file",
)
_event(
    "database_has_hard_links",
    "warning",
    "coordinator",
    "The SQLite file has more than one name. Always use the same one: the write-ahead log belongs to the name, not to the "
    "file.",
    *("file", "links"),
)
_event(
    "connections_turned_away",
    "warning",
    "coordinator",
    "Clients hold as many connections as the limit on open files allows; further ones are answered with 503. At most every "
    "10 s.",
    *("connections", "detail"),
)
_event(
    "open_marker_not_written",
    "warning",
    "coordinator",
    "The file that marks the database as open could not be written, as on a full disk. A write-ahead log that is lost "
    "after a crash will not be noticed.",
    *("file", "detail"),
)
_event(
    "log_room_not_made",
    "warning",
    "coordinator",
    "The write-ahead log could not be given its usual size at the start. Commits take longer until it has grown to that.",
    *("file", "detail"),
)
_event(
    "tracing_unavailable",
    "warning",
    "coordinator",
    "Traces were asked for (`OTEL_…`) but cannot be made; it runs without them.",
    "detail",
)

# ── other coordinators ───────────────────────────────────────────────────────────────────────────────────────────────

_event("bus_connected", "info", "coordinator", "Notifications from other coordinators arrive.", "over")
_event(
    "bus_lost",
    "warning",
    "coordinator",
    "Notifications from other coordinators do not arrive; the store is polled every second instead.",
    *("over", "detail"),
)
_event(
    "notification_unreadable",
    "warning",
    "coordinator",
    "A notification in an unknown format was ignored.",
    *("over", "bytes"),
)
_event("notifications_not_handled", "error", "coordinator", "A defect while handling notifications.", "over")
_event("look_failed", "warning", "coordinator", "Other coordinators' workers could not be seen.", "detail")
_event("webhooks_waiting", "warning", "coordinator", "Webhooks wait for the store to answer.", "detail")
_event("schedule_created", "info", "coordinator", "A schedule was made.", "schedule")
_event("schedule_changed", "info", "coordinator", "A schedule was changed.", "schedule")
_event("schedule_deleted", "info", "coordinator", "A schedule was deleted; its jobs stay.", "schedule")
_event(
    "schedule_paused",
    "info",
    "coordinator",
    "A schedule was paused by a person.",
    "schedule",
)
_event(
    "schedule_failing",
    "warning",
    "coordinator",
    "A schedule was paused, because its last `pause_after_failures` jobs failed.",
    *("schedule", "failures"),
)
_event(
    "schedule_unreadable",
    "warning",
    "worker",
    "The app declares a schedule that this worker cannot pass on.",
    "detail",
)
_event("schedule_resumed", "info", "coordinator", "A schedule was resumed.", "schedule")
_event(
    "schedule_triggered", "info", "coordinator", "A job of a schedule was made by hand.", "schedule", "job_id"
)
_event(
    "schedule_backfilled", "info", "coordinator", "Jobs were made for ticks of the past.", "schedule", "jobs"
)
_event(
    "schedule_tick_skipped",
    "info",
    "coordinator",
    "A tick, or all from `tick` to `last`, made no job, because of an overlap or a pause.",
    *("schedule", "tick", "last", "reason"),
)
_event(
    "schedule_tick_missed",
    "info",
    "coordinator",
    "A tick, or all from `tick` to `last`, made no job, because it was found too late.",
    *("schedule", "tick", "last", "reason"),
)
_event(
    "schedules_declared",
    "info",
    "coordinator",
    "A worker declared the schedules of its app, and they were applied.",
    *("app", "version", "schedules"),
)
_event(
    "schedule_orphaned",
    "warning",
    "coordinator",
    "An app no longer declares a schedule; it goes on until `stoker schedules prune`.",
    *("schedule", "app"),
)
_event(
    "schedule_of_another_app",
    "warning",
    "coordinator",
    "An app declares a schedule that belongs to another one, which keeps it.",
    *("schedule", "app", "owner"),
)
_event(
    "schedule_refused",
    "warning",
    "coordinator",
    "An app declares a schedule that cannot be.",
    *("schedule", "app", "detail"),
)
_event(
    "schema_is_later",
    "error",
    "coordinator",
    "A later Stoker changed the schema: this coordinator accepts and claims nothing more. Upgrade it and start it again.",
    *("schema", "detail"),
)
_event(
    "schema_is_known",
    "info",
    "coordinator",
    "The schema is one that this Stoker knows again: jobs are accepted and claimed.",
)
_event(
    "schedules_failed",
    "error",
    "coordinator",
    "Schedules could not be looked at; tried again soon.",
    "detail",
)
_event(
    "bulk_accepted",
    "info",
    "coordinator",
    "A bulk operation was stored and will be worked off.",
    *("bulk_id", "action", "total"),
)
_event("bulk_done", "info", "coordinator", "A bulk operation is over.", *("bulk_id", "done", "changed"))
_event(
    "bulk_stopped",
    "info",
    "coordinator",
    "A bulk operation was stopped.",
    *("bulk_id", "status", "changed"),
)
_event(
    "bulk_failed",
    "error",
    "coordinator",
    "Bulk operations could not be worked on; they are tried again in a second.",
    "detail",
)
_event(
    "series_not_written", "warning", "coordinator", "Series wait in memory until the store answers.", "detail"
)
_event(
    "dead_letter_groups_not_counted",
    "warning",
    "coordinator",
    "Groups of dead letters could not be counted ahead; it is tried again in half a minute.",
    "detail",
)
_event(
    "redis_lost",
    "warning",
    "coordinator",
    "Redis does not answer; everything works without it, slower, and limits are per coordinator.",
    *("used_for", "detail"),
)
_event("redis_refused", "warning", "coordinator", "Redis refuses what it is asked.", "used_for", "detail")
_event("redis_back", "info", "coordinator", "Redis answers again.", "used_for")
_event("cache_not_told", "debug", "coordinator", "Redis was not told of jobs that changed.", "jobs")

# ── workers themselves ───────────────────────────────────────────────────────────────────────────────────────────────

_event(
    "worker_started",
    "info",
    "worker",
    "A worker is ready. `tasks` are the types it has besides the built-in ones; without `queues` it serves all of them.",
    *("worker", "threads", "tasks", "builtin_types", "queues", "labels"),
)
_event("connected", "info", "worker", "A coordinator took this worker in.", "url", "session")
_event("coordinator_unreachable", "warning", "worker", "No connection; it goes on trying.", "url", "detail")
_event(
    "coordinator_connection_lost",
    "warning",
    "worker",
    "The connection broke; what runs goes on, and it connects again.",
    *("url", "detail"),
)
_event(
    "coordinator_silent",
    "warning",
    "worker",
    "Connected, but heartbeats are not answered; it connects again.",
    *("url", "seconds"),
)
_event(
    "session_lost",
    "warning",
    "worker",
    "The coordinator gave this worker up; what ran was ended, and it registers as a new one.",
    "detail",
)
_event(
    "coordinator_older",
    "info",
    "worker",
    "The coordinator refused a field of the hello that it does not know: hello is said again as earlier releases do.",
    "url",
)
_event(
    "lease_over",
    "error",
    "worker",
    "No heartbeat was confirmed in time: what ran was ended before others get it.",
    "detail",
)
_event(
    "assignment_repeated",
    "warning",
    "worker",
    "A frame of assignments, or a claim that this worker has already, came again: nothing is started twice.",
    *("frame", "jobs"),
)
_event("draining", "info", "worker", "It takes nothing new and leaves when what runs has ended.", "running")
_event(
    "task_goes_first",
    "info",
    "worker",
    "Tasks of the app have the names of types that are built in, or that a runner or a command has: here the tasks run.",
    "types",
)
_event(
    "app_import_failed",
    "error",
    "worker",
    "The app of this worker cannot be imported.",
    "app",
    "detail",
    "exception",
)
_event(
    "app_lifespan_failed",
    "error",
    "worker",
    "The lifespan of this worker's app failed to start in a child process; no job is charged, and it is tried again.",
    "app",
    "detail",
    "exception",
)
_event(
    "child_cannot_start",
    "error",
    "worker",
    "The system refuses another process; its jobs are handed back, and it is tried again, ever more slowly.",
    *("executor", "detail"),
)
_event(
    "threads_reduced",
    "warning",
    "worker",
    "The limit on open files allows fewer threads than were asked for; the worker serves with those.",
    *("threads", "asked", "detail"),
)
_event(
    "child_wrote_garbage",
    "warning",
    "worker",
    "A task wrote into the pipe between its process and the worker, which is not its own. What it wrote was skipped.",
    "pid",
)
_event(
    "child_is_silent",
    "warning",
    "worker",
    "A child process neither runs the jobs that it was given nor says anything; it is replaced, and they run elsewhere.",
    *("pid", "jobs"),
)
_event(
    "runner_types_unknown",
    "warning",
    "worker",
    "Stoker's own runner did not say which job types it has; they run in Python.",
    *("runner", "detail"),
)
_event(
    "runner_configured",
    "info",
    "worker",
    "What the runner in `EXECUTION_BINARY` is given: which types (`takes`), which not, because something else of this "
    "worker runs them (`not_given`), how payloads look, and where it finds its number of threads.",
    *("runner", "takes", "not_given", "payload", "threads"),
)

# ── the autoscaler ───────────────────────────────────────────────────────────────────────────────────────────────────

_event(
    "autoscaler_started",
    "info",
    "autoscaler",
    "It looks once a second from now on.",
    *("mode", "min_workers", "max_workers"),
)
_DECIDED: Final = ("mode", "workers", "wanted", "queue_depth", "reason")
_event(
    "scale_up",
    "info",
    "autoscaler",
    "More workers are wanted. `started` names them; when it only recommends, none was started.",
    *(*_DECIDED, "started"),
)
_event(
    "scale_down",
    "info",
    "autoscaler",
    "One worker fewer is wanted. `draining` names the idle one that was asked to leave.",
    *(*_DECIDED, "draining"),
)
_event(
    "scale_failed",
    "error",
    "autoscaler",
    "What was decided could not be done.",
    *("action", "reason", "detail"),
)
_event(
    "autoscaler_blind",
    "warning",
    "autoscaler",
    "The coordinator or the engine does not answer; nothing is changed meanwhile.",
    *("detail", "effect"),
)
_event("autoscaler_failed", "error", "autoscaler", "A defect in a turn of its loop; the next one follows.")
_event(
    "worker_unknown",
    "warning",
    "autoscaler",
    "A worker that was started here is known to no coordinator for a minute, and is ended.",
    *("worker", "seconds", "effect"),
)
_event("worker_end_failed", "error", "autoscaler", "Such a worker could not be ended.", "worker", "detail")
_event(
    "worker_died",
    "error",
    "autoscaler",
    "A worker process ended by itself. Where they die soon after their start, the next is started after a growing pause.",
    *("worker", "exit_code", "next_start_seconds"),
)
_event(
    "reload_watching",
    "info",
    "any",
    "With `--reload`: changes of Python files under `paths` replace the workers.",
    *("app", "paths"),
)
_event(
    "reloading",
    "info",
    "any",
    "The source of the app changed: the workers drain, and others start at once. `changed` names the first files.",
    *("app", "changed"),
)
_event(
    "reload_failed",
    "error",
    "any",
    "The source of the app changed and cannot be imported: the workers go on with the code that they have until the next "
    "change.",
    *("app", "detail"),
)
_event("reload_watch_failed", "error", "any", "Files cannot be watched, so nothing is reloaded.", "detail")
_event("worker_start_failed", "error", "autoscaler", "`stoker up` could not start its workers.", "detail")
_event(
    "container_removed",
    "info",
    "autoscaler",
    "A worker's container that had ended was removed.",
    *("worker", "state", "detail"),
)

# ── every process ────────────────────────────────────────────────────────────────────────────────────────────────────────

_event(
    "library",
    "warning",
    "any",
    "What a library had to say, at its own level; `logger` is the part of it that spoke.",
    *("logger", "detail"),
)
_event(
    "log_lines_lost",
    "error",
    "any",
    "Lines before this one could not be written and are lost: the disk was full, or their reader was gone.",
    "count",
)


_INTRO = """\
# Log events

<!-- Generated by `python -m stoker.logs.events`; edit src/stoker/logs/events.py instead. -->

One event a line on stderr, from `STOKER_LOG_LEVEL` on: JSON where that is not a terminal, [lines for people](../logs.md) on
one; `STOKER_LOG_FORMAT=json` or `text` decides otherwise. Every line has `timestamp`, `level` and `event`, in this order;
one that a request caused has its `request_id`. A line of the level `error` may come with the stack as `exception`.
Control characters in values are escaped, and no line holds a token, a password, a payload or a result. The `error` of a job
is what its own code said, at most 500 characters of it: a task that puts a secret into an exception puts it into the log.

A log that cannot be written never stops a process: its lines are dropped, and the first one that can be written again is
`log_lines_lost`. One that does not take lines and does not fail either, such as a full pipe whose reader stands still, does
stop it: the process waits at its next line until the reader goes on.

| Event | Level | Of | Meaning | Fields |
|---|---|---|---|---|
"""


def reference() -> str:
    """Return the page."""
    return _INTRO + "".join(_row(event) for event in TABLE)


def _row(event: Event) -> str:
    fields = ", ".join(f"`{field}`" for field in event.fields)
    return f"| `{event.name}` | {event.level} | {event.where} | {event.text} | {fields} |\n"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
