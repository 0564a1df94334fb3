"""What operators ask of a running system: dead letters by how they failed, and series."""

from typing import Any

import pytest

from stoker.ids import new_id
from tests.e2e.system import Server, eventually


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
    assert {job["error"] for job in listed["jobs"]} == {None}
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
