"""Which job goes first."""

from collections.abc import Iterator

import pytest

from tests.e2e.system import Server, System, eventually


@pytest.fixture(scope="module")
def one_thread(town: System, server: Server) -> Iterator[str]:
    """The queue of a worker with a single thread."""
    worker = town.worker(server, "--queues", "single")
    yield "single"
    worker.kill()


def run_behind_a_busy_thread(
    system: System, server: Server, queue: str, priorities: list[int], tag: str
) -> list[int]:
    """Submit one note per priority while the thread is busy; the numbers of the notes in the order in which they ran."""
    blocker = server.submit("nap", {"seconds": 1}, queue=queue)
    server.started(blocker["id"])
    for n, priority in enumerate(priorities):
        server.submit("note", {"n": n, "tag": tag}, queue=queue, priority=priority)
    entries = eventually(
        lambda: ran if len(ran := system.journal.of(tag)) == len(priorities) else None,
        otherwise="all notes to be written",
    )
    return [int(entry[2]) for entry in entries]


def test_high_goes_before_normal_before_low(town: System, server: Server, one_thread: str) -> None:
    assert run_behind_a_busy_thread(town, server, one_thread, [2, 1, 0], "by-priority") == [2, 1, 0]


def test_equals_go_in_the_order_of_their_submission(town: System, server: Server, one_thread: str) -> None:
    order = run_behind_a_busy_thread(town, server, one_thread, [1] * 30, "fifo")
    assert order == list(range(30))


def test_priorities_mix_with_fifo_over_all_of_zero_to_a_hundred(
    town: System, server: Server, one_thread: str
) -> None:
    priorities = [100, 50, 0, 50, 1, 0, 100, 2]
    expected = sorted(range(len(priorities)), key=lambda n: (priorities[n], n))
    assert run_behind_a_busy_thread(town, server, one_thread, priorities, "mixed") == expected


def test_priority_holds_across_types_and_thread_demands(
    town: System, server: Server, one_thread: str
) -> None:
    """Other types stand in other lanes, and run in other processes; the order is that of the queue still. Each takes a
    while, because the times are those of reports: two that follow at once may be told the other way round."""
    blocker = server.submit("nap", {"seconds": 1}, queue=one_thread)
    server.started(blocker["id"])
    wanted = [
        server.submit("nap", {"seconds": 0.2}, queue=one_thread, priority=2),
        server.submit("sleep", {"seconds": 0.2}, queue=one_thread, priority=1),
        server.submit("nap", {"seconds": 0.2}, queue=one_thread, priority=0),
        server.submit("sleep", {"seconds": 0.2}, queue=one_thread, priority=0),
    ]
    ended = [server.ended(job["id"]) for job in wanted]
    order = sorted(ended, key=lambda job: job["started_at"])
    assert [job["id"] for job in order] == [wanted[i]["id"] for i in (2, 3, 1, 0)]


def test_highest_first_serves_systems_that_count_the_other_way(system: System) -> None:
    server = system.serve(PRIORITY_ORDER="highest_first")
    system.worker(server, "--queues", "single")
    order = run_behind_a_busy_thread(system, server, "single", [1, 10, 5, 10], "highest")
    assert order == [1, 3, 2, 0]
    server.kill()
    refused = system.run("serve", "--port", server.port, "--database", system.database)
    assert refused.returncode != 0, "data written under one order must not be read under the other"
    assert "PRIORITY_ORDER" in refused.stderr


URGENT = [
    ("nap", {"seconds": 0.01}, {}),
    ("add", {"x": 1}, {"max_attempts": 1}),
    ("add_later", {"x": 1, "y": 2}, {}),
    ("sleep", {"seconds": 0.01}, {}),
]
"""Slow, with one attempt, async, and built in."""


def test_urgent_jobs_do_not_wait_for_a_flood_of_short_ones(server: Server, one_thread: str) -> None:
    """Short jobs are given to a worker ahead of time, and so no thread looks free; the others need one that does."""
    for _ in range(3):
        server.ended(server.submit("echo", queue=one_thread)["id"])
    jobs = [{"type": "echo", "payload": n, "queue": one_thread, "priority": 2} for n in range(6_000)]
    flood = server.post("/jobs/batch", {"jobs": jobs})["jobs"]
    urgent = [
        server.submit(type, payload, queue=one_thread, priority=0, **more) for type, payload, more in URGENT
    ]
    started = [server.ended(job["id"], within=60.0)["started_at"] for job in urgent]
    end = server.ended(flood[-1]["id"], within=60.0)["started_at"]
    assert all(start < end for start in started)
