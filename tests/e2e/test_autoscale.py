"""The autoscaler with real workers: up with the queue, down when it is quiet, and nobody who works is sent away."""

import os
import signal
from datetime import datetime, timedelta
from typing import Any

from tests.e2e.system import APP, Server, System, descendants, eventually, is_alive

QUICK: dict[str, Any] = {
    "STOKER_SCALE_COOLDOWN_SEC": 0.5,
    "SCALE_DOWN_STABLE_SEC": 1,
    "MAX_WORKERS": 4,
    "MIN_WORKERS": 1,
    "WORKER_HEARTBEAT_TIMEOUT_SEC": 20,
}


def naps(server: Server, count: int, seconds: float = 0.4) -> list[str]:
    specs = [{"type": "nap", "payload": {"seconds": seconds, "tag": f"nap-{n}"}} for n in range(count)]
    return [job["id"] for job in server.post("/jobs/batch", {"jobs": specs})["jobs"]]


def live_pids(server: Server) -> set[int]:
    return {int(row["pid"]) for row in server.live_workers()}


def all_ran_once(system: System, server: Server, ids: list[str]) -> None:
    """By the jobs' own record: scaling cost none of them an attempt, and none ran twice."""
    for id in ids:
        job = server.ended(id, within=60)
        assert (job["status"], job["attempt"]) == ("completed", 1)
    for number in range(len(ids)):
        assert len(system.journal.of(f"nap-{number}", "end")) == 1


def test_fifty_jobs_bring_four_workers_and_when_it_is_quiet_one_is_left(system: System) -> None:
    up = system.up("--app", APP, "--threads", 1, "--workers", 1, "--autoscale", "process", **QUICK)
    assert len(up.live_workers()) == 1
    ids = naps(up, 50, seconds=0.8)
    eventually(lambda: len(up.live_workers()) == 4, 50, lambda: f"four workers: {up.output[-3000:]}")
    family = descendants(up.pid)
    all_ran_once(system, up, ids)
    (last,) = eventually(
        lambda: pids if len(pids := live_pids(up)) == 1 else None, 50, "one worker to be left"
    )
    assert len(drained(up)) == 3
    eventually(lambda: len([pid for pid in family if is_alive(pid)]) <= len(descendants(last)) + 1, 40)
    ups = up.events("scale_up")
    assert [(event["workers"], event["wanted"]) for event in ups] == [(1, 2), (2, 3), (3, 4)]
    assert all("above the threshold of 10" in event["reason"] for event in ups)

    # Killed by hand, it is replaced, long before its heartbeat times out.
    assert last in descendants(up.pid), "ours to kill"
    os.kill(last, signal.SIGKILL)
    eventually(lambda: live_pids(up) - {last}, 19, "another to take its place")
    assert up.ended(up.submit(payload="still here")["id"])["status"] == "completed"

    up.terminate()
    assert up.exit_code(within=30) == 0
    assert system.processes() == set()


def test_a_busy_worker_is_never_sent_away(system: System) -> None:
    """Long jobs on a few workers, a short queue, and a stable window of nothing: whoever works stays until it is idle.

    Judged afterwards, by the times of the jobs and of the drains: looking on while it happens cannot tell a worker that
    was drained at work from one that became idle between two looks. One that got its job in the moment between the
    autoscaler's look and the drain may finish it (`autoscale/loop.py`), hence the margin."""
    settings = QUICK | {"SCALE_DOWN_STABLE_SEC": 0, "STOKER_SCALE_COOLDOWN_SEC": 0, "QUEUE_THRESHOLD_HIGH": 3}
    up = system.up("--app", APP, "--threads", 1, "--workers", 1, "--autoscale", "process", **settings)
    ids = naps(up, 9, seconds=2)
    eventually(lambda: len(up.live_workers()) >= 2, 40)
    all_ran_once(system, up, ids)
    eventually(lambda: drained(up), 40)
    for job in map(up.job, ids):
        leaves_at = drained(up).get(job["worker_id"])
        assert leaves_at is None or not (
            moment(job["started_at"]) + MARGIN < leaves_at < moment(job["completed_at"])
        ), "a worker was drained while it ran something"


MARGIN = timedelta(seconds=0.7)


def drained(server: Server) -> dict[str, datetime]:
    """Who was told to leave, and when."""
    return {str(e["worker_id"]): moment(str(e["timestamp"])) for e in server.events("worker_draining")}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_up_only_recommends_unless_asked_to_act(system: System) -> None:
    up = system.up("--app", APP, "--threads", 1, "--workers", 1, **QUICK)
    ids = naps(up, 30, seconds=0.25)
    (event,) = eventually(lambda: up.events("scale_up"), 20)
    assert (event["mode"], event["workers"], event["wanted"]) == ("recommend", 1, 2)
    all_ran_once(system, up, ids)
    assert len(up.live_workers()) == 1


def test_an_autoscaler_of_its_own_process_acts_over_the_api_with_the_token(system: System) -> None:
    token = "a-token-of-enough-characters"
    server = system.serve(token=token)
    scaler = system.start(
        *("autoscale", "--mode", "process", "--url", server.url, "--threads", 1, "--app", APP),
        STOKER_TOKEN=token,
        **QUICK,
    )
    eventually(lambda: len(server.live_workers()) == 1, 40, lambda: scaler.output)
    ids = naps(server, 40, seconds=0.8)
    eventually(lambda: len(server.live_workers()) == 4, 50, lambda: scaler.output)
    all_ran_once(system, server, ids)
    assert {row["name"] for row in server.get("/workers")["workers"]} >= {
        "auto-1",
        "auto-2",
        "auto-3",
        "auto-4",
    }
    assert token not in scaler.output
    family = descendants(scaler.pid)
    scaler.terminate()
    assert scaler.exit_code(within=30) == 0
    assert not [pid for pid in family if is_alive(pid)]


def test_workers_leave_gracefully_when_their_autoscaler_is_killed(system: System) -> None:
    server = system.serve()
    scaler = system.start(
        *("autoscale", "--mode", "process", "--url", server.url, "--threads", 1, "--app", APP), **QUICK
    )
    eventually(lambda: len(server.live_workers()) == 1, 40, lambda: scaler.output)
    family = descendants(scaler.pid)
    (id,) = naps(server, 1, seconds=1)
    server.started(id)
    scaler.kill()
    job = server.ended(id)
    assert (job["status"], job["attempt"]) == ("completed", 1)
    eventually(lambda: not [pid for pid in family if is_alive(pid)], 15)


def test_once_says_what_it_would_do_and_why(system: System) -> None:
    server = system.serve()
    said = system.run("autoscale", "--once", "--url", server.url)
    assert said.returncode == 0, said.stderr
    facts = dict(line.split(None, 1) for line in said.stdout.splitlines())
    assert facts == {
        "action": "up",
        "workers": "0",
        "wanted": "1",
        "reason": "0 workers run, fewer than the minimum of 1: 1 more",
    }


def test_wrong_wishes_are_refused_with_what_to_do(system: System) -> None:
    for args, words in (
        (("autoscale", "--mode", "docker"), "WORKER_IMAGE is not set"),
        (("autoscale", "--mode", "off"), "nothing to do"),
        (("autoscale", "--mode", "sideways"), "must be auto or off or recommend or process or docker"),
        (("autoscale", "--min", 5, "--max", 2), "MIN_WORKERS=5 and MAX_WORKERS=2 disagree"),
        (("up", "--port", 0, "--autoscale", "docker"), "stoker autoscale --mode docker"),
    ):
        done = system.run(*args)
        assert done.returncode != 0
        assert words in done.stderr
