"""Jobs that fail, crash, or return what nobody can carry: retried as long as it helps, then dead letters."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from stoker.ids import new_id
from tests.e2e.system import Job, Server, System, eventually, resident_kb

JITTER = 0.3


@pytest.fixture(scope="module")
def default_backoff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A failing job under default settings, submitted before the other tests of this module: it takes its time."""
    with System(tmp_path_factory.mktemp("default-backoff")) as system:
        server = system.serve()
        system.worker(server)
        job = server.submit("boom", {"tag": "patient"}, queue="slow")
        yield server, job["id"]


@pytest.fixture(scope="module")
def failing_jobs(server: Server, crew: str) -> dict[str, str]:
    """Ids of jobs whose fate takes a while, by task; they run while other tests do."""
    payloads: dict[str, Any] = {"leave": {"tag": "leave"}, "die": {"tag": "die"}, "spin": {"seconds": 6}}
    ids = {
        task: server.submit(task, given, queue=crew, max_attempts=10)["id"]
        for task, given in payloads.items()
    }
    return {**ids, "fail": server.submit("fail", {"times": 2}, queue=crew)["id"]}


@pytest.fixture
def queue() -> str:
    """A queue that only this test uses; the shared crew does not serve it, so the test says who does."""
    return f"q-{new_id()[-12:]}"


def between(attempt: Job, field: str, other: Job, other_field: str) -> float:
    return (
        datetime.fromisoformat(other[other_field]) - datetime.fromisoformat(attempt[field])
    ).total_seconds()


def test_replay_by_id_by_filter_and_all_run_dead_letters_again_and_discard_ends_them(
    default_backoff: tuple[Server, str], failing_jobs: dict[str, str], town: System, server: Server, crew: str
) -> None:
    ids = [
        server.submit("boom", {"tag": f"dead-{n}"}, queue=crew, max_attempts=1, name=f"dead {n}")["id"]
        for n in range(4)
    ]
    for id in ids:
        assert server.ended(id)["status"] == "failed"
    listed = server.get("/dlq", queue=crew)
    assert {job["id"] for job in listed["jobs"]} >= set(ids)
    assert listed["total"] == len(listed["jobs"])

    assert server.post("/dlq/replay", {"ids": [ids[0], ids[0], "nonsense"]}) == {"count": 1}
    has_run(town, 0, 2)
    server.ended(ids[0])
    assert server.post("/dlq/replay", {"filter": {"name": "dead 1"}}) == {"count": 1}
    has_run(town, 1, 2)
    server.ended(ids[1])
    assert server.post("/dlq/replay", {"filter": {"type": "note", "queue": crew}}) == {"count": 0}
    assert server.post("/dlq/replay", {"all": True})["count"] >= 4
    for n, times in enumerate((3, 3, 2, 2)):
        has_run(town, n, times)
    replayed = server.ended(ids[0])
    for id in ids:
        server.ended(id)
    assert (replayed["status"], replayed["attempt"], replayed["claim_id"]) == ("failed", 1, 3)
    assert len(replayed["attempts"]) == 3, "replays forget nothing"

    assert server.post("/dlq/discard", {"ids": ids[:1]}) == {"count": 1}
    assert server.post("/dlq/discard", {"ids": ids[:1]}) == {"count": 0}
    assert server.post("/dlq/discard", {"filter": {"name": "dead 1"}}) == {"count": 1}
    left = {job["id"] for job in server.get("/dlq", queue=crew)["jobs"]}
    assert left & set(ids) == set(ids[2:])
    discarded = server.job(ids[0])
    assert (discarded["status"], discarded["discarded_at"] is not None) == ("failed", True)
    assert server.post("/dlq/replay", {"ids": ids[:1]}) == {"count": 0}
    assert server.post("/dlq/discard", {"all": True})["count"] >= 2
    assert server.get("/dlq")["jobs"] == []


def has_run(town: System, n: int, times: int) -> None:
    """Dead letter `n` has run this often, and no more."""
    eventually(lambda: len(town.journal.of(f"dead-{n}")) >= times, 5, f"dead letter {n} to run again")
    assert len(town.journal.of(f"dead-{n}")) == times


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": []},
        {"ids": "x"},
        {"all": True, "ids": ["x"]},
        {"filter": {"colour": "red"}},
        {"everything": 1},
        [],
    ],
)
@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_nothing_named_is_not_everything(server: Server, verb: str, body: object) -> None:
    assert server.http.post(f"/dlq/{verb}", json=body).status_code == 422


def test_a_job_that_fails_a_few_times_then_succeeds(server: Server, failing_jobs: dict[str, str]) -> None:
    ended = server.ended(failing_jobs["fail"])
    assert (ended["status"], ended["attempt"], ended["error"]) == ("completed", 3, None)
    assert [attempt["outcome"] for attempt in ended["attempts"]] == ["error", "error", "completed"]


@pytest.mark.parametrize(
    ("task", "detail"), [("leave", {"exit_code": 3}), ("die", {"signal": 9})], ids=["os._exit", "SIGKILL"]
)
def test_a_job_that_kills_its_process_is_a_dead_letter_after_three_crashes(
    town: System, server: Server, failing_jobs: dict[str, str], task: str, detail: dict[str, int]
) -> None:
    ended = server.ended(failing_jobs[task])
    assert (ended["status"], ended["crashes"], ended["attempt"]) == ("failed", 3, 3)
    assert ended["error"]["type"] == "crash"
    assert detail.items() <= ended["error"].items()
    assert len(town.journal.of(task)) == 3


def test_no_job_starts_more_often_than_it_is_charged_for_when_a_neighbour_crashes(
    town: System, server: Server, queue: str
) -> None:
    """Short jobs wait behind each other in one process. One that ends it takes along the results that were not sent
    yet; whoever has to run again because of that has used an attempt."""
    worker = town.worker(server, "--queues", queue)

    def run(count: int, tag: str, **fields: object) -> list[Job]:
        payloads = [{"n": n, "tag": tag, **fields} for n in range(count)]
        jobs = [{"type": "gamble", "payload": payload, "queue": queue, "name": tag} for payload in payloads]
        server.post("/jobs/batch", {"jobs": jobs})
        return eventually(lambda: _all_final(server, queue, tag), 40, "all jobs to end")

    run(200, f"{queue}-warm")
    ended = run(200, queue, unlucky=40)
    assert {job["status"] for job in ended} == {"completed"}
    assert sum(job["crashes"] for job in ended) > 0, "nothing crashed, so this proves nothing"
    assert [job["payload"]["n"] for job in ended if job["crashes"] and job["payload"]["n"] % 40 != 20] == []
    starts = Counter(int(entry[2]) for entry in town.journal.of(queue))
    charged = {job["payload"]["n"]: job["attempt"] for job in ended}
    assert {n: (starts[n], charged[n]) for n in charged if starts[n] > charged[n]} == {}
    worker.kill()


def _all_final(server: Server, queue: str, name: str) -> list[Job] | None:
    jobs = list(server.jobs(queue=queue, name=name))
    return jobs if all(job["status"] in ("completed", "failed") for job in jobs) else None


def test_a_result_that_is_not_json_fails_at_once(town: System, server: Server, crew: str, queue: str) -> None:
    job = server.submit("unspeakable", {"tag": queue}, queue=crew)
    ended = server.ended(job["id"], within=3)
    assert (ended["status"], ended["attempt"], ended["error"]["type"]) == ("failed", 1, "result_not_json")
    assert len(town.journal.of(queue)) == 1


def test_a_result_over_a_mebibyte_fails_at_once(town: System, server: Server, crew: str, queue: str) -> None:
    most = (1 << 20) - 2  # and two quotes
    job = server.submit("verbose", {"size": most + 1, "tag": queue}, queue=crew)
    ended = server.ended(job["id"], within=5)
    assert (ended["status"], ended["attempt"], ended["error"]["type"]) == ("failed", 1, "result_too_large")
    assert len(town.journal.of(queue)) == 1
    fits = server.submit("verbose", {"size": most}, queue=crew)
    assert len(server.ended(fits["id"], within=5)["result"]) == most


def test_a_payload_that_does_not_fit_the_function_fails_at_once(server: Server, crew: str) -> None:
    jobs = [server.submit("add", payload, queue=crew) for payload in ({"x": "two"}, {"z": 1}, [1], None)]
    for job in jobs:
        ended = server.ended(job["id"], within=6)
        assert (ended["status"], ended["attempt"]) == ("failed", 1), ended["error"]


def test_a_job_that_holds_the_interpreter_lock_beyond_the_timeout_is_not_given_up(
    server: Server, failing_jobs: dict[str, str]
) -> None:
    ended = server.ended(failing_jobs["spin"], within=40)
    assert (ended["status"], ended["attempt"]) == ("completed", 1)
    assert ended["result"] > 2.5, "it did not outlast the heartbeat timeout, so this proves nothing"


def test_a_worker_keeps_no_memory_of_the_jobs_it_ran(town: System, server: Server, queue: str) -> None:
    worker = town.worker(server, "--queues", queue, threads=1)

    def run(count: int) -> None:
        jobs = [{"type": "echo", "payload": "x" * 1000, "queue": queue} for _ in range(count)]
        ids = [job["id"] for job in server.post("/jobs/batch", {"jobs": jobs})["jobs"]]
        assert server.ended(ids[-1])["status"] == "completed"

    run(3000)
    before = resident_kb(worker.pid)
    run(3000)
    assert resident_kb(worker.pid) - before < 8_000
    worker.kill()


def test_attempts_errors_and_growing_jittered_delays_of_a_failing_job(
    default_backoff: tuple[Server, str],
) -> None:
    server, id = default_backoff
    ended = server.ended(id, within=30)
    assert (ended["status"], ended["attempt"], ended["max_attempts"]) == ("failed", 4, 4)
    attempts = ended["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["error"] * 4
    for attempt in attempts:
        assert (attempt["error"]["type"], attempt["error"]["message"]) == (
            "ValueError",
            "no luck with patient",
        )
        assert "jobs_app.py" in attempt["error"]["traceback"]
    delays = [attempt["retry_delay_sec"] for attempt in attempts]
    assert delays[3] is None
    for retry, delay in enumerate(delays[:3], start=1):
        assert 2**retry * (1 - JITTER) <= delay <= 2**retry * (1 + JITTER)
        waited = between(attempts[retry - 1], "finished_at", attempts[retry], "started_at")
        assert delay - 0.1 <= waited <= delay + 1.0, "the delay that is shown is the delay that was"
    assert delays[:3] == sorted(delays[:3])
    assert {round(delay % 1, 3) for delay in delays[:3]} != {0.0}, "no jitter"
    assert ended["error"] == attempts[3]["error"]
    assert [job["id"] for job in server.get("/dlq")["jobs"]] == [id]
    assert server.get("/jobs", status="failed")["total"] == 1
