"""Pausing a queue of a running system, asking why a job waits, and what can be submitted."""

from typing import Any

from stoker.ids import new_id
from tests.e2e.system import Job, Server, System, throughout


def test_nothing_starts_from_a_paused_queue_until_it_is_resumed(town: System, server: Server) -> None:
    queue = f"q-{new_id()[-12:]}"
    town.worker(server, "--queues", queue)
    first = server.submit(queue=queue)
    server.ended(first["id"])
    paused = server.post(f"/queues/{queue}/pause")
    assert (paused["paused"], paused["completed"]) == (True, 1)
    waiting = server.submit(queue=queue)
    assert server.get("/stats")["paused_depth"] >= 1
    throughout(lambda: server.status(waiting["id"]) == "queued", 1.5, "it started")
    assert server.get(f"/jobs/{waiting['id']}/why")["code"] == "queue_paused"
    (listed,) = [row for row in server.get("/queues")["queues"] if row["queue"] == queue]
    assert (listed["queued"], listed["paused_at"]) == (1, paused["paused_at"])
    assert listed["oldest_queued_age_sec"] >= 1.5
    assert server.post(f"/queues/{queue}/resume")["paused"] is False
    server.ended(waiting["id"], within=5)


def test_a_pause_survives_a_restart_and_what_runs_goes_on(system: System) -> None:
    server = system.serve()
    system.worker(server, "--queues", "slow")
    running = server.submit("sleep", {"seconds": 1.0}, queue="slow")
    server.started(running["id"])
    server.post("/queues/slow/pause")
    waiting = server.submit(queue="slow")
    server.ended(running["id"])
    server.kill()
    again = system.serve(port=server.port)
    assert again.get("/queues")["queues"][0]["paused"] is True
    assert again.status(waiting["id"]) == "queued"
    again.post("/queues/slow/resume")
    again.ended(waiting["id"])


def test_a_job_says_why_it_waits(town: System, server: Server) -> None:
    queue = f"q-{new_id()[-12:]}"

    def why(job: Job) -> str:
        return str(server.get(f"/jobs/{job['id']}/why")["code"])

    nobody = server.submit("no_such_type", queue=queue)
    assert why(nobody) in ("no_worker", "no_worker_for_type")
    town.worker(server, "--queues", queue, threads=1)
    assert why(nobody) == "no_worker_for_type"
    elsewhere = server.submit("nap", {"args": [0]}, queue=f"{queue}-other")
    assert why(elsewhere) == "no_worker_for_queue"
    running = server.submit("sleep", {"seconds": 2}, queue=queue)
    server.started(running["id"])
    first, second = (server.submit("sleep", {"seconds": 0}, queue=queue) for _ in range(2))
    assert (why(running), why(first), why(second)) == ("running", "waiting_for_threads", "waiting_in_line")
    assert server.get(f"/jobs/{second['id']}/why")["position"] == 2
    server.ended(second["id"])
    assert why(second) == "finished"
    assert why(server.submit(queue=queue, delay_sec=600)) == "scheduled"


def test_types_are_described_by_their_workers_and_outlive_them(system: System) -> None:
    server = system.serve()
    worker = system.worker(server)
    echo = server.submit()
    server.ended(echo["id"])

    def types() -> dict[str, Any]:
        return {row["type"]: row for row in server.get("/types")["types"]}

    add = types()["add"]
    assert (add["workers"], add["built_in"]) == (1, False)
    assert add["schema"]["properties"] == {"x": {"type": "integer"}, "y": {"type": "integer", "default": 1}}
    assert add["schema"]["required"] == ["x"]
    assert (types()["echo"]["workers"], types()["echo"]["built_in"]) == (1, True)
    assert types()["echo"]["run_p50_sec"] is not None
    worker.terminate()
    assert worker.exit_code() == 0
    assert {**add, "workers": 0} == types()["add"]
    assert "add_later" in system.run("types", "--url", server.url).stdout
