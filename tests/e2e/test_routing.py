"""Which worker gets which job: queues, labels, threads, names, several addresses."""

import httpx
import pytest

from stoker.api.schemas.system_views import StatsView
from stoker.ids import new_id
from tests.e2e.system import Job, Server, System, eventually, free_port, throughout


@pytest.fixture
def queue() -> str:
    return f"q-{new_id()[-12:]}"


def pid_of(server: Server, job: Job) -> int:
    """The process id of the worker that ran a job."""
    (pid,) = [row["pid"] for row in server.get("/workers")["workers"] if row["id"] == job["worker_id"]]
    return int(pid)


@pytest.fixture(scope="module")
def oversized(town: System, server: Server, crew: str) -> tuple[Job, Job]:
    """Two jobs that need more threads than the crew has, submitted before the other tests; one would rather wait."""
    degrade, wait = (
        server.submit("threads_given", {}, queue=crew, thread_demand=8, on_oversize=choice)
        for choice in ("degrade", "wait")
    )
    return degrade, wait


def test_queues_decide_who_runs_what(
    town: System, server: Server, queue: str, oversized: tuple[Job, Job]
) -> None:
    fast = town.worker(server, "--queues", f"{queue}-fast,{queue}-both")
    slow = town.worker(server, "--queues", f"{queue}-slow")
    for name, worker in ((f"{queue}-fast", fast), (f"{queue}-both", fast), (f"{queue}-slow", slow)):
        jobs = [server.submit("note", {"n": n}, queue=name) for n in range(5)]
        assert {pid_of(server, server.ended(job["id"])) for job in jobs} == {worker.pid}
    unserved = server.submit("note", {"n": 0}, queue=f"{queue}-none")
    throughout(lambda: server.status(unserved["id"]) == "queued", 0.5)
    names = {row["name"] for row in server.get("/queues")["queues"]}
    assert {f"{queue}-fast", f"{queue}-both", f"{queue}-slow", f"{queue}-none"} <= names
    fast.kill()
    slow.kill()


def test_labels_decide_who_runs_what(town: System, server: Server, queue: str) -> None:
    plain = town.worker(server, "--queues", queue)
    painted = town.worker(server, "--queues", queue, "--label", "gpu=yes", "--label", "zone=eu")
    on_gpu = [server.submit("note", {"n": n}, queue=queue, labels={"gpu": "yes"}) for n in range(5)]
    assert {pid_of(server, server.ended(job["id"])) for job in on_gpu} == {painted.pid}
    both = server.submit("note", {"n": 0}, queue=queue, labels={"gpu": "yes", "zone": "eu"})
    assert pid_of(server, server.ended(both["id"])) == painted.pid
    anywhere = [server.submit("nap", {"seconds": 0.2}, queue=queue) for _ in range(4)]
    assert {pid_of(server, server.ended(job["id"])) for job in anywhere} == {plain.pid, painted.pid}
    nowhere = server.submit("note", {"n": 0}, queue=queue, labels={"gpu": "no"})
    throughout(lambda: server.status(nowhere["id"]) == "queued", 0.5)
    plain.kill()
    painted.kill()


def test_the_sum_of_thread_demands_never_exceeds_the_threads(
    town: System, server: Server, queue: str
) -> None:
    worker = town.worker(server, "--queues", queue, threads=4)
    demands = [1, 2, 4, 3, 1, 1, 2, 1, 4, 1, 2]
    jobs = [
        server.submit("nap", {"seconds": 0.3, "tag": f"{queue}-{n}"}, queue=queue, thread_demand=demand)
        for n, demand in enumerate(demands)
    ]
    assert {server.ended(job["id"])["threads_granted"] for job in jobs} == {1, 2, 3, 4}
    moments: list[tuple[float, int]] = []
    for n, demand in enumerate(demands):
        (start,), (end,) = town.journal.of(f"{queue}-{n}", "start"), town.journal.of(f"{queue}-{n}", "end")
        moments += [(float(start[3]), demand), (float(end[3]), -demand)]
    used = most = 0
    for _, change in sorted(moments):
        used += change
        most = max(most, used)
    assert most == 4
    given = server.submit("threads_given", {}, queue=queue, thread_demand=3)
    assert server.ended(given["id"])["result"] == 3
    worker.kill()


def test_two_workers_of_one_name_both_work(town: System, server: Server, queue: str) -> None:
    twins = town.pair(server, "--queues", queue, name=queue)
    jobs = [server.submit("nap", {"seconds": 0.5, "tag": queue}, queue=queue) for _ in range(4)]
    ended = [server.ended(job["id"]) for job in jobs]
    assert {pid_of(server, job) for job in ended} == {twin.pid for twin in twins}
    assert {job["attempt"] for job in ended} == {1}
    assert server.http.post(f"/workers/{queue}/drain").status_code == 404, "which of the two?"
    for twin in twins:
        twin.kill()


def test_a_worker_with_several_addresses_uses_one_that_answers(
    town: System, server: Server, queue: str
) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    worker = town.worker(server, "--queues", queue, urls=[dead, server.url])
    assert server.ended(server.submit("note", {"n": 5}, queue=queue)["id"])["result"] == 5
    worker.kill()


def test_a_worker_moves_to_another_coordinator_when_its_own_dies(
    town: System, server: Server, system: System, queue: str
) -> None:
    first = system.serve(WORKER_HEARTBEAT_TIMEOUT_SEC=2)
    worker = system.worker(first, "--queues", queue, urls=[first.url, server.url])
    first.kill()
    eventually(lambda: worker.pid in {row["pid"] for row in server.live_workers()}, 5, "the worker to move")
    assert server.ended(server.submit("note", {"n": 5}, queue=queue)["id"])["result"] == 5


def test_work_is_spread_round_robin_by_default(town: System, server: Server, queue: str) -> None:
    workers = town.pair(server, "--queues", queue, threads=2)
    ids = (server.submit("note", {"n": n}, queue=queue)["id"] for n in range(8))
    ran_on = [pid_of(server, server.ended(id)) for id in ids]
    assert {ran_on.count(worker.pid) for worker in workers} == {4}
    for worker in workers:
        worker.kill()


def test_jobs_behind_one_that_turns_out_long_are_run_by_others(
    town: System, server: Server, queue: str
) -> None:
    """A type that used to be short gets jobs assigned ahead of time. When one of them is long, the rest must not wait."""
    workers = town.pair(server, "--queues", queue)
    warm = [{"type": "nap", "payload": {"seconds": 0}, "queue": queue, "name": "warm"} for _ in range(300)]
    server.post("/jobs/batch", {"jobs": warm})
    eventually(lambda: all(job["status"] == "completed" for job in server.jobs(queue=queue, name="warm")))
    naps = [{"type": "nap", "payload": {"seconds": 3 if n == 3 else 0}, "queue": queue} for n in range(60)]
    jobs = server.post("/jobs/batch", {"jobs": naps})["jobs"]
    short = [job for n, job in enumerate(jobs) if n != 3]
    ended = [server.ended(job["id"], within=2.5) for job in short]
    assert {job["status"] for job in ended} == {"completed"}
    assert server.status(jobs[3]["id"]) == "running"
    assert server.ended(jobs[3]["id"])["attempt"] == 1
    for worker in workers:
        worker.kill()


def test_metrics_and_stats_count_what_happened(server: Server, crew: str) -> None:
    before = server.get("/stats")["jobs_by_status"]["completed"]
    server.ended(server.submit("note", {"n": 1}, queue=crew)["id"])
    stats = server.get("/stats")
    assert stats["jobs_by_status"]["completed"] == before + 1
    assert 0 < stats["success_rate"] <= 1
    assert set(stats) == set(StatsView.__struct_fields__)
    text = httpx.get(f"{server.url}/metrics").text
    assert "stoker" in text
    assert all(line.startswith("#") or " " in line for line in text.splitlines())


def test_a_demand_that_nobody_can_meet_runs_on_one_thread_or_waits(
    server: Server, oversized: tuple[Job, Job]
) -> None:
    degraded, waiting = oversized
    ended = server.ended(degraded["id"], within=9)
    assert (ended["result"], ended["threads_granted"], ended["thread_demand"]) == (1, 1, 8)
    assert ended["queue_time_sec"] >= 5, "a larger worker might have come"
    assert server.status(waiting["id"]) == "queued"
