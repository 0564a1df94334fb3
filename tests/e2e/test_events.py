"""Live events of a running system: what happens is told, also when it happens at another coordinator."""

import signal
from collections.abc import Iterator

import pytest

from stoker.ids import new_id
from tests.e2e.system import FINAL, Server, System, eventually
from tests.e2e.watching import watching
from tests.support.servers import databases


def test_a_job_is_told_from_its_submission_to_its_end(server: Server, crew: str) -> None:
    with watching(server) as watcher:
        (hello,) = watcher.named("hello")
        assert hello.id == f"{hello.data['epoch']}:{hello.data['seq']}"
        job = server.submit("sleep", {"seconds": 0.6}, queue=crew, name="watched")
        watcher.until(lambda seen: "completed" in seen.statuses(job["id"]))
        assert watcher.statuses(job["id"])[0] in ("queued", "running")
        assert "running" in watcher.statuses(job["id"])
        assert (watcher.total("submitted"), watcher.total("completed")) == (1, 1)
        assert "workers" in watcher.updates()[0]
        last = watcher.updates()[-1]
        assert last["stats"]["jobs_by_status"] == server.get("/stats")["jobs_by_status"]
        assert last["stats"]["run_p50_sec"] == pytest.approx(0.6, rel=0.3)
        ids = [event.id for event in watcher.events]
        assert len(set(ids)) == len(ids)


def test_who_comes_back_goes_on_where_it_was(server: Server, crew: str) -> None:
    with watching(server) as watcher:
        first = server.submit(queue=crew)
        watcher.until(lambda seen: "completed" in seen.statuses(first["id"]))
        last = watcher.events[-1]
    second = server.submit(queue=crew)
    server.ended(second["id"])
    with watching(server, **{"Last-Event-ID": last.id or ""}) as watcher:
        watcher.until(lambda seen: "completed" in seen.statuses(second["id"]))
        assert watcher.named("reset") == []
        assert watcher.statuses(first["id"]) == []
    with watching(server, "/events?after=another-life:3") as watcher:
        watcher.until(lambda seen: bool(seen.named("reset")))


def test_a_burst_is_a_few_updates_that_say_how_much_more_there_is(server: Server, crew: str) -> None:
    with watching(server) as watcher:
        server.post("/jobs/batch", {"jobs": [{"queue": crew} for _ in range(2_000)]})
        watcher.until(lambda seen: seen.total("completed") >= 2_000)
        assert watcher.total("submitted") == 2_000
        assert all(len(update["jobs"]) <= 200 for update in watcher.updates())
        assert sum(update["more"] for update in watcher.updates()) > 0


def test_progress_is_told(server: Server, crew: str) -> None:
    with watching(server) as watcher:
        job = server.submit("progressing", {"steps": 4, "seconds": 1.5}, queue=crew)
        watcher.until(
            lambda seen: any(
                row["progress"]
                for update in seen.updates()
                for row in update["jobs"]
                if row["id"] == job["id"]
            )
        )


def test_one_job_is_followed_to_its_end(server: Server, crew: str) -> None:
    job = server.submit("sleep", {"seconds": 0.6}, queue=crew)
    with watching(server, f"/jobs/{job['id']}/events") as watcher:
        assert watcher.ended.wait(15)
        assert [event.name for event in watcher.events][-2:] == ["job", "end"]
        shown = [event.data for event in watcher.named("job")]
        assert shown[-1]["status"] == "completed"
        assert shown[-1]["attempts"][0]["outcome"] == "completed"
        assert "running" in [one["status"] for one in shown]
    with watching(server, f"/jobs/{job['id']}/events") as watcher:
        assert watcher.ended.wait(5), "a job that is over is told once"


def test_a_server_that_stops_lets_go_of_who_watches(system: System) -> None:
    server = system.serve()
    job = server.submit()
    with watching(server) as watcher, watching(server, f"/jobs/{job['id']}/events") as other:
        server.signal(signal.SIGTERM)
        assert server.exit_code(4.5) == 0, "it does not wait for those who would watch for ever"
        assert watcher.ended.wait(5)
        assert other.ended.wait(5)


# ── two coordinators ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two coordinators on one PostgreSQL, and a worker at the second."""
    folder = tmp_path_factory.mktemp("two")
    with System(folder, databases.url(folder)) as system:
        first, second = system.serve(), system.serve()
        system.worker(second, threads=2)
        yield first, second


def test_what_happens_at_another_coordinator_is_told_here(two: tuple[Server, Server]) -> None:
    first, second = two
    with watching(first) as watcher:
        watcher.until(lambda seen: seen.updates() != [])
        job = second.submit("sleep", {"seconds": 1.0})
        watcher.until(lambda seen: "running" in seen.statuses(job["id"]), within=5)
        watcher.until(lambda seen: "completed" in seen.statuses(job["id"]), within=5)
        watcher.until(lambda seen: (seen.total("submitted"), seen.total("completed")) == (1, 1))
        assert watcher.updates()[-1]["stats"]["threads"] == 2


def test_a_burst_at_another_coordinator_is_counted_here(two: tuple[Server, Server]) -> None:
    first, second = two
    with watching(first) as watcher:
        watcher.until(lambda seen: seen.updates() != [])
        # Interest travels with the first window that is closed.
        probe = second.submit()
        watcher.until(lambda seen: "completed" in seen.statuses(probe["id"]))
        second.post("/jobs/batch", {"jobs": [{"name": new_id()} for _ in range(1_000)]})
        watcher.until(lambda seen: seen.total("completed") >= 1_000)
        assert watcher.total("submitted") >= 1_000
        assert watcher.updates()[-1]["stats"]["jobs_by_status"]["queued"] == 0


def test_one_job_is_followed_from_another_coordinator(two: tuple[Server, Server]) -> None:
    first, second = two
    job = second.submit("sleep", {"seconds": 0.6})
    with watching(first, f"/jobs/{job['id']}/events") as watcher:
        assert watcher.ended.wait(15)
        assert watcher.events[-1].data["status"] in FINAL


def test_a_pause_at_one_coordinator_holds_at_the_other(two: tuple[Server, Server]) -> None:
    first, second = two
    with watching(first) as watcher:
        second.post("/queues/default/pause")
        waiting = first.submit()
        watcher.until(
            lambda seen: any(
                queue["paused"] for update in seen.updates() for queue in update.get("queues", [])
            )
        )
        assert second.status(waiting["id"]) == "queued"
        first.post("/queues/default/resume")
        second.ended(waiting["id"], within=5)
        eventually(lambda: not first.get("/queues")["queues"][0]["paused"])
