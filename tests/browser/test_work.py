"""What people do with the dashboard, each without loading the page again."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import APP, Visitor
from tests.e2e.system import Server, System, eventually


def test_submit_by_form_watch_it_run_and_see_its_result_and_log(
    visitor: Visitor, server: Server, tmp_path: Path
) -> None:
    page = visitor.visit("/submit?type=talk")
    page.get_by_label("lines").fill('["first line", "\\u001b[32mgreen\\u001b[0m line", "the last"]')
    page.get_by_label("pause").fill("1")
    page.get_by_label("Name").fill("by form")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/jobs/*")
    expect(page.get_by_role("heading", name="by form")).to_be_visible()
    expect(page.locator('[data-status="running"]')).to_be_visible()
    log = page.get_by_role("log")
    expect(log).to_contain_text("first line")
    expect(page.get_by_role("meter", name="Progress")).to_be_visible()
    expect(page.locator('[data-status="completed"]')).to_be_visible()
    expect(log).to_contain_text("the last")
    expect(log).not_to_contain_text("[32m")
    expect(log.get_by_text("green", exact=True)).to_have_attribute("style", re.compile("ansi-green"))
    expect(page.get_by_role("region", name="Result")).to_contain_text("3")
    visitor.stayed()


def test_the_log_follows_its_end_until_somebody_scrolls_back(visitor: Visitor, server: Server) -> None:
    lines = [f"line {n}." for n in range(400)]
    job = server.submit("talk", {"lines": lines, "pause": 0.03})["id"]
    page = visitor.visit(f"/jobs/{job}")
    log, follow = page.get_by_role("log"), page.get_by_role("button", name="Follow")
    # Only what is in view is there: line 60 itself may be gone again when the browser comes to look.
    expect(log).to_contain_text(re.compile(r"line ([6-9]\d|[1-3]\d\d)\."))
    expect(log.get_by_text("line 0.")).to_have_count(0)
    log.hover()
    page.mouse.wheel(0, -200)
    expect(follow).to_have_attribute("aria-pressed", "false")
    expect(page.locator('[data-status="completed"]')).to_be_visible(timeout=30_000)
    expect(log.get_by_text("line 399.")).to_have_count(0)
    page.keyboard.press("f")
    expect(follow).to_have_attribute("aria-pressed", "true")
    expect(log.get_by_text("line 399.")).to_be_visible()
    visitor.stayed()


def test_big_integers_stay_whole(visitor: Visitor, server: Server) -> None:
    body = '{"type": "echo_back", "payload": {"value": {"big": 12345678901234567890123}}}'
    answer = server.http.post("/jobs", content=body, headers={"content-type": "application/json"})
    job = answer.json()["id"]
    server.ended(job)
    page = visitor.visit(f"/jobs/{job}")
    expect(page.get_by_role("region", name="Payload")).to_contain_text("12345678901234567890123")
    expect(page.get_by_role("region", name="Result")).to_contain_text("12345678901234567890123")
    visitor.stayed()


def test_cancel_a_running_job(visitor: Visitor, server: Server, tmp_path: Path) -> None:
    job = server.submit("hold", {"path": str(tmp_path / "never")})["id"]
    page = visitor.visit(f"/jobs/{job}")
    expect(page.locator('[data-status="running"]')).to_be_visible()
    page.keyboard.press("c")
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator('[data-status="cancelled"]')).to_be_visible()
    assert server.status(job) == "cancelled"
    visitor.stayed()


def test_see_why_a_job_waits_and_then_runs(visitor: Visitor, server: Server) -> None:
    server.post("/queues/closed/pause")
    job = server.submit("echo_back", {"value": 1}, queue="closed")["id"]
    page = visitor.visit(f"/jobs/{job}")
    why = page.get_by_role("region", name="Why is it not running?")
    expect(why).to_contain_text("paused")
    server.post("/queues/closed/resume")
    expect(page.locator('[data-status="completed"]')).to_be_visible()
    expect(why).to_have_count(0)
    visitor.stayed()


def test_edit_and_resubmit(visitor: Visitor, server: Server) -> None:
    job = server.submit("echo_back", {"value": "old"}, name="to be edited")["id"]
    server.ended(job)
    page = visitor.visit(f"/jobs/{job}")
    page.get_by_role("button", name="Edit and resubmit").click()
    page.wait_for_url(f"**/submit?from={job}")
    page.get_by_label("value").fill('"new"')
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(lambda url: "/jobs/" in url and job not in url)
    expect(page.get_by_role("region", name="Result")).to_contain_text("new")
    visitor.stayed()


def test_the_form_shows_the_options_of_a_task_and_leaves_them_to_it(visitor: Visitor, server: Server) -> None:
    page = visitor.visit("/submit?type=shout")
    expect(page.get_by_label("Attempts")).to_have_attribute("placeholder", "1")
    expect(page.get_by_label("Queue")).to_have_attribute("placeholder", "default")
    page.get_by_role("textbox", name="text *", exact=True).fill("once is enough")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url("**/jobs/*")
    assert server.job(page.url.rpartition("/")[2])["max_attempts"] == 1


def test_retry_a_group_of_dead_letters_after_a_canary(
    visitor: Visitor, server: Server, tmp_path: Path
) -> None:
    cure = tmp_path / "cure"
    jobs = [server.submit("flaky", {"path": str(cure), "order": n}, max_attempts=1)["id"] for n in range(5)]
    for job in jobs:
        assert server.ended(job)["status"] == "failed"
    page = visitor.visit("/dead-letters")
    group = page.get_by_role("article", name="ValueError in flaky")
    expect(group).to_contain_text("5")
    expect(group).to_contain_text("dashboard_app.py in flaky")
    group.get_by_role("button", name="Try one first").click()
    expect(group.locator('[data-canary="failed"]')).to_be_visible()
    cure.write_text("all is well", encoding="utf-8")
    group.get_by_role("button", name="Try one first").click()
    expect(group.locator('[data-canary="passed"]')).to_be_visible()
    group.get_by_role("button", name="Retry all 4 jobs").click()
    expect(group).to_have_count(0)
    for job in jobs:
        assert server.ended(job)["result"] == "all is well"
    visitor.stayed()


def test_discard_a_group_of_dead_letters(visitor: Visitor, server: Server) -> None:
    job = server.submit("shout", {"text": "to be discarded"}, max_attempts=1)["id"]
    server.ended(job)
    page = visitor.visit("/dead-letters")
    group = page.get_by_role("article").filter(has_text="to be discarded")
    group.get_by_role("button", expanded=False).click()
    expect(group.get_by_role("link")).to_have_attribute("href", f"/dashboard/jobs/{job}")
    group.get_by_role("button", name="Discard", exact=True).click()
    page.get_by_role("button", name="Discard 1 job").click()
    expect(group).to_have_count(0)
    assert server.job(job)["discarded_at"] is not None
    visitor.stayed()


def test_pause_and_resume_a_queue(visitor: Visitor, server: Server) -> None:
    server.ended(server.submit("echo_back", {"value": 1}, queue="tap")["id"])
    page = visitor.visit("/queues")
    tap = page.get_by_role("article", name="tap", exact=True)
    tap.get_by_role("button", name="Pause tap").click()
    expect(tap).to_contain_text("paused")
    held = server.submit("echo_back", {"value": 2}, queue="tap")["id"]
    expect(tap.get_by_role("link", name="1", exact=True)).to_be_visible()
    assert server.status(held) == "queued"
    tap.get_by_role("button", name="Resume tap").click()
    expect(tap.get_by_role("button", name="Pause tap")).to_be_visible()
    assert server.ended(held)["status"] == "completed"
    visitor.stayed()


def test_see_what_a_worker_does_and_drain_it(
    visitor: Visitor, town: System, server: Server, tmp_path: Path
) -> None:
    page = visitor.visit("/workers")
    # Its queue keeps other jobs away from it, its label this job away from others.
    options = ("--queues", "drained", "--label", "site=far")
    town.worker(server, *options, name="leaver", threads=2, app=APP)
    leaver = page.get_by_role("article", name="leaver")
    expect(leaver).to_contain_text("0 of 2 in use")
    gate = tmp_path / "gate"
    job = server.submit("hold", {"path": str(gate)}, queue="drained", labels={"site": "far"})["id"]
    expect(leaver.get_by_role("link", name="hold")).to_have_attribute("href", f"/dashboard/jobs/{job}")
    leaver.get_by_role("button", name="Drain leaver").click()
    page.get_by_role("button", name="Drain the worker").click()
    expect(leaver).to_contain_text("draining")
    gate.write_text("go", encoding="utf-8")
    assert server.ended(job)["status"] == "completed"
    expect(leaver.get_by_role("button", name="Drain leaver")).to_have_count(0)
    eventually(lambda: "leaver" not in {row["name"] for row in server.live_workers()}, 20)
    visitor.stayed()


def test_filter_by_url_and_reload(visitor: Visitor, server: Server) -> None:
    for n in range(3):
        server.ended(server.submit("echo_back", {"value": n}, name=f"needle {n}", queue="hay")["id"])
    page = visitor.visit("/jobs?q=queue:hay+status:completed")
    rows = page.get_by_role("row").filter(has_text="needle")
    expect(rows).to_have_count(3)
    box = page.get_by_role("combobox", name="Search jobs")
    box.fill('queue:hay "needle 1"')
    box.press("Enter")
    expect(rows).to_have_count(1)
    # The search is in the URL: another visitor sees the same.
    place = page.url
    assert "needle" in place
    visitor.stayed()
    page.reload()
    expect(rows).to_have_count(1)
    expect(box).to_have_value('queue:hay "needle 1"')


def test_a_new_job_appears_in_the_list_by_itself(visitor: Visitor, server: Server) -> None:
    page = visitor.visit("/jobs?q=queue:fresh")
    job = server.submit("echo_back", {"value": 1}, name="just born", queue="fresh")["id"]
    row = page.get_by_role("row").filter(has_text="just born")
    expect(row).to_contain_text("completed")
    row.get_by_text("just born").click()
    page.wait_for_url(f"**/jobs/{job}")
    visitor.stayed()


@pytest.mark.parametrize("key", ["g w", "g q", "g d", "g a", "g j"])
def test_pages_by_keyboard(visitor: Visitor, key: str) -> None:
    page = visitor.visit("/")
    for part in key.split():
        page.keyboard.press(part)
    places = {"g w": "workers", "g q": "queues", "g d": "dead-letters", "g a": "analytics", "g j": "jobs"}
    page.wait_for_url(f"**/dashboard/{places[key]}")
    visitor.stayed()
