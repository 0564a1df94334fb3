"""Three coordinators, four workers, one PostgreSQL, Redis: it does not matter whom one asks, nor who of them dies.

The jobs write down themselves when they ran, triggers in the database write down every change, and the checkers of
`tests/checkers` judge both. `make cluster` runs the same with 20,000 jobs and a thousand lost commits.
"""

import functools
import os
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from stoker.ids import new_id
from tests.chaos.books import Kept, PostgresBooks
from tests.chaos.clients import Crowd, never
from tests.chaos.clocks import Clock, library
from tests.chaos.fleet import HEARTBEAT_TIMEOUT_SEC, Fleet
from tests.checkers.history import Death, Fault, History, Rules
from tests.checkers.invariants import INVARIANTS, check
from tests.e2e.system import FINAL, Job, Server, Worker, eventually, free_port, is_alive
from tests.support.pooler import Pooler
from tests.support.proxy import Proxy
from tests.support.servers import Postgres, Redis, postgres, redis

JOBS: Final = int(os.environ.get("CLUSTER_JOBS", "1200"))
LOST_COMMITS: Final = int(os.environ.get("CLUSTER_LOST_COMMITS", "40"))
PATIENCE: Final = 60 + JOBS / 40
RULES: Final = Rules(lease=HEARTBEAT_TIMEOUT_SEC, backoff_base=1.0)

WHOLE: Final = bool(os.environ.get("CLUSTER_JOBS"))

pytestmark = [
    pytest.mark.timeout(120 + 6 * PATIENCE),
    pytest.mark.slow,
    pytest.mark.skipif(not WHOLE, reason="takes minutes: make cluster"),
]


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    """A server of this module's own, since it is killed. It syncs as it does for anybody."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="module")
def fast_layer() -> Iterator[Redis]:
    with redis() as server:
        yield server


class Cluster(Fleet):
    """A fleet and the servers that it stands on."""

    def __init__(self, folder: Path, database: Postgres, redis: Redis | None, **options: Any) -> None:
        self.name = f"cluster_{new_id()[-12:]}"
        self.postgres = database
        self.redis = redis
        settings: dict[str, Any] = {"REDIS_URL": redis.url} if redis is not None else {}
        self.books = PostgresBooks(database.create_database(self.name))
        super().__init__(folder, options.pop("url", database.url_of(self.name)), **settings, **options)

    @property
    def trio(self) -> list[Server]:
        return self.coordinators

    @contextmanager
    def hand(self, *coordinators: int, **options: Any) -> Iterator[tuple[Worker, str]]:
        """A worker that knows only these coordinators, and the queue that it alone serves."""
        queue = f"q-{new_id()[-12:]}"
        urls = [self.urls[index] for index in coordinators]
        worker = self.begin_worker(f"hand-{queue}", urls, "--queues", queue, **options)
        self.wait_for([worker])
        try:
            yield worker, queue
        finally:
            worker.kill()

    def history(self, crowd: Crowd, **more: Any) -> History:
        kept = self.books.read()
        sent = crowd.markers
        mine = {job.id for job in kept.jobs if job.marker in sent}
        return History(
            rules=RULES,
            ops=crowd.ops,
            effects=[effect for effect in self.effects() if effect.job in mine],
            journal=[change for change in kept.journal if change.job in mine],
            jobs=[job for job in kept.jobs if job.id in mine],
            attempts=[attempt for attempt in kept.attempts if attempt.job in mine],
            ended=time.monotonic(),
            **more,
        )

    def kept(self) -> Kept:
        return self.books.read()


@pytest.fixture(scope="module")
def cluster(
    database: Postgres, fast_layer: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), database, fast_layer) as cluster:
        cluster.start_all(workers=4)
        cluster.books.watch()
        yield cluster


@pytest.fixture(scope="module")
def without_redis(database: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("notify"), database, None) as cluster:
        cluster.start_all(workers=0)
        yield cluster


# ── all jobs, once ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_submitted_to_all_coordinators_run_exactly_once_each(cluster: Cluster) -> None:
    crowd = Crowd(cluster.ports, JOBS, name="calm-")
    crowd.join(PATIENCE)
    assert crowd.failures == []
    cluster.until_all_is_final(PATIENCE)
    history = cluster.history(crowd, quiet_from=0.0)
    assert check(history) == []
    assert Counter(job.status for job in history.jobs) == {"completed": JOBS}
    assert {job.marker: job.id for job in history.jobs} == crowd.ids
    starts = Counter(effect.job for effect in history.effects if effect.what == "start")
    assert starts.keys() == set(crowd.ids.values())
    assert max(starts.values()) == 1, "nobody died, so nothing had to run again"
    outcomes = Counter(change.job for change in history.journal if change.new in FINAL)
    assert max(outcomes.values()) == 1
    workers = {effect.worker for effect in history.effects}
    assert workers == {"w0", "w1", "w2", "w3"}, "all of them had a share"


def test_a_key_that_several_coordinators_get_at_once_makes_one_job(cluster: Cluster) -> None:
    """Batches that overlap: some of the keys of each transaction are new, and some are being taken elsewhere."""
    for round in range(8):
        keys = [f"shared-{round}-{number}" for number in range(60)]
        batches = [keys[:40], keys[20:], keys[40:] + keys[:20]]
        bodies = [{"jobs": [{"payload": key, "idempotency_key": key} for key in batch]} for batch in batches]
        with ThreadPoolExecutor(3) as together:
            answers = list(together.map(lambda s, b: s.post("/jobs/batch", b), cluster.trio, bodies))
        pairs = zip(batches, answers, strict=True)
        found = {(key, job["id"]) for batch, a in pairs for key, job in zip(batch, a["jobs"], strict=True)}
        assert Counter(key for key, _ in found) == dict.fromkeys(keys, 1)
    cluster.until_all_is_final(PATIENCE)


# ── who waits, cancels, drains and follows elsewhere ───────────────────────────────────────────────────────────────


@pytest.fixture(params=["redis", "notify", "cut off"])
def news(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster whose coordinators tell each other notifications over Redis, over NOTIFY, or not at all."""
    if request.param == "notify":
        yield request.getfixturevalue("without_redis")
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    if request.param == "redis":
        yield cluster
        return
    assert cluster.redis is not None
    cluster.redis.kill()
    yield cluster
    cluster.redis.start()


def test_a_job_of_one_coordinator_on_a_worker_of_another_is_cancelled_through_a_third(news: Cluster) -> None:
    a, b, c = news.trio
    with news.hand(1) as (worker, queue):
        job = a.submit("talk", {"marker": queue, "seconds": 60}, queue=queue)
        with a.http.stream("GET", f"/jobs/{job['id']}/logs", params={"follow": 1}) as follower:
            lines = follower.iter_lines()
            for number in range(3):
                assert next(lines) == f"{queue} line {number}", "its log is followed live on A"
            c.post(f"/jobs/{job['id']}/cancel")
            asked = time.monotonic()
            ended = a.ended(job["id"], within=6)
            assert ended["status"] == "cancelled"
            assert time.monotonic() - asked < 3
            assert all(line.startswith(queue) for line in lines), "and comes to its end"
        (start,) = [effect for effect in news.effects() if effect.job == job["id"]]
        eventually(lambda: not is_alive(int(start.run)), 2, "the job's process to be gone")
        assert worker.running
        assert {server.status(job["id"]) for server in (a, b, c)} == {"cancelled"}


def test_a_wait_and_a_drain_reach_across_coordinators(news: Cluster) -> None:
    """The worker is on B, the job comes through A, and C is asked to wait for it and then to drain the worker."""
    a, _, c = news.trio
    with news.hand(1) as (worker, queue):
        job = a.submit("mark", {"marker": queue, "seconds": 0.8}, queue=queue)
        ended = c.get(f"/jobs/{job['id']}", wait=20)
        heard = time.monotonic()
        assert (ended["status"], ended["result"]) == ("completed", f"{queue} by claim 1")
        (end,) = [e for e in news.effects() if (e.job, e.what) == (job["id"], "end")]
        assert heard - end.at < 5, "a look every second stands behind the news"

        running = a.submit("mark", {"marker": queue, "seconds": 1.5}, queue=queue)
        a.started(running["id"])
        behind = a.submit("mark", {"marker": "behind"}, queue=queue)
        c.post(f"/workers/{worker.name}/drain")
        assert worker.exit_code(within=20) == 0
        ended = c.ended(running["id"])
        assert (ended["status"], ended["attempt"], ended["claim_id"]) == ("completed", 1, 1)
        assert a.status(behind["id"]) == "queued"
        a.post(f"/jobs/{behind['id']}/cancel")


def test_one_wait_for_many_jobs_hears_of_ends_at_other_coordinators(news: Cluster) -> None:
    """The worker is on B, the jobs come through A, and C is asked to wait for all of them."""
    a, _, c = news.trio
    with news.hand(1) as (_, queue):
        ids = [
            a.submit("mark", {"marker": f"{queue} {n}", "seconds": 0.2}, queue=queue)["id"] for n in range(4)
        ]
        left, ended = set(ids), []
        while left:
            answer = c.post("/jobs/wait", {"ids": sorted(left), "timeout_sec": 20})
            assert answer["jobs"], "it is held until something has ended"
            assert answer["pending"] == len(left) - len(answer["jobs"])
            ended += answer["jobs"]
            left -= {job["id"] for job in answer["jobs"]}
        assert {job["status"] for job in ended} == {"completed"}
        assert all(len(job["attempts"]) == 1 for job in ended)
        assert [job["result"] for job in ended] == [c.job(job["id"])["result"] for job in ended]


def test_a_worker_whose_coordinator_dies_goes_to_another_and_its_job_is_not_run_twice(
    cluster: Cluster,
) -> None:
    with cluster.hand(0, 2) as (worker, queue):
        c = cluster.trio[2]
        job = c.submit("mark", {"marker": queue, "seconds": 2.0}, queue=queue)
        c.started(job["id"])
        assert worker.events("connected")[-1]["url"].startswith(f"ws://127.0.0.1:{cluster.ports[0]}/")
        cluster.trio[0].kill()
        ended = c.ended(job["id"])
        assert (ended["status"], ended["attempt"], ended["claim_id"]) == ("completed", 1, 1)
        assert len([e for e in cluster.effects() if (e.job, e.what) == (job["id"], "start")]) == 1
        assert worker.events("connected")[-1]["url"].startswith(f"ws://127.0.0.1:{cluster.ports[2]}/")
        cluster.restart_coordinator(0)


def test_a_plain_http_worker_may_ask_another_coordinator_each_time(cluster: Cluster) -> None:
    """As it will behind a load balancer that goes round robin."""
    queue = f"q-{new_id()[-12:]}"
    a, b, c = cluster.trio
    jobs = [a.submit("weld", {"n": n}, queue=queue)["id"] for n in range(9)]
    hello = {"name": f"http-{queue}", "threads": 1, "types": ["weld"], "queues": [queue]}
    worker: str = b.post("/workers", hello)["id"]
    turn = iter([c, a, b] * 40)
    done: list[str] = []
    while len(done) < len(jobs):
        leased: list[Job] = next(turn).post(f"/workers/{worker}/lease?wait=5")["jobs"]
        for job in leased:
            held = [{"id": job["id"], "claim_id": job["claim_id"]}]
            orders = next(turn).post(f"/workers/{worker}/heartbeat", {"held": held})
            assert orders == {"cancel": [], "revoked": [], "drain": False}
            report = {**held[0], "outcome": "completed", "result": job["payload"]["n"]}
            receipt = next(turn).post(f"/workers/{worker}/report", {"reports": [report]})
            assert receipt["stale"] == []
            done.append(job["id"])
    assert done == jobs, "in order, each of them once"
    for number, id in enumerate(jobs):
        job = next(turn).job(id)
        assert (job["status"], job["result"], job["claim_id"]) == ("completed", number, 1)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_coordinator_whose_clock_is_wrong_delays_jobs_by_the_clock_of_the_store(
    without_redis: Cluster, hours: int
) -> None:
    if library() is None:
        pytest.skip("setting the clock of a process takes a C compiler")
    clock = Clock(without_redis.folder / f"clock{hours}")
    clock.set(hours * 3600)
    settings: dict[str, Any] = {**without_redis.settings, **clock.environment}
    wrong = without_redis.serve(**settings)
    with without_redis.hand(0) as (_, queue):
        began = time.monotonic()
        job = wrong.submit("mark", {"marker": queue}, queue=queue, delay_sec=1.5)
        assert wrong.ended(job["id"], within=20)["status"] == "completed"
        (start,) = [e for e in without_redis.effects() if (e.job, e.what) == (job["id"], "start")]
        assert start.at - began > 1.4
    wrong.kill()


# ── Redis is not needed ────────────────────────────────────────────────────────────────────────────────────────────


def test_flushing_and_killing_redis_under_load_fails_no_request_and_gives_no_stale_read(
    cluster: Cluster,
) -> None:
    assert cluster.redis is not None
    dead = [_dead_letter(cluster.trio[index % 3], f"dead-{index}") for index in range(6)]
    crowd = Crowd(cluster.ports, 50_000, clients=3, per_second=150, name="flushed-")
    stop = threading.Event()
    readers = [Replays(server, dead[index::3], stop) for index, server in enumerate(cluster.trio)]
    try:
        for round in range(6):
            _until_more(lambda: sum(reader.replays for reader in readers), 8)
            if round % 2:
                cluster.redis.kill()
                _until_more(lambda: sum(reader.replays for reader in readers), 8)
                cluster.redis.start()
            else:
                for _ in range(20):
                    cluster.redis.command("FLUSHALL")
    finally:
        stop.set()
        crowd.stop()
        for reader in readers:
            reader.join()
    crowd.join()
    assert crowd.failures == []
    assert [failure for reader in readers for failure in reader.failures] == []
    assert all(reader.replays >= 5 for reader in readers), "this run proves nothing"
    cluster.until_all_is_final(PATIENCE)
    assert len(crowd.ids) >= 100


def _dead_letter(server: Server, marker: str) -> str:
    job = server.submit("mark", {"marker": marker, "fails": 1000}, max_attempts=1)
    assert server.ended(job["id"])["status"] == "failed"
    return str(job["id"])


def _until_more(count: Callable[[], int], more: int) -> None:
    target = count() + more
    eventually(lambda: count() >= target, 30, "replays to go on")


class Replays(threading.Thread):
    """Replays dead letters through one coordinator, and reads each there right afterwards: it must not be as before."""

    def __init__(self, server: Server, ids: list[str], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._http = httpx.Client(base_url=server.url, timeout=20)
        self._ids = ids
        self._stop_asked = stop
        self.replays = 0
        self.failures: list[str] = []
        self.start()

    def run(self) -> None:
        with self._http:
            while not self._stop_asked.is_set():
                for id in self._ids:
                    self._replay(id)

    def _replay(self, id: str) -> None:
        before = self._read(id, wait=10)
        if before.get("status") != "failed":
            return
        self._read(id)  # so that the cache may have it
        if not self._good(self._http.post(f"/jobs/{id}/retry")):
            return
        after = self._read(id)
        self.replays += 1
        if after.get("status") == "failed" and after["claim_id"] <= before["claim_id"]:
            self.failures.append(f"stale read: claim {after['claim_id']} of {id} was replayed before")

    def _read(self, id: str, **params: Any) -> dict[str, Any]:
        answer = self._http.get(f"/jobs/{id}", params=params)
        document: dict[str, Any] = answer.json()
        return document if self._good(answer) else {}

    def _good(self, answer: httpx.Response) -> bool:
        if answer.is_success:
            return True
        self.failures.append(f"{answer.request.method} {answer.url}: {answer.status_code} {answer.text}")
        return False


# ── everybody dies in turn ─────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_lost_or_ended_twice_while_each_process_is_killed_in_turn(cluster: Cluster) -> None:
    """Jobs may run more than once, and only because their worker or its lease was lost."""
    assert cluster.redis is not None
    crowd = Crowd(cluster.ports, JOBS, per_second=JOBS / 30, spec=_now_and_then_slow, name="turn-")
    faults: list[Fault] = []
    deaths: list[tuple[int, float]] = []

    def out(who: str, kill: Callable[[], None], start: Callable[[], object]) -> None:
        begins = time.monotonic()
        kill()
        goes_on()
        start()
        faults.append(Fault("kill", who, begins, time.monotonic()))
        goes_on()

    def goes_on() -> None:
        """Load before and after every fault, unless the machine was so slow that all is submitted already."""
        target = len(crowd.ops) + 10
        eventually(lambda: crowd.done or len(crowd.ops) >= target, 30, "the load to go on")

    for index in range(3):
        out(f"c{index}", cluster.trio[index].kill, functools.partial(cluster.restart_coordinator, index))
    for index in range(4):
        deaths.append((cluster.workers[index].pid, time.monotonic()))
        out(f"w{index}", cluster.workers[index].kill, functools.partial(cluster.restart_worker, index))
    out("redis", cluster.redis.kill, cluster.redis.start)
    begins = time.monotonic()
    cluster.postgres.kill()
    time.sleep(0.5)  # requests that come now wait
    cluster.postgres.start()
    faults.append(Fault("kill", "*", begins, time.monotonic()))

    crowd.join(PATIENCE)
    quiet_from = time.monotonic()
    cluster.wait_for(cluster.workers)
    cluster.until_all_is_final(PATIENCE)
    sessions = cluster.kept().sessions
    history = cluster.history(
        crowd,
        faults=faults,
        quiet_from=quiet_from,
        deaths=[Death(sessions[pid], at) for pid, at in deaths if pid in sessions],
    )
    assert _violations(history, without="overlap_only_inside_a_pause") == []
    assert {job.marker: job.id for job in history.jobs} == crowd.ids
    assert Counter(job.status for job in history.jobs) == {"completed": JOBS}
    outcomes = Counter(change.job for change in history.journal if change.new in FINAL)
    assert set(outcomes.values()) == {1}
    assert crowd.failures, "the kills hit nobody: this run proves nothing"
    starts = Counter(effect.job for effect in history.effects if effect.what == "start")
    assert max(starts.values()) > 1, "no job was running where somebody died: this run proves nothing"


def _now_and_then_slow(number: int) -> dict[str, Any]:
    """So that some are running whenever a worker dies."""
    return {"type": "mark", "payload": {"seconds": 1.0} if number % 25 == 0 else {}}


def _violations(history: History, without: str) -> list[Any]:
    """All but one invariant: when a killed process ended, nothing here says (the chaos runs watch that)."""
    assert without in INVARIANTS
    return [violation for violation in check(history) if violation.invariant != without]


# ── between here and PostgreSQL ────────────────────────────────────────────────────────────────────────────────────


def test_connections_lost_between_a_commit_and_its_answer_lose_and_double_nothing(
    database: Postgres, tmp_path: Path
) -> None:
    """Without idempotency keys: it is the coordinators that have to know what they have stored."""
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(database.port))
        cluster = stack.enter_context(_behind(database, tmp_path, proxy.port))
        cluster.start_all(workers=1)
        cluster.books.watch()
        proxy.cut_every = 7
        crowd = Crowd(cluster.ports, 1_000_000, clients=4, keys=never, name="commit-")
        eventually(
            lambda: sum(proxy.cuts.values()) >= LOST_COMMITS, 60 + LOST_COMMITS, lambda: str(proxy.cuts)
        )
        crowd.stop()
        crowd.join(PATIENCE)
        proxy.cut_every = 0
        assert crowd.failures == [], "a lost connection is a delay, not an error"
        cluster.until_all_is_final(PATIENCE)
        history = cluster.history(crowd, quiet_from=0.0)
        assert check(history) == []
        assert {job.marker: job.id for job in history.jobs} == crowd.ids
        assert len(history.jobs) == len(crowd.ids), "no job is stored twice under two ids"
        starts = Counter(effect.job for effect in history.effects if effect.what == "start")
        assert set(starts.values()) == {1}
        assert min(proxy.cuts.values()) > LOST_COMMITS // 10


@pytest.mark.parametrize("kind", ["ours", "pgbouncer"])
def test_a_pooler_in_transaction_mode_may_stand_in_between(
    kind: str, database: Postgres, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(POOLERS[kind](database.port, tmp_path))
        cluster = stack.enter_context(_behind(database, tmp_path / "system", port))
        cluster.start_all(workers=1)
        cluster.books.watch()
        crowd = Crowd(cluster.ports, 200, name="pooled-")
        crowd.join(PATIENCE)
        assert crowd.failures == []
        cluster.until_all_is_final(PATIENCE)
        history = cluster.history(crowd, quiet_from=0.0)
        assert check(history) == []
        assert Counter(job.status for job in history.jobs) == {"completed": 200}
        a, b = cluster.coordinators
        job = b.submit("talk", {"marker": "long", "seconds": 60})
        b.started(job["id"])
        b.post(f"/jobs/{job['id']}/cancel")
        assert a.ended(job["id"], within=6)["status"] == "cancelled", (
            "news or not, it is seen within a second"
        )


def _behind(database: Postgres, folder: Path, port: int) -> Cluster:
    """Two coordinators that reach PostgreSQL by this port."""
    cluster = Cluster(folder, database, None, coordinators=2)
    cluster.database = f"postgresql://postgres@127.0.0.1:{port}/{cluster.name}"
    return cluster


@contextmanager
def _our_pooler(target: int, folder: Path) -> Iterator[int]:
    with Pooler(target) as pooler:
        yield pooler.port
        assert pooler.switches > 20, "everybody kept their connection: this run proves nothing"


@contextmanager
def _pgbouncer(target: int, folder: Path) -> Iterator[int]:
    if not WHOLE:
        pytest.skip(
            "with pgbouncer itself in `make cluster` and in CI; our own pooler does the same things to us"
        )
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed (Debian: pgbouncer)")
    port = free_port()
    place = folder / "pgbouncer"
    place.mkdir()
    (place / "users.txt").write_text('"postgres" ""\n')
    (place / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={target}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {place}/users.txt\npool_mode = transaction\ndefault_pool_size = 4\n"
    )
    place.chmod(0o755)
    # It refuses to be root; who is, names another user for it.
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([program, *user, place / "pgbouncer.ini"], stdout=log, stderr=log)
    try:
        eventually(lambda: _connects(port), 15, lambda: (place / "log").read_text())
        yield port
    finally:
        process.kill()
        process.wait()


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


POOLERS: Final = {"ours": _our_pooler, "pgbouncer": _pgbouncer}
