"""The table of settings: one field of `Settings` for each, with its type, default, rule and text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import unquote, urlsplit

import msgspec

from stoker.settings.parsers import (
    ANY_TEXT,
    APP,
    BOOLEAN,
    COMMANDS,
    DATABASE_URL,
    ENDPOINTS,
    HOST,
    HTTP_URL,
    HTTP_URLS,
    LABELS,
    NAME,
    NAMES,
    ORIGINS,
    PORT,
    POSTGRES_SCHEMES,
    REDIS_URL,
    SIZES,
    THREADS_MAX,
    TOKEN,
    WEBHOOK_HOSTS,
    WEBHOOK_SECRET,
    WORKERS_MAX,
    Parser,
)
from stoker.system import SYSTEM

PREFIX = "STOKER_"
_SHOWN_MAX_CHARS = 120


class Rule(NamedTuple):
    """The rule of a setting: everything in its declaration besides type and default."""

    section: str
    doc: str
    parser: Parser | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    bare: bool = False
    """Also read without the prefix."""
    aliases: tuple[str, ...] = ()
    """Other names, in the same two spellings."""
    secret: bool = False
    """Never shown: not in an error, not in a log. Never given to a job."""
    kept_from_jobs: bool = False
    """May be shown, its password masked, but is removed from the environment of every process that runs jobs."""
    default_text: str | None = None
    """For the reference page, where the default is computed."""
    part_of: str | None = None
    """The address that this is a part of; read only where that is not set."""
    synonyms: Mapping[str, str] = MappingProxyType({})
    """Other names of values, and the value that each stands for."""


_SERVER = "Where the API listens, and who may call"
_STORAGE = "Storage"
_SUBMIT = "Submitting"
_WORKERS = "Workers and placement"
_RETRIES = "Retries"
_SCALING = "Autoscaling"
_LIMITS = "Bounds"
_LOGS = "Logs and metrics"
SECTIONS = (_SERVER, _STORAGE, _SUBMIT, _WORKERS, _RETRIES, _SCALING, _LIMITS, _LOGS)


def available_cpus() -> int:
    """The CPUs this process may use, which in a container are fewer than the machine has."""
    return SYSTEM.available_cpus()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, validated. Build it with `load`; tests may build it directly."""

    host: Annotated[
        str,
        Rule(
            _SERVER,
            "Address to listen on. Anything but loopback is refused unless `STOKER_TOKEN` is set.",
            NAME,
        ),
    ] = "127.0.0.1"
    api_port: Annotated[
        int, Rule(_SERVER, "Port to listen on; 0 takes a free one.", ge=0, le=65535, bare=True)
    ] = 8080
    api_url: Annotated[
        str,
        Rule(
            _SERVER,
            "Where clients and workers find the API.",
            HTTP_URL,
            bare=True,
            default_text="`http://127.0.0.1:` + `API_PORT`",
        ),
    ] = "http://127.0.0.1:8080"
    token: Annotated[
        str | None,
        Rule(
            _SERVER,
            "The secret that every call must carry (`Authorization: Bearer …`), `/health` and `/ready` excepted. "
            "Servers, workers, the command line and the SDK all read it here.",
            TOKEN,
            secret=True,
        ),
    ] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        Rule(_SERVER, "Further names by which browsers and clients may address the API (`Host`).", NAMES),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Rule(_SERVER, "Web origins, besides its own, whose pages may call the API.", ORIGINS),
    ] = ()

    database_url: Annotated[
        str,
        Rule(
            _STORAGE,
            "Where jobs are kept: a SQLite file, whose folder is made if it is missing, or a PostgreSQL database (schema "
            "`stoker`), which several coordinators may share.",
            DATABASE_URL,
            bare=True,
            kept_from_jobs=True,
        ),
    ] = "sqlite:///.stoker/stoker.db"
    redis_url: Annotated[
        str | None,
        Rule(
            _STORAGE,
            "Redis as the fast layer. Optional: without it only latency changes.",
            REDIS_URL,
            bare=True,
            aliases=("REDIS_ADDR",),
            kept_from_jobs=True,
        ),
    ] = None
    postgres_host: Annotated[
        str | None,
        Rule(
            _STORAGE,
            "Where PostgreSQL listens. With any of these five but the port set, and no `DATABASE_URL`, jobs are kept there.",
            HOST,
            bare=True,
            kept_from_jobs=True,
            default_text="`127.0.0.1`",
            part_of="database_url",
        ),
    ] = None
    postgres_port: Annotated[
        int | None,
        Rule(
            _STORAGE,
            "Its port.",
            PORT,
            bare=True,
            kept_from_jobs=True,
            default_text="`5432`",
            part_of="database_url",
        ),
    ] = None
    postgres_user: Annotated[
        str | None,
        Rule(
            _STORAGE,
            "Its user.",
            NAME,
            bare=True,
            kept_from_jobs=True,
            default_text="`postgres`",
            part_of="database_url",
        ),
    ] = None
    postgres_password: Annotated[
        str | None,
        Rule(_STORAGE, "The user's password.", ANY_TEXT, bare=True, secret=True, part_of="database_url"),
    ] = None
    postgres_db: Annotated[
        str | None,
        Rule(
            _STORAGE,
            "Its database.",
            NAME,
            bare=True,
            kept_from_jobs=True,
            default_text="the name of the user",
            part_of="database_url",
        ),
    ] = None
    redis_host: Annotated[
        str | None,
        Rule(
            _STORAGE,
            "Where Redis listens, if no `REDIS_URL` is set.",
            HOST,
            bare=True,
            kept_from_jobs=True,
            part_of="redis_url",
        ),
    ] = None
    redis_port: Annotated[
        int | None,
        Rule(
            _STORAGE,
            "Its port, with `REDIS_HOST`.",
            PORT,
            bare=True,
            kept_from_jobs=True,
            default_text="`6379`",
            part_of="redis_url",
        ),
    ] = None
    retention_completed_sec: Annotated[
        float, Rule(_STORAGE, "How long completed and cancelled jobs stay queryable.", gt=0)
    ] = 604_800
    retention_failed_sec: Annotated[
        float, Rule(_STORAGE, "How long failed jobs (the dead letters) stay.", gt=0)
    ] = 2_592_000

    priority_order: Annotated[
        Literal["lowest_first", "highest_first"],
        Rule(
            _SUBMIT,
            "Which priority runs first. Stored with the data: a mismatch refuses to start.",
            bare=True,
        ),
    ] = "lowest_first"
    idempotency_ttl_sec: Annotated[
        float,
        Rule(
            _SUBMIT,
            "How long an idempotency key returns the same job, and the id of a deleted job stays taken.",
            gt=0,
            bare=True,
        ),
    ] = 86_400
    rate_limit_jobs_per_min: Annotated[
        int, Rule(_SUBMIT, "Jobs that one client may submit per minute; 0 is no limit.", ge=0, bare=True)
    ] = 0

    worker_heartbeat_timeout_sec: Annotated[
        float,
        Rule(
            _WORKERS,
            "A worker silent for this long is given up and its jobs are queued again.",
            ge=1,
            bare=True,
        ),
    ] = 30
    placement: Annotated[
        Literal["round_robin", "least_loaded", "least_recently_used"],
        Rule(
            _WORKERS,
            "How a worker is chosen among those with enough free threads. `least_connections` is another name for "
            "`least_loaded`, `lru` for `least_recently_used`.",
            synonyms=MappingProxyType({"least_connections": "least_loaded", "lru": "least_recently_used"}),
        ),
    ] = "round_robin"
    workers: Annotated[
        int,
        Rule(
            _WORKERS,
            "Workers that `stoker up` starts.",
            ge=0,
            le=WORKERS_MAX,
            default_text="the highest number in `WORKER_N_THREADS`, else `2`",
        ),
    ] = 2
    worker_threads: Annotated[
        int,
        Rule(
            _WORKERS,
            "Threads of one worker: what `thread_demand` is counted in.",
            ge=1,
            le=THREADS_MAX,
            default_text="number of CPUs",
        ),
    ] = msgspec.field(default_factory=available_cpus)
    worker_n_threads: Annotated[
        dict[int, int],
        Rule(
            _WORKERS,
            "`WORKER_1_THREADS=4`, `WORKER_2_THREADS=8` and so on: `stoker up` starts these workers, with so many threads "
            "each. One that is left out has `STOKER_WORKER_THREADS`; `--threads` is for all of them.",
            SIZES,
            bare=True,
            default_text="`STOKER_WORKER_THREADS`",
        ),
    ] = msgspec.field(default_factory=dict)
    worker_name: Annotated[
        str | None,
        Rule(_WORKERS, "Name shown for a worker.", NAME, default_text="host name and process id"),
    ] = None
    worker_queues: Annotated[
        tuple[str, ...],
        Rule(_WORKERS, "Queues that a worker serves.", NAMES, default_text="every queue"),
    ] = ()
    worker_labels: Annotated[
        dict[str, str], Rule(_WORKERS, "Labels of a worker; jobs may ask for them.", LABELS)
    ] = msgspec.field(default_factory=dict)
    worker_urls: Annotated[
        tuple[str, ...],
        Rule(
            _WORKERS,
            "Coordinators that a worker may connect to; it uses one and falls back to the others.",
            HTTP_URLS,
            default_text="`API_URL`",
        ),
    ] = ()
    worker_endpoint: Annotated[
        str | None,
        Rule(
            _WORKERS,
            "Not needed, and said so when a worker starts: `stoker worker` dials the coordinator. A worker that is a web "
            "service registers its own address (`POST /workers`).",
            HTTP_URL,
            bare=True,
        ),
    ] = None
    endpoints: Annotated[
        tuple[str, ...],
        Rule(
            _WORKERS,
            "Web services that may register as workers: the only addresses that are ever dialled. An entry stands for "
            "itself and for every path below it.",
            ENDPOINTS,
        ),
    ] = ()
    webhook_hosts: Annotated[
        tuple[str, ...],
        Rule(
            _SERVER,
            "Where webhooks (`notify_url` of a job) may go: hosts, `*.` and a domain, addresses and networks. An address "
            "that is not public is dialled only if it is listed as an address. Needs `STOKER_WEBHOOK_SECRET`.",
            WEBHOOK_HOSTS,
        ),
    ] = ()
    webhook_secret: Annotated[
        str | None,
        Rule(
            _SERVER,
            "The secret with which webhooks are signed, by Standard Webhooks. All coordinators need the same.",
            WEBHOOK_SECRET,
            secret=True,
        ),
    ] = None
    app: Annotated[str | None, Rule(_WORKERS, "The `Stoker` object whose tasks a worker runs.", APP)] = None
    async_concurrency: Annotated[
        int,
        Rule(
            _WORKERS,
            "Async tasks that one worker runs side by side, on one of its threads.",
            ge=1,
            le=100_000,
        ),
    ] = 1000
    child_max_jobs: Annotated[
        int, Rule(_WORKERS, "A warm child process is replaced after so many jobs.", ge=1)
    ] = 1_000_000
    child_max_memory_mb: Annotated[
        int, Rule(_WORKERS, "An idle child process that holds more memory than this is replaced.", ge=64)
    ] = 1024
    commands: Annotated[
        dict[str, tuple[str, ...]],
        Rule(
            _WORKERS,
            "Job types that run a command: a JSON object of type to argv, or the path of a file with one.",
            COMMANDS,
            default_text="none",
        ),
    ] = msgspec.field(default_factory=dict)
    native_runner: Annotated[
        Literal["auto", "off"],
        Rule(_WORKERS, "`auto` runs built-in types in the native runner if it was built, `off` in Python."),
    ] = "auto"
    execution_binary: Annotated[
        str | None,
        Rule(
            _WORKERS,
            "Executable that runs every job whose type no task of the app has.",
            NAME,
            bare=True,
        ),
    ] = None
    shutdown_grace_sec: Annotated[
        float,
        Rule(_WORKERS, "Time that running jobs get to finish at shutdown before they are handed back.", ge=0),
    ] = 30
    cancel_grace_sec: Annotated[
        float, Rule(_WORKERS, "Time between the polite signal and the kill when a job is cancelled.", ge=0)
    ] = 1.5

    max_attempts: Annotated[
        int, Rule(_RETRIES, "Attempts of a job that does not say: one try and three retries.", ge=1, le=100)
    ] = 4
    retry_backoff_base_sec: Annotated[
        float, Rule(_RETRIES, "A retry waits this number to the power of the retry, in seconds.", ge=1, le=60)
    ] = 2
    retry_backoff_cap_sec: Annotated[float, Rule(_RETRIES, "The longest wait before a retry.", ge=0)] = 300
    retry_jitter: Annotated[
        float, Rule(_RETRIES, "Each wait is varied by up to this share, both ways.", ge=0, le=1)
    ] = 0.3

    queue_threshold_high: Annotated[
        int, Rule(_SCALING, "Above this queue depth a worker is added.", ge=1, bare=True)
    ] = 10
    queue_threshold_low: Annotated[
        int, Rule(_SCALING, "Below this queue depth a worker may be removed.", ge=0, bare=True)
    ] = 2
    scale_down_stable_sec: Annotated[
        float,
        Rule(
            _SCALING,
            "How long fewer workers must have been enough before one is removed, and then another after each cool-down.",
            ge=0,
            bare=True,
        ),
    ] = 30
    min_workers: Annotated[int, Rule(_SCALING, "Never fewer workers than this.", ge=0, bare=True)] = 1
    max_workers: Annotated[int, Rule(_SCALING, "Never more workers than this.", ge=1, bare=True)] = 4
    autoscale: Annotated[
        Literal["auto", "off", "recommend", "process", "docker"],
        Rule(
            _SCALING,
            "What the autoscaler does with a decision: tell it, or start and drain processes or containers. `auto` is "
            "`docker` for `stoker autoscale` with `WORKER_IMAGE` set, else `recommend`.",
        ),
    ] = "auto"
    scale_by: Annotated[
        Literal["depth", "demand"],
        Rule(
            _SCALING,
            "`depth` goes by the number of jobs that wait; `demand` by the work in them, from run times observed.",
        ),
    ] = "depth"
    scale_target_sec: Annotated[
        float, Rule(_SCALING, "By demand: the time within which what waits should be done.", gt=0)
    ] = 60
    scale_cooldown_sec: Annotated[
        float, Rule(_SCALING, "After a change of workers, no other for this long.", ge=0)
    ] = 5
    worker_image: Annotated[
        str | None, Rule(_SCALING, "Image from which the Docker API starts workers.", NAME, bare=True)
    ] = None
    worker_network: Annotated[
        str | None,
        Rule(
            _SCALING,
            "Docker network that such workers join.",
            NAME,
            default_text="the engine's default bridge",
        ),
    ] = None

    max_body_bytes: Annotated[
        int, Rule(_LIMITS, "Largest request body; beyond it `413`.", ge=1024, le=1 << 30)
    ] = 16 * 1024 * 1024
    max_bodies_bytes: Annotated[
        int,
        Rule(
            _LIMITS,
            "Bytes of request bodies under way at once (being read, checked and stored); beyond it `503`. The memory that "
            "they take is about four times as much. An eighth is for bodies up to 64 KiB alone.",
            ge=2048,
            le=1 << 40,
        ),
    ] = 64 * 1024 * 1024
    max_payload_bytes: Annotated[int, Rule(_LIMITS, "Largest payload of one job.", ge=1, le=1 << 30)] = (
        4 * 1024 * 1024
    )
    max_result_bytes: Annotated[
        int,
        Rule(_LIMITS, "Largest result; a job with a larger one fails and is not retried.", ge=1, le=1 << 30),
    ] = 1024 * 1024
    max_pending_jobs: Annotated[
        int,
        Rule(
            _LIMITS,
            "Jobs received but not yet committed; beyond it `503`. The backlog itself is not bounded.",
            ge=1,
        ),
    ] = 100_000

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Rule(_LOGS, "What is worth a line.")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "text"], Rule(_LOGS, "`auto` is text on a terminal and JSON elsewhere.")
    ] = "auto"

    metrics_aliases: Annotated[
        bool,
        Rule(
            _LOGS,
            "`1`: `/metrics` also has the [names of the source systems](metrics.md#names-of-the-source-systems).",
            BOOLEAN,
            bare=True,
            default_text="`0`",
        ),
    ] = False
    portable: Annotated[
        int,
        Rule(
            _WORKERS,
            "1 uses on Linux what other systems have to do with ([docs/portability.md](../portability.md)); for tests.",
            ge=0,
            le=1,
        ),
    ] = 0

    # Not settings: what `load` noticed. `sources` maps a field to the name its value came from.
    warnings: tuple[str, ...] = ()
    sources: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def on_postgres(self) -> bool:
        """Whether jobs are kept in PostgreSQL."""
        return urlsplit(self.database_url).scheme in POSTGRES_SCHEMES

    @property
    def database_path(self) -> Path:
        """The file behind `database_url`."""
        return Path(unquote(self.database_url.removeprefix("sqlite:///")))

    @property
    def coordinator_urls(self) -> tuple[str, ...]:
        """The addresses that a worker may connect to: `worker_urls`, else the API's address."""
        return self.worker_urls or (self.api_url,)

    def __repr__(self) -> str:
        """Names and values, with secrets hidden: settings end up in logs and tracebacks."""
        values = (f"{entry.field}={shown(entry, getattr(self, entry.field))}" for entry in table())
        return f"Settings({', '.join(values)})"


class SettingEntry(NamedTuple):
    """One row of the table of settings."""

    field: str
    type: Any
    default: Any
    rule: Rule

    @property
    def name(self) -> str:
        """The name that people know it by: bare if it is read so, else prefixed."""
        return self.field.upper() if self.rule.bare else PREFIX + self.field.upper()

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables it is read from, strongest first."""
        names = (self.field.upper(), *self.rule.aliases)
        prefixed = tuple(PREFIX + name for name in names)
        return prefixed + names if self.rule.bare else prefixed


@cache
def table() -> tuple[SettingEntry, ...]:
    """Return all settings, in order of declaration."""
    hints = get_type_hints(Settings, include_extras=True)
    entries = []
    for field in msgspec.structs.fields(Settings):
        metadata = getattr(hints[field.name], "__metadata__", ())
        if not metadata:
            continue
        computed = field.default_factory is not msgspec.NODEFAULT
        default = field.default_factory() if computed else field.default
        entries.append(SettingEntry(field.name, get_args(hints[field.name])[0], default, metadata[0]))
    return tuple(entries)


def allowed(entry: SettingEntry) -> str:
    """Return what the setting accepts, in words."""
    rule = entry.rule
    if rule.parser is not None:
        return rule.parser.allowed
    if get_origin(entry.type) is Literal:
        return " or ".join(get_args(entry.type))
    kind = "a whole number" if entry.type is int else "a number"
    if rule.gt is not None:
        return f"{kind} greater than {rule.gt:g}"
    if rule.le is not None:
        return f"{kind} from {rule.ge:.0f} to {rule.le:.0f}"
    return f"{kind}, at least {rule.ge:.0f}"


def shown(entry: SettingEntry, value: object) -> str:
    """Return the value on one short line without secrets, for terminals and logs."""
    if entry.rule.secret and value is not None:
        return "***"
    text = masked(str(value)).encode("unicode_escape").decode("ascii")
    return text if len(text) <= _SHOWN_MAX_CHARS else f"{text[:_SHOWN_MAX_CHARS]}…"


def masked(url: str) -> str:
    """Return an address without its user and password."""
    return re.sub(r"//[^/@]*@", "//***@", url)
