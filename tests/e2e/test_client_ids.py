"""Ids made by clients, on a real system: repeats at once, and after the job has ended."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx

from stoker.ids import new_id
from tests.e2e.system import Server, System

MINIMAL = {"Prefer": "return=minimal"}


def test_fifty_concurrent_submissions_with_one_id_are_one_job(
    town: System, server: Server, crew: str
) -> None:
    id = new_id()
    body = {"id": id, "type": "note", "payload": {"n": 7, "tag": id}, "queue": crew}
    with ThreadPoolExecutor(50) as threads, httpx.Client(base_url=server.url, timeout=30) as client:
        send = partial(client.post, "/jobs", json=body, headers=MINIMAL)
        answers = [waiting.result() for waiting in [threads.submit(send) for _ in range(50)]]
    assert {answer.status_code for answer in answers} == {202}
    assert {answer.json()["id"] for answer in answers} == {id}
    assert sum("replayed" not in answer.json() for answer in answers) == 1
    assert server.ended(id)["result"] == 7
    assert len(town.journal.of(id)) == 1
    again = server.http.post("/jobs", json=body)
    assert (again.status_code, again.json()["status"]) == (202, "completed")
    assert again.headers["idempotency-replayed"] == "true"
    refused = server.http.post("/jobs", json={**body, "payload": 8})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "id")


def test_a_batch_whose_jobs_stand_for_themselves_stores_all_but_the_refused(
    server: Server, crew: str
) -> None:
    known, new = new_id(), [new_id() for _ in range(20)]
    server.post("/jobs", {"id": known, "queue": crew, "payload": "first"})
    jobs = [{"id": id, "queue": crew, "payload": number} for number, id in enumerate(new)]
    jobs.insert(7, {"id": known, "queue": crew, "payload": "second"})
    jobs.insert(3, {"priority": 101})
    send = partial(server.http.post, "/jobs/batch", json={"jobs": jobs, "atomic": False}, headers=MINIMAL)
    first, second = send(), send()
    assert (first.status_code, second.status_code) == (202, 202)
    places = first.json()["jobs"]
    assert [place["id"] for place in places if "id" in place] == new
    assert [places[at]["problem"]["status"] for at in (3, 8)] == [422, 422]
    assert [place.get("replayed") for place in second.json()["jobs"] if "id" in place] == [True] * 20
