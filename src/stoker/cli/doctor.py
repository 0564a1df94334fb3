"""`stoker doctor`: what is wrong here, and what to do about it.

Each check is a function that returns findings; none stops the others. A finding is `ok`, a `warning` (it works,
but not well) or `broken`, and says how to fix it.
"""

from __future__ import annotations

import email.utils
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stoker.cli.doctor_services import check_postgres, check_redis
from stoker.cli.findings import Finding
from stoker.executors.native_binary import find_runner
from stoker.settings import Settings, SettingsError, client_target, load
from stoker.system import SYSTEM, Portable

PYTHON_MIN = (3, 11)
SQLITE_MIN = (3, 51, 3)
DISK_BROKEN_BYTES = 100 * 1024**2
DISK_WARNING_BYTES = 1024**3
SKEW_WARNING_SECONDS = 5
_ASK_TIMEOUT_SECONDS = 5


def examine(environ: Mapping[str, str], url: str | None, token: str | None) -> list[Finding]:
    """All findings."""
    settings, findings = check_settings(environ)
    return [
        check_python(sys.version_info[:3]),
        *check_packages(),
        check_sqlite(),
        *findings,
        check_workers(SYSTEM),
        check_runner(settings or Settings(), find_runner()),
        *check_storage(settings or Settings()),
        *check_coordinator(environ, url, token),
    ]


def check_storage(settings: Settings) -> list[Finding]:
    """Check the database and Redis that the settings name."""
    if settings.on_postgres:
        findings = check_postgres(settings.database_url)
    else:
        findings = [*check_data_folder(settings.database_path), *check_database_file(settings.database_path)]
    return findings + (check_redis(settings.redis_url) if settings.redis_url else [])


def check_python(version: tuple[int, ...]) -> Finding:
    """The interpreter is recent enough."""
    text = ".".join(map(str, version))
    if version < PYTHON_MIN:
        return Finding("python", "broken", text, "install Python 3.11 or later and set up again")
    return Finding("python", "ok", text)


def check_packages() -> Iterator[Finding]:
    """Everything that the distribution asks for is there."""
    missing, found = [], []
    for name in _requirements():
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        yield Finding(
            "packages", "broken", f"missing: {', '.join(missing)}", "run: pip install --upgrade stoker"
        )
    if found:
        yield Finding("packages", "ok", ", ".join(found))


def _requirements() -> list[str]:
    """The names of our run-time requirements, from the installed distribution's own metadata."""
    try:
        required = importlib.metadata.requires("stoker") or []
    except importlib.metadata.PackageNotFoundError:
        return ["msgspec", "httpx", "apsw", "starlette", "uvicorn", "typer", "rich"]
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in required if asked_for(line, sys.platform)]


def asked_for(requirement: str, platform: str) -> bool:
    """Whether a requirement of ours holds on this platform, without any extra."""
    marker = requirement.partition(";")[2]
    not_on_windows = re.search(r"sys_platform != .win32.", marker) is not None
    return "extra ==" not in marker and not (not_on_windows and platform == "win32")


def check_sqlite() -> Finding:
    """The SQLite inside APSW is past the bugs we know of."""
    try:
        import apsw
    except ImportError as error:
        return Finding("sqlite", "broken", str(error), "run: pip install apsw")
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split(".")[:3])) < SQLITE_MIN:
        wanted = ".".join(map(str, SQLITE_MIN))
        return Finding(
            "sqlite", "broken", f"{version} can corrupt its WAL", f"run: pip install 'apsw>={wanted}.0'"
        )
    return Finding("sqlite", "ok", version)


def check_workers(system: Portable) -> Finding:
    """Workers can run on this system."""
    if system.worker_problem is not None:
        return Finding("workers", "warning", "none can run on this system", system.worker_problem)
    return Finding("workers", "ok", f"the implementation for {system.name} systems")


def check_runner(settings: Settings, native: Path | None) -> Finding:
    """Which runner serves the built-in job types."""
    execution_binary = settings.execution_binary
    if execution_binary is not None:
        if os.access(execution_binary, os.X_OK):
            return Finding("runner", "ok", f"EXECUTION_BINARY: {execution_binary}, one process per job")
        fix = "make it executable, or unset EXECUTION_BINARY"
        return Finding("runner", "broken", f"{execution_binary} cannot be executed", fix)
    if settings.native_runner == "off":
        return Finding("runner", "ok", "Python, since STOKER_NATIVE_RUNNER is off")
    if native is not None:
        return Finding("runner", "ok", f"native: {native}")
    detail = "Python stands in for the native runner, which was not built"
    return Finding("runner", "warning", detail, "install a C++17 compiler, then install Stoker again")


def check_settings(environ: Mapping[str, str]) -> tuple[Settings | None, list[Finding]]:
    """The settings are valid, and none is misspelt."""
    try:
        settings = load(environ)
    except SettingsError as error:
        fix = "correct the variable; docs/reference/settings.md lists all"
        return None, [Finding("settings", "broken", problem, fix) for problem in error.problems]
    if settings.warnings:
        fix = "rename or remove the variable"
        return settings, [Finding("settings", "warning", warning, fix) for warning in settings.warnings]
    return settings, [Finding("settings", "ok", f"{len(settings.sources)} set, the others at their defaults")]


def check_data_folder(database: Path) -> Iterator[Finding]:
    """The folder of the database can be written, and has room."""
    folder = existing_parent(database.parent)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        fix = f"make {folder} writable, or set STOKER_DATABASE_URL to a place that is"
        yield Finding("data folder", "broken", f"{folder}: {error.strerror}", fix)
        return
    yield Finding("data folder", "ok", f"{folder} is writable")
    yield judge_space(folder, shutil.disk_usage(folder).free)


def check_database_file(database: Path) -> Iterator[Finding]:
    """The log of a coordinator that was killed is beside its database."""
    from stoker.domain.errors import StoreUnavailable
    from stoker.store.sqlite import open_marker

    try:
        open_marker.check(database.resolve())
    except (StoreUnavailable, OSError) as error:
        fix = "put the missing file back, or accept the loss as it is said here"
        yield Finding("database file", "broken", str(error), fix)


def existing_parent(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists; the rest will be made on first start."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def judge_space(folder: Path, free_bytes: int) -> Finding:
    """Whether the room left is enough."""
    detail = f"{free_bytes / 1024**3:.1f} GiB free in {folder}"
    fix = "free some space, shorten STOKER_RETENTION_COMPLETED_SEC, or move STOKER_DATABASE_URL"
    if free_bytes < DISK_BROKEN_BYTES:
        return Finding("disk space", "broken", detail, fix)
    if free_bytes < DISK_WARNING_BYTES:
        return Finding("disk space", "warning", detail, fix)
    return Finding("disk space", "ok", detail)


def check_coordinator(environ: Mapping[str, str], url: str | None, token: str | None) -> Iterator[Finding]:
    """A coordinator answers, is ready, and agrees with us about the time."""
    import httpx

    try:
        target = client_target(environ, url, token)
    except SettingsError as error:
        yield Finding("coordinator", "broken", str(error), "correct the address")
        return
    headers = {"Authorization": f"Bearer {target.token}"} if target.token else {}
    try:
        with httpx.Client(base_url=target.url, headers=headers, timeout=_ASK_TIMEOUT_SECONDS) as client:
            health = client.get("/health")
            now = datetime.now(UTC)
            ready = client.get("/ready")
            allowed = client.get("/stats")
    except httpx.HTTPError as error:
        fix = "start one with `stoker up`, or point STOKER_API_URL at one that runs"
        yield Finding("coordinator", "broken", f"{target.url}: {error}", fix)
        return
    yield judge_health(target.url, health.status_code)
    yield judge_ready(ready.status_code, ready.content)
    yield judge_access(allowed.status_code)
    yield judge_clock(health.headers.get("Date"), now)


def judge_health(url: str, status: int) -> Finding:
    """Whether what answered is alive."""
    if status != 200:
        fix = "is that Stoker? check STOKER_API_URL, and the coordinator's log"
        return Finding("coordinator", "broken", f"{url}/health answered {status}", fix)
    return Finding("coordinator", "ok", f"{url} is up")


class _Ready(msgspec.Struct):
    reasons: list[str] = []


def judge_ready(status: int, body: bytes) -> Finding:
    """Whether jobs would run."""
    if status == 200:
        return Finding("ready", "ok", "jobs can be stored and a worker is registered")
    try:
        reasons = msgspec.json.decode(body, type=_Ready).reasons
    except (msgspec.DecodeError, UnicodeDecodeError):
        reasons = []
    detail = "; ".join(reasons) or f"/ready answered {status}"
    return Finding(
        "ready", "broken", detail, "start a worker with `stoker worker`, or read the coordinator's log"
    )


def judge_access(status: int) -> Finding:
    """Whether our token lets us in."""
    if status in {401, 403}:
        return Finding(
            "token", "broken", f"/stats answered {status}", "set STOKER_TOKEN to the server's token"
        )
    return Finding("token", "ok", "calls are let in")


def judge_clock(date: str | None, now: datetime) -> Finding:
    """Whether this machine and the coordinator agree about the time. `Date` has whole seconds only."""
    if date is None:
        return Finding(
            "clock", "warning", "the coordinator does not say its time", "check what answers there"
        )
    try:
        theirs = email.utils.parsedate_to_datetime(date)
    except ValueError:
        return Finding("clock", "warning", f"cannot read the date {date!r}", "check what answers there")
    skew = abs((now - theirs).total_seconds())
    if skew > SKEW_WARNING_SECONDS:
        fix = "let NTP set the clocks of both machines; `--run-at` and logs will be off until then"
        return Finding("clock", "warning", f"{skew:.0f} s apart from the coordinator", fix)
    return Finding("clock", "ok", "agrees with the coordinator")


def examine_here(url: str | None, token: str | None) -> list[Finding]:
    """All findings, for this process's environment."""
    return examine(os.environ, url, token)
