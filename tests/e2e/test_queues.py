"""Pausing a queue of a running system."""

from stoker.ids import new_id
from tests.e2e.system import Server, System, throughout


def test_nothing_starts_from_a_paused_queue_until_it_is_resumed(town: System, server: Server) -> None:
    queue = f"q-{new_id()[-12:]}"
    town.worker(server, "--queues", queue)
    first = server.submit(queue=queue)
    server.ended(first["id"])
    paused = server.post(f"/queues/{queue}/pause")
    assert (paused["paused"], paused["completed"]) == (True, 1)
    waiting = server.submit(queue=queue)
    throughout(lambda: server.status(waiting["id"]) == "queued", 1.5, "it started")
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
