"""A whole Stoker for a test: real processes on loopback, in a folder of their own, and nothing of them left afterwards.

Every process is started with a mark in its environment, which its children and theirs inherit. So a test can ask what
is still alive, whoever started it and whatever session it moved to, and the end of a `System` can end exactly that.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import httpx

STOKER: Final = Path(sys.executable).with_name("stoker")
APP: Final = "jobs_app:app"
"""The tasks of `jobs_app.py`, which stands in every system's folder."""
MARK: Final = "E2E_SYSTEM"
JOURNAL: Final = "E2E_JOURNAL"
POLL_SECONDS: Final = 0.03
FINAL: Final = frozenset({"completed", "failed", "cancelled"})

Job = dict[str, Any]
T = TypeVar("T")


def eventually(
    check: Callable[[], T | None], within: float = 15.0, otherwise: str | Callable[[], str] = ""
) -> T:
    """The first true answer of `check`; fails the test when there is none in time."""
    deadline = time.monotonic() + within
    while not (answer := check()):
        if time.monotonic() > deadline:
            reason = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(
                f"not true within {within:g} s: {reason or check!r} (last answer: {answer!r})"
            )
        time.sleep(POLL_SECONDS)
    return answer


def throughout(check: Callable[[], bool], seconds: float, otherwise: str = "") -> None:
    """Fails the test when `check` is ever false during this time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert check(), otherwise or "did not stay true"
        time.sleep(POLL_SECONDS)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_alive(pid: int) -> bool:
    """Whether the process runs; a dead one that nobody has waited for does not."""
    return _stat(pid) is not None


def descendants(pid: int) -> set[int]:
    """Children, their children and so on."""
    parents = {child: stat[1] for child in _pids() if (stat := _stat(child)) is not None}
    found: set[int] = set()
    new = {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no memory")


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _stat(pid: int) -> tuple[str, int] | None:
    """State and parent, or None for a process that is gone or a zombie."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    return None if fields[0] in "ZX" else (fields[0], int(fields[1]))


class Program:
    """One process that a test started, and what it wrote."""

    def __init__(self, argv: Iterable[object], *, folder: Path, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [str(part) for part in argv],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        lines = (line for line in self.output.splitlines() if f'"{name}"' in line)
        return [event for event in map(_json_or_nothing, lines) if event.get("event") == name]

    def signal(self, number: int) -> None:
        """To this one process, not to what it started."""
        self._process.send_signal(number)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and see it gone."""
        self._process.kill()
        self._process.wait()

    def exit_code(self, within: float = 15.0) -> int:
        """Wait for its end."""
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within:g} s:\n{self.output[-4000:]}") from None


def _json_or_nothing(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class Worker(Program):
    """A `stoker worker` and the name it goes by."""

    def __init__(
        self, name: str, argv: Iterable[object], *, folder: Path, env: Mapping[str, str], log: Path
    ) -> None:
        super().__init__(argv, folder=folder, env=env, log=log)
        self.name = name


class Server(Program):
    """A coordinator and a client for its API."""

    def __init__(
        self,
        argv: Iterable[object],
        *,
        port: int,
        folder: Path,
        env: Mapping[str, str],
        log: Path,
        token: str | None = None,
    ) -> None:
        super().__init__(argv, folder=folder, env=env, log=log)
        self.env = env
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def close(self) -> None:
        self.http.close()

    def answers(self, path: str = "/health") -> bool:
        if not self.running:
            raise AssertionError(f"the server ended by itself:\n{self.output[-4000:]}")
        try:
            return self.http.get(path).status_code == 200
        except httpx.TransportError:
            return False

    # What tests say most often.

    def get(self, path: str, **params: Any) -> Any:
        return _good(self.http.get(path, params=params))

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return _good(self.http.post(path, json=body, headers=headers))

    def submit(self, type: str = "echo", payload: Any = None, **fields: Any) -> Job:
        job: Job = self.post("/jobs", {"type": type, "payload": payload, **fields})
        return job

    def job(self, id: str) -> Job:
        job: Job = self.get(f"/jobs/{id}")
        return job

    def status(self, id: str) -> str:
        return str(self.job(id)["status"])

    def ended(self, id: str, within: float = 20.0) -> Job:
        """The job once it is final."""
        deadline = time.monotonic() + within
        while True:
            left = max(0.0, deadline - time.monotonic())
            job: Job = self.get(f"/jobs/{id}", wait=round(left, 3)) if left else self.job(id)
            if job["status"] in FINAL:
                return job
            assert left, f"not final within {within:g} s: {job}\n{self.output[-4000:]}"

    def until(self, id: str, status: str, within: float = 15.0) -> Job:
        """The job once it has this status."""
        return eventually(
            lambda: job if (job := self.job(id))["status"] == status else None,
            within,
            lambda: f"job {id} to be {status}, but it is {self.job(id)}",
        )

    def started(self, id: str, within: float = 15.0) -> Job:
        """The job once its worker has said that it started."""
        return eventually(
            lambda: job if (job := self.job(id))["started_at"] is not None else None,
            within,
            lambda: f"job {id} to start, but it is {self.job(id)}",
        )

    def jobs(self, **filters: Any) -> Iterator[Job]:
        """All jobs, page by page."""
        cursor: str | None = None
        while True:
            params = {"limit": 1000, **filters} | ({"cursor": cursor} if cursor else {})
            page = self.get("/jobs", **params)
            yield from page["jobs"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def live_workers(self) -> list[dict[str, Any]]:
        return [worker for worker in self.get("/workers")["workers"] if worker["status"] == "live"]


def _good(response: httpx.Response) -> Any:
    assert response.is_success, (
        f"{response.request.method} {response.url} → {response.status_code} {response.text}"
    )
    return response.json()


# ── the system ───────────────────────────────────────────────────────────────────────────────────────────────────────


class System:
    """A folder, the processes that a test starts in it, and their end."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.folder = folder
        self.database = database or f"sqlite:///{folder / 'stoker.db'}"
        self.mark = uuid.uuid4().hex
        self.journal = Journal(folder / "journal.txt")
        self._programs: list[Program] = []
        self._logs = 0
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).with_name("jobs_app.py"), folder / "jobs_app.py")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def environ(self, settings: Mapping[str, object]) -> dict[str, str]:
        """This process's environment without any Stoker settings, and with those given."""
        kept = {
            name: os.environ[name]
            for name in ("PATH", "PYTHONPATH", "HOME", "LANG", "TMPDIR", "STOKER_PORTABLE")
            if name in os.environ
        }
        marks = {MARK: self.mark, JOURNAL: str(self.journal.path), "PYTHONUNBUFFERED": "1"}
        return kept | marks | {name: str(value) for name, value in settings.items()}

    def serve(
        self,
        *args: object,
        port: int | None = None,
        token: str | None = None,
        into: str | None = None,
        database: bool = True,
        **settings: object,
    ) -> Server:
        """A coordinator that answers; `into` is where a shell sends what it writes. Without `database` only settings say
        where jobs are kept."""
        port = port or free_port()
        place = ["--database", self.database] if database else []
        argv = [*_shell(into), STOKER, "serve", "--port", port, *place, *args]
        if token is not None:
            settings["STOKER_TOKEN"] = token
        return self._server(argv, port, token, settings)

    def up(
        self, *args: object, token: str | None = None, into: str | None = None, **settings: object
    ) -> Server:
        """The whole system from one command."""
        port = free_port()
        argv = [*_shell(into), STOKER, "up", "--port", port, "--database", self.database, *args]
        if token is not None:
            settings["STOKER_TOKEN"] = token
        server = self._server(argv, port, token, settings)
        eventually(lambda: server.answers("/ready"), 30, lambda: f"`up` to be ready:\n{server.output}")
        return server

    def _server(
        self, argv: list[object], port: int, token: str | None, settings: dict[str, object]
    ) -> Server:
        server = Server(
            argv,
            port=port,
            folder=self.folder,
            env=self.environ(settings),
            log=self._log("server"),
            token=token,
        )
        self._programs.append(server)
        eventually(server.answers, 30, lambda: f"the server to answer:\n{server.output}")
        return server

    def worker(
        self,
        server: Server,
        *args: object,
        name: str = "",
        threads: int = 1,
        urls: Iterable[str] = (),
        app: str | None = APP,
        into: str | None = None,
        **settings: object,
    ) -> Worker:
        """A worker that has registered."""
        worker = self.start_worker(
            server, *args, name=name, threads=threads, urls=urls, app=app, into=into, **settings
        )
        self._registered(server, [worker])
        return worker

    def pair(self, server: Server, *args: object, **options: Any) -> tuple[Worker, Worker]:
        """Two equal workers, started side by side."""
        first, second = (self.start_worker(server, *args, **options) for _ in range(2))
        self._registered(server, [first, second])
        return first, second

    def _registered(self, server: Server, workers: list[Worker]) -> None:
        def check() -> bool:
            for worker in workers:
                assert worker.running, f"the worker ended by itself:\n{worker.output}"
            return {worker.pid for worker in workers} <= {row["pid"] for row in server.live_workers()}

        eventually(check, 30, lambda: f"workers to register:\n{workers[0].output}")

    def start_worker(
        self,
        server: Server,
        *args: object,
        name: str = "",
        threads: int = 1,
        urls: Iterable[str] = (),
        app: str | None = APP,
        into: str | None = None,
        **settings: object,
    ) -> Worker:
        """A worker process, whatever becomes of it."""
        name = name or f"worker-{uuid.uuid4().hex[:8]}"
        argv: list[object] = [*_shell(into), STOKER, "worker", "--name", name, "--threads", threads]
        for url in urls or (server.url,):
            argv += ["--url", url]
        if app is not None:
            argv += ["--app", app]
        worker = Worker(
            name, [*argv, *args], folder=self.folder, env=self.environ(settings), log=self._log("worker")
        )
        self._programs.append(worker)
        return worker

    def start(self, *args: object, **settings: object) -> Program:
        """Any `stoker` command, left running."""
        program = Program(
            [STOKER, *args], folder=self.folder, env=self.environ(settings), log=self._log("program")
        )
        self._programs.append(program)
        return program

    def run(self, *args: object, **settings: object) -> subprocess.CompletedProcess[str]:
        """Any `stoker` command, to its end."""
        return subprocess.run(
            [str(part) for part in (STOKER, *args)],
            cwd=self.folder,
            env=self.environ(settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def processes(self) -> set[int]:
        """Every living process that descends from this system."""
        entry = f"{MARK}={self.mark}".encode()
        found = set()
        for pid in _pids():
            with contextlib.suppress(OSError):
                if entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and is_alive(pid):
                    found.add(pid)
        return found

    def close(self) -> None:
        for program in self._programs:
            program.kill()
            if isinstance(program, Server):
                program.close()
        eventually(self._sweep, 10, "all processes of the test to be gone")

    def _sweep(self) -> bool:
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def _log(self, kind: str) -> Path:
        self._logs += 1
        return self.folder / f"{self._logs:02}-{kind}.log"


def _shell(into: str | None) -> list[object]:
    """Before a command: its output goes where these words of a shell say, and the process is still the command's own."""
    return [] if into is None else ["bash", "-c", f'exec "$@" {into}', "bash"]


class Journal:
    """What the jobs themselves wrote down: a record that owes nothing to the system under test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, event: str | None = None) -> list[list[str]]:
        """Entries as lists of words, in the order in which they were written; those of one event if asked."""
        if not self.path.exists():
            return []
        entries = [line.split() for line in self.path.read_text(encoding="utf-8").splitlines()]
        return [entry for entry in entries if event is None or entry[0] == event]

    def of(self, tag: str, event: str | None = None) -> list[list[str]]:
        """Entries whose second word is `tag`."""
        return [entry for entry in self.lines(event) if entry[1] == tag]

    def pids(self, tag: str, event: str) -> list[int]:
        """The process ids, third word, of such entries."""
        return [int(entry[2]) for entry in self.of(tag, event)]


# ── raw HTTP, for what a polite client would not send ────────────────────────────────────────────────────────────────


def send_raw(
    server: Server, body: bytes, path: str = "/jobs", content_type: str = "application/json"
) -> tuple[int, dict[str, Any]]:
    """POST these bytes as they are; the status and the document that came back."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": content_type})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
