"""What operators ask of a running system: dead letters by how they failed, series, and the same to many jobs at once."""

from typing import Any

import pytest

from stoker.ids import new_id
from tests.e2e.system import Job, Server, System, eventually


@pytest.fixture
def tag() -> str:
    return f"t{new_id()[-12:]}"


def test_dead_letters_are_grouped_and_one_of_a_group_is_tried_first(
    server: Server, crew: str, tag: str
) -> None:
    ids = [
        server.submit("boom", {"tag": f"{tag}-{n}"}, queue=crew, max_attempts=1, name=tag)["id"]
        for n in range(3)
    ]
    jobs = [server.ended(id) for id in ids]
    (fingerprint,) = {job["fingerprint"] for job in jobs}
    (group,) = [g for g in server.get("/dlq/groups")["groups"] if g["fingerprint"] == fingerprint]
    assert (group["type"], group["error_type"]) == ("boom", jobs[0]["error"]["type"])
    assert group["frame"].endswith("in boom")
    assert group["count"] == sum(group["sparkline"]) >= 3
    listed = server.get("/dlq", fingerprint=fingerprint, name=tag, summary=1)
    assert {job["id"] for job in listed["jobs"]} == set(ids)
    # A list tells how a job failed, and leaves out what can be large.
    whole = {job["id"]: job["error"] for job in jobs}
    for job in listed["jobs"]:
        assert (job["payload"], job["result"]) == (None, None)
        assert job["error"] == {name: whole[job["id"]][name] for name in ("type", "message")}
    wanted = {"filter": {"fingerprint": fingerprint, "name": tag}, "limit": 1}
    assert server.post("/dlq/replay", wanted) == {"count": 1}
    assert server.post("/dlq/discard", {**wanted, "limit": 10})["count"] in (
        2,
        3,
    )  # the one that was tried fails again


def test_what_happened_is_in_the_series(server: Server, crew: str, tag: str) -> None:
    for n in range(3):
        server.ended(server.submit("echo", {"n": n}, queue=crew, name=tag)["id"])

    def points() -> list[dict[str, Any]]:
        found = server.get("/series", queue=crew, type="echo", **{"from": "1m"})["points"]
        return [point for point in found if point["completed"]]

    eventually(lambda: sum(point["completed"] for point in points()) >= 3)
    point = points()[-1]
    assert point["run_p50_sec"] <= point["run_p95_sec"]
    assert point["wait_p95_sec"] >= 0
    whole = server.get("/series", step=60)["points"]
    assert max(point["threads_max"] for point in whole) >= 4
    assert max(point["workers_max"] for point in whole) >= 1
    rows = server.get("/series/breakdown", by="type")["rows"]
    assert next(row for row in rows if row["key"] == "echo")["completed"] >= 3


def over(server: Server, bulk: Job, within: float = 30.0) -> Job:
    """A bulk operation once it is over."""
    return eventually(
        lambda: now if (now := server.get(f"/bulk/{bulk['id']}"))["status"] != "running" else None, within
    )


def test_many_jobs_are_cancelled_and_retried_and_whoever_waits_is_told(
    server: Server, crew: str, tag: str
) -> None:
    running = server.submit("nap", {"seconds": 60, "tag": tag}, queue=crew, name=tag)
    server.started(running["id"])
    batch = [{"type": "echo", "name": tag, "queue": "nobody-serves-this"} for _ in range(600)]
    ids = [job["id"] for job in server.post("/jobs/batch", {"jobs": batch})["jobs"]]
    other = server.submit("echo", queue="nobody-serves-this")
    bulk = server.post("/bulk", {"action": "cancel", "filter": {"name": tag}})
    assert (bulk["action"], bulk["filter"], bulk["total"]) == ("cancel", {"name": tag}, 601)
    assert server.ended(running["id"], 10)["status"] == "cancelled"
    assert server.ended(ids[-1])["status"] == "cancelled"
    done = over(server, bulk)
    assert (done["status"], done["done"], done["changed"]) == ("done", 601, 601)
    assert server.status(other["id"]) == "queued"
    assert {job["status"] for job in server.jobs(name=tag, summary=1)} == {"cancelled"}
    again = over(server, server.post("/bulk", {"action": "retry", "filter": {"name": tag, "type": "echo"}}))
    assert (again["done"], again["changed"]) == (600, 600)
    assert server.status(ids[0]) == "queued"
    assert [row["id"] for row in server.get("/bulk")["bulk"][:2]] == [again["id"], bulk["id"]]
    server.post(f"/jobs/{other['id']}/cancel")
    over(server, server.post("/bulk", {"action": "cancel", "filter": {"name": tag}}))


def test_an_operation_goes_on_after_its_coordinator_was_killed(system: System) -> None:
    server = system.serve()
    for _ in range(3):
        batch = {"jobs": [{"queue": "nobody-serves-this"}] * 10_000}
        server.post("/jobs/batch", batch)
    bulk = server.post("/bulk", {"action": "cancel", "filter": {"queue": "nobody-serves-this"}})
    assert bulk["total"] == 30_000
    eventually(lambda: server.get(f"/bulk/{bulk['id']}")["done"] > 0)
    server.kill()
    server = system.serve()
    done = over(server, bulk, 60)
    assert (done["status"], done["done"], done["changed"]) == ("done", 30_000, 30_000)
    assert server.get("/stats")["jobs_by_status"]["cancelled"] == 30_000


def test_a_stopped_operation_leaves_the_rest(system: System) -> None:
    server = system.serve()
    server.post("/jobs/batch", {"jobs": [{"queue": "nobody-serves-this"}] * 10_000})
    bulk = server.post("/bulk", {"action": "cancel", "filter": {}})
    stopped = server.post(f"/bulk/{bulk['id']}/stop")
    assert server.get(f"/bulk/{bulk['id']}") == stopped
    assert stopped["status"] in ("stopped", "done")
    assert server.get("/stats")["jobs_by_status"]["cancelled"] == stopped["changed"]
