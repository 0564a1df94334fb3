"""Every setting of every process, declared once.

A setting is one field of `Settings`: its type, its default, its rule and the text that explains it. The
loader, the error messages and `docs/reference/settings.md` (`python -m stoker.settings`) are all made from that
declaration, so they cannot disagree.

Where a value comes from, first match wins:

1. the command line (`overrides`),
2. the environment, as `STOKER_<NAME>`,
3. for the names that other systems already use, the environment as plain `<NAME>`,
4. for the addresses of PostgreSQL and Redis, their parts (`POSTGRES_HOST` and so on),
5. the default.

A variable that is set but empty counts as not set, because that is what `NAME=${NAME:-}` in a compose file
means. A wrong value never falls back to the default: `load` raises `SettingsError`, which lists all problems,
since meeting them one start at a time is a waste of a person's morning.
"""

from __future__ import annotations

import base64
import difflib
import ipaddress
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import unquote, urlsplit

import msgspec

from stoker import service_urls, webhook_hosts, worker_endpoints
from stoker.access import Access
from stoker.system import SYSTEM

PREFIX = "STOKER_"

# Set by Stoker for the jobs it runs, or used by its tools; never read as settings, and no reason for a warning.
_NOT_SETTINGS = frozenset(
    {
        "STOKER_THREADS",
        "STOKER_UP_PID",
        "STOKER_WORKER_SESSION",
        "STOKER_WORKER_CHILD",
        "STOKER_JOB_ID",
        "STOKER_ATTEMPT",
    }
)

_NEW_TOKEN = "STOKER_TOKEN=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')"  # noqa: S105
_TOKEN_MIN_CHARS = 16
_NAME_MAX_CHARS = 200
_POSTGRES_SCHEMES = frozenset({"postgresql", "postgres"})
_SHOWN_MAX_CHARS = 120
_NUMBERED = re.compile(r"(STOKER_)?(WORKER_([0-9]{1,6})_THREADS)")
_WORKERS_MAX = 1000
_THREADS_MAX = 1024
_APP = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


class SettingsError(Exception):
    """The settings cannot be used; `problems` has one line for each reason."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


# --- how texts become values: each parser raises ValueError with what is allowed -----------------------


class Parser(NamedTuple):
    """Reads one value from text, and says in words what it accepts."""

    parse: Callable[[str], Any]
    allowed: str
    check: Callable[[Mapping[str, Any]], Any] | None = None
    """Takes pairs that the command line has told apart already, in which any character may stand."""


def _printable(text: str) -> str:
    if len(text) > _NAME_MAX_CHARS or not text.isprintable():
        raise ValueError
    return text


_NEW_WEBHOOK_SECRET = (
    'STOKER_WEBHOOK_SECRET=whsec_$(python3 -c "import base64, secrets; '  # noqa: S105
    'print(base64.b64encode(secrets.token_bytes(32)).decode())")'
)
_WEBHOOK_SECRET_BYTES = (24, 64)
"""As Standard Webhooks recommends."""


def _webhook_secret(text: str) -> str:
    fewest, most = _WEBHOOK_SECRET_BYTES
    secret = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    if not fewest <= len(secret) <= most:
        raise ValueError
    return text


def _token(text: str) -> str:
    if len(text) < _TOKEN_MIN_CHARS or not all("!" <= char <= "~" for char in text):
        raise ValueError
    return text


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError
    parts.port  # noqa: B018 - reading it raises ValueError for a port that is not one
    return text.rstrip("/")


def _origin(text: str) -> str:
    url = _http_url(text)
    if urlsplit(url).path:
        raise ValueError
    return url


def _sqlite_url(text: str) -> str:
    path = text.removeprefix("sqlite:///")
    if path == text or not path or path.startswith(":") or "?" in path or "\0" in unquote(path):
        raise ValueError
    return text


def _database_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in _POSTGRES_SCHEMES:
        return _sqlite_url(text)
    parts.port  # noqa: B018
    return text


def _redis_url(text: str) -> str:
    """`REDIS_ADDR` is `host:port` in the systems that use it, so the scheme may be missing."""
    url = text if "://" in text else f"redis://{text}"
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss", "unix"} or not (parts.hostname or parts.path):
        raise ValueError
    parts.port  # noqa: B018
    return url


def _app(text: str) -> str:
    if not _APP.fullmatch(text):
        raise ValueError
    return text


def _listed(parse_item: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        return tuple(parse_item(item.strip()) for item in text.split(",") if item.strip())

    return parse


def _labels(text: str) -> dict[str, str]:
    items = [item.partition("=") for item in _listed(_printable)(text)]
    if not all(equals for _, equals, _ in items):
        raise ValueError
    return _checked_labels({key: value for key, _, value in items})


def _checked_labels(pairs: Mapping[str, str]) -> dict[str, str]:
    labels = {_printable(key.strip()): _printable(value.strip()) for key, value in pairs.items()}
    if "" in labels:
        raise ValueError
    return labels


def _commands(text: str) -> dict[str, tuple[str, ...]]:
    """Types bound to an argv: inline JSON, or the path of a JSON file. Never a shell string."""
    source = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
    return _checked_commands(msgspec.json.decode(source, type=dict[str, tuple[str, ...]]))


def _checked_commands(commands: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    if any(not type or not argv or not argv[0] for type, argv in commands.items()):
        raise ValueError
    return dict(commands)


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError
    return _BOOLEANS[text.lower()]


_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _sizes(threads: Mapping[str, str]) -> dict[int, int]:
    """`WORKER_1_THREADS=4` and so on, by the number of the worker."""
    sizes = {}
    for variable, text in threads.items():
        match = _NUMBERED.fullmatch(variable)
        number, size = int(match[3]) if match else 0, int(text)
        if not 1 <= number <= _WORKERS_MAX or not 1 <= size <= _THREADS_MAX:
            raise ValueError
        sizes[number] = size
    return dict(sorted(sizes.items()))


def _not_text(text: str) -> Any:
    raise ValueError


BOOLEAN = Parser(_boolean, "1 or 0")
ANY_TEXT = Parser(str, "any text")
HOST = Parser(service_urls.host, "a name, an address, or where its socket is")
PORT = Parser(service_urls.port, "a whole number from 1 to 65535")
SIZES = Parser(
    _not_text,
    f"whole numbers from 1 to {_THREADS_MAX}, for workers from 1 to {_WORKERS_MAX}",
    _sizes,
)
NAME = Parser(_printable, f"at most {_NAME_MAX_CHARS} printable characters")
NAMES = Parser(_listed(_printable), "names, separated by commas")
LABELS = Parser(_labels, "pairs such as zone=eu,gpu=yes", _checked_labels)
COMMANDS = Parser(
    _commands,
    'a JSON object such as {"thumbnail": ["/usr/bin/convert", "-", "png:-"]}, or the path of a file with one',
    _checked_commands,
)
TOKEN = Parser(
    _token, f"at least {_TOKEN_MIN_CHARS} visible ASCII characters, no spaces; make one: {_NEW_TOKEN}"
)
HTTP_URL = Parser(_http_url, "an address such as http://127.0.0.1:8080")
HTTP_URLS = Parser(_listed(_http_url), "addresses such as http://127.0.0.1:8080, separated by commas")
ENDPOINTS = Parser(
    _listed(lambda text: str(worker_endpoints.parse(text))),
    "addresses such as http://10.0.0.5:9000/jobs, separated by commas; no credentials, query, `..` or `%`",
)
WEBHOOK_HOSTS = Parser(
    _listed(webhook_hosts.parse_entry),
    "hosts such as hooks.example.com or *.example.com, addresses or networks, separated by commas",
)
WEBHOOK_SECRET = Parser(
    _webhook_secret, "whsec_ and base64 of 24 to 64 bytes; make one: " + _NEW_WEBHOOK_SECRET
)
ORIGINS = Parser(_listed(_origin), "origins such as https://jobs.example.com (no path), separated by commas")
REDIS_URL = Parser(_redis_url, "redis://HOST:PORT/DB, or HOST:PORT")
APP = Parser(_app, "MODULE:NAME, such as tasks:app")
DATABASE_URL = Parser(
    _database_url,
    "sqlite:///relative/path.db, sqlite:////absolute/path.db or postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
    "a database in memory would lose every job (set STOKER_DATABASE_URL to override a DATABASE_URL meant for "
    "another program)",
)


# --- the declaration of one setting --------------------------------------------------------------------


class Rule(NamedTuple):
    """What the declaration of a setting carries besides its type and default."""

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
            le=_WORKERS_MAX,
            default_text="the highest number in `WORKER_N_THREADS`, else `2`",
        ),
    ] = 2
    worker_threads: Annotated[
        int,
        Rule(
            _WORKERS,
            "Threads of one worker: what `thread_demand` is counted in.",
            ge=1,
            le=_THREADS_MAX,
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
        return urlsplit(self.database_url).scheme in _POSTGRES_SCHEMES

    @property
    def database_path(self) -> Path:
        """The file behind `database_url`."""
        return Path(unquote(self.database_url.removeprefix("sqlite:///")))

    @property
    def coordinator_urls(self) -> tuple[str, ...]:
        """Where a worker connects: what it was told, else the API's address."""
        return self.worker_urls or (self.api_url,)

    def __repr__(self) -> str:
        """Names and values, with secrets hidden: settings end up in logs and tracebacks."""
        shown = (f"{entry.field}={_shown(entry, getattr(self, entry.field))}" for entry in table())
        return f"Settings({', '.join(shown)})"


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
    """All settings, in order of declaration."""
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


# --- reading -------------------------------------------------------------------------------------------


def load(environ: Mapping[str, str], overrides: Mapping[str, object] | None = None) -> Settings:
    """Read and check everything. `overrides` are by field name; `None` means not given.

    Raises `SettingsError` with every problem found.
    """
    values, sources, problems = _read(table(), environ, overrides or {})
    _join_parts(values, sources, problems)
    _derive(values)
    _number_workers(values, sources)
    found = [*problems.values(), *_disagreements(values, broken=set(problems))]
    if found:
        raise SettingsError(found)
    return Settings(**values, sources=sources, warnings=tuple(_unknown(environ)))


class ClientTarget(NamedTuple):
    """What a client needs to know."""

    url: str
    token: str | None


def client_target(
    environ: Mapping[str, str],
    url: str | None = None,
    token: str | None = None,
    given: Access = Access(),  # noqa: B008 - it is frozen
) -> ClientTarget:
    """Where the API is and how to be let in, untroubled by settings that concern servers alone.

    `given` is what a worker gave the process of a task; it stands in for what nothing else says.
    """
    entries = [entry for entry in table() if entry.field in {"api_port", "api_url", "token"}]
    values, _, problems = _read(entries, environ, {"api_url": url, "token": token})
    if given.url is not None and not {"api_url", "api_port"} & {*values, *problems}:
        values["api_url"] = given.url
    if given.token is not None and not {"token"} & {*values, *problems}:
        values["token"] = given.token
    _derive(values)
    if problems:
        raise SettingsError(problems.values())
    return ClientTarget(values.get("api_url", Settings().api_url), values.get("token"))


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that runs jobs: without the token and the addresses of Stoker's own stores.

    A name without the prefix is left where the prefixed one is set to something else: then it is not read as a setting,
    and belongs to another program. So are the parts of an address (`POSTGRES_HOST` and so on) where that is set.
    """
    kept = dict(environ)
    told = {entry.field for entry in table() if any(environ.get(variable) for variable in entry.variables)}
    for entry in table():
        if entry.rule.part_of in told:
            for name in entry.variables:
                if name.startswith(PREFIX):
                    kept.pop(name, None)
        elif entry.rule.secret or entry.rule.kept_from_jobs:
            prefixed = {kept.pop(name, "") for name in entry.variables if name.startswith(PREFIX)} - {""}
            for name in entry.variables:
                if not prefixed or kept.get(name) in prefixed:
                    kept.pop(name, None)
    return kept


def _read(
    entries: Iterable[SettingEntry], environ: Mapping[str, str], overrides: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """By field: the values that were given and are good, where each came from, what is wrong with the others."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems: dict[str, str] = {}
    for entry in entries:
        found = _find(entry, environ, overrides)
        if found is None:
            continue
        source, raw = found
        try:
            values[entry.field] = _parse(entry, raw)
            sources[entry.field] = source
        except ValueError:
            problems[entry.field] = f"{_given(entry, source, raw)}: must be {allowed(entry)}"
        except OSError as error:
            reason = error.strerror or str(error)
            problems[entry.field] = f"{_given(entry, source, raw)}: {reason}; must be {allowed(entry)}"
    return values, sources, problems


def _find(
    entry: SettingEntry, environ: Mapping[str, str], overrides: Mapping[str, object]
) -> tuple[str, object] | None:
    override = overrides.get(entry.field)
    if override is not None:
        return "the command line", override
    if entry.rule.parser is SIZES:
        return _find_numbered(environ)
    for variable in entry.variables:
        if environ.get(variable):
            return variable, environ[variable]
    return None


def _find_numbered(environ: Mapping[str, str]) -> tuple[str, object] | None:
    """`WORKER_1_THREADS` and its like, by the name that counts: the prefixed one wins."""
    found: dict[str, str] = {}
    for name in sorted(environ, key=lambda name: name.startswith(PREFIX)):
        match = _NUMBERED.fullmatch(name)
        if match and environ[name]:
            found[match[2]] = environ[name]
    return (", ".join(sorted(found)), found) if found else None


def _given(entry: SettingEntry, source: str, raw: object) -> str:
    value = _shown(entry, _as_text(raw))
    if entry.rule.parser is SIZES:
        return value
    if source == "the command line":
        return f"{entry.name}={value} (from the command line)"
    return f"{source}={value}"


def _parse(entry: SettingEntry, raw: object) -> Any:
    """One value, checked; raises ValueError. Values from the command line may already have their type."""
    parser = entry.rule.parser
    if parser is not None:
        if parser.check is not None and isinstance(raw, Mapping):
            return parser.check(raw)
        return parser.parse(_as_text(raw))
    text = str(raw).strip()
    if get_origin(entry.type) is Literal:
        choice = entry.rule.synonyms.get(text.lower(), text.lower())
        if choice not in get_args(entry.type):
            raise ValueError
        return choice
    return _number(entry, text)


def _as_text(raw: object) -> str:
    """Lists from the command line are joined, so that one parser judges both sources; pairs only to show them."""
    if isinstance(raw, Mapping):
        return ",".join(f"{key}={_words(value)}" for key, value in raw.items())
    if isinstance(raw, (list, tuple)):
        return ",".join(str(item) for item in raw)
    return str(raw)


def _words(value: object) -> str:
    return shlex.join(value) if isinstance(value, tuple) else str(value)


def _number(entry: SettingEntry, text: str) -> int | float:
    number: int | float = int(text) if entry.type is int else float(text)
    rule = entry.rule
    if not math.isfinite(number):
        raise ValueError
    if rule.ge is not None and number < rule.ge:
        raise ValueError
    if rule.gt is not None and number <= rule.gt:
        raise ValueError
    if rule.le is not None and number > rule.le:
        raise ValueError
    return number


def _derive(values: dict[str, Any]) -> None:
    """A changed port moves the address at which clients look, unless they were told another."""
    if values.get("api_port") and "api_url" not in values:
        values["api_url"] = f"http://127.0.0.1:{values['api_port']}"


_JOINED: dict[str, Callable[[Mapping[str, object]], str]] = {
    "database_url": service_urls.postgres_url,
    "redis_url": service_urls.redis_url,
}
_PORTS = frozenset({"postgres_port", "redis_port"})
"""They say nothing alone; Kubernetes sets them wherever there is a service called `postgres` or `redis`."""


def _join_parts(values: dict[str, Any], sources: dict[str, str], problems: dict[str, str]) -> None:
    """Make the addresses that are not set from their parts. Parts that are not used may hold anything."""
    for url, join in _JOINED.items():
        parts = [entry.field for entry in table() if entry.rule.part_of == url]
        given = [part for part in parts if part in values or part in problems]
        if url in values or url in problems or _PORTS.issuperset(given):
            for part in given:
                for found in (values, sources, problems):
                    found.pop(part, None)
        elif not any(part in problems for part in given):
            values[url] = join(values)
            sources[url] = ", ".join(sources[part] for part in given)


def _number_workers(values: dict[str, Any], sources: dict[str, str]) -> None:
    """Workers with sizes of their own are as many as the highest number, unless another is asked for."""
    sizes = values.get("worker_n_threads")
    if not sizes:
        return
    if "workers" not in values:
        values["workers"] = max(sizes)
        sources["workers"] = sources["worker_n_threads"]
    if sources.get("worker_threads") == "the command line":
        values["worker_n_threads"] = {}


def allowed(entry: SettingEntry) -> str:
    """What the setting accepts, in words."""
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


# --- settings that must agree --------------------------------------------------------------------------


def _disagreements(values: Mapping[str, Any], broken: set[str]) -> list[str]:
    """Problems of settings that are each fine alone, judged with the defaults behind what was given.

    A setting that is already reported is not reported again for what its default would have caused.
    """
    defaults = {entry.field: entry.default for entry in table()}
    return [problem for fields, problem in _cross_checks({**defaults, **values}) if broken.isdisjoint(fields)]


def _cross_checks(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    low, high = values["min_workers"], values["max_workers"]
    if low > high:
        yield (
            ("min_workers", "max_workers"),
            f"MIN_WORKERS={low} and MAX_WORKERS={high} disagree: the minimum must not exceed the maximum; "
            "lower the first or raise the second",
        )
    low, high = values["queue_threshold_low"], values["queue_threshold_high"]
    if low >= high:
        yield (
            ("queue_threshold_low", "queue_threshold_high"),
            f"QUEUE_THRESHOLD_LOW={low} and QUEUE_THRESHOLD_HIGH={high} disagree: the low one must be below "
            "the high one, or the autoscaler would add and remove at the same depth",
        )
    payload, body = values["max_payload_bytes"], values["max_body_bytes"]
    if payload > body:
        yield (
            ("max_payload_bytes", "max_body_bytes"),
            f"STOKER_MAX_PAYLOAD_BYTES={payload} and STOKER_MAX_BODY_BYTES={body} disagree: a payload "
            "travels inside a body; raise the second",
        )
    bodies = values["max_bodies_bytes"]
    if body > bodies - bodies // 8:
        yield (
            ("max_body_bytes", "max_bodies_bytes"),
            f"STOKER_MAX_BODY_BYTES={body} and STOKER_MAX_BODIES_BYTES={bodies} disagree: the largest body must fit into "
            "seven eighths of what may be under way; raise the second",
        )
    if values["webhook_hosts"] and not values["webhook_secret"]:
        yield (
            ("webhook_hosts", "webhook_secret"),
            f"STOKER_WEBHOOK_HOSTS is set, so webhooks must be signed: set {_NEW_WEBHOOK_SECRET}",
        )
    if not is_loopback(values["host"]) and not values["token"]:
        yield (
            ("host", "token"),
            f"STOKER_HOST={values['host']} is reachable from other machines, so a token is needed: "
            f"set {_NEW_TOKEN}, or listen on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name we cannot judge counts as reachable."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _unknown(environ: Mapping[str, str]) -> Iterator[str]:
    known = {variable for entry in table() for variable in entry.variables} | _NOT_SETTINGS
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and not _NUMBERED.fullmatch(name):
            close = difflib.get_close_matches(name, known, n=1)
            yield f"{name} is not a setting" + (
                f"; did you mean {close[0]}?" if close else " and was ignored"
            )


# --- showing -------------------------------------------------------------------------------------------


def _shown(entry: SettingEntry, value: object) -> str:
    """The value on one line, short, without secrets: it goes to terminals and logs."""
    if entry.rule.secret and value is not None:
        return "***"
    text = masked(str(value)).encode("unicode_escape").decode("ascii")
    return text if len(text) <= _SHOWN_MAX_CHARS else f"{text[:_SHOWN_MAX_CHARS]}…"


def masked(url: str) -> str:
    """An address without its user and password."""
    return re.sub(r"//[^/@]*@", "//***@", url)


def reference() -> str:
    """The reference page."""
    lines = [
        "# Settings",
        "",
        "<!-- Generated by `python -m stoker.settings`; edit src/stoker/settings.py instead. -->",
        "",
        "Settings are environment variables, checked when a process starts; it refuses to start with a list of",
        "everything that is wrong. A variable that is empty counts as not set. Names without the prefix `STOKER_`",
        "are also read with it, and then win. Options on the command line win over both.",
        "",
        "Processes that run jobs do not inherit the token, `DATABASE_URL` and `REDIS_URL`, under any of their names, nor",
        "their parts (`POSTGRES_…`, `REDIS_HOST`, `REDIS_PORT`); they inherit everything else. A `DATABASE_URL` of the",
        "tasks' own is inherited when `STOKER_DATABASE_URL` is set to another value, and so for Redis; parts are inherited",
        "where the address is set. See [isolation](../concepts/isolation.md#secrets).",
    ]
    section = None
    for entry in sorted(table(), key=lambda entry: _SECTIONS.index(entry.rule.section)):
        if entry.rule.section != section:
            section = entry.rule.section
            lines += ["", f"## {section}", "", "| Name | Default | Allowed | Meaning |", "|---|---|---|---|"]
        lines.append(_row(entry))
    return "\n".join(lines) + "\n"


_SECTIONS = (_SERVER, _STORAGE, _SUBMIT, _WORKERS, _RETRIES, _SCALING, _LIMITS, _LOGS)


def _row(entry: SettingEntry) -> str:
    names = ", ".join(f"`{name}`" for name in (entry.name, *entry.rule.aliases))
    text = allowed(entry).partition("; ")[0].replace("|", "\\|")
    return f"| {names} | {_default_text(entry)} | {text} | {entry.rule.doc} |"


def _default_text(entry: SettingEntry) -> str:
    if entry.rule.default_text is not None:
        return entry.rule.default_text
    if entry.default in (None, (), {}):
        return "not set"
    return f"`{entry.default}`"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
