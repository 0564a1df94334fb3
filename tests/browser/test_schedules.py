"""Schedules in the dashboard, and a job that is changed while it waits."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import Visitor
from tests.e2e.system import Server


def test_make_a_schedule_with_a_preview_trigger_it_pause_it_and_delete_it(
    visitor: Visitor, server: Server
) -> None:
    page = visitor.visit("/schedules")
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog", name="New schedule")
    expression, preview = dialog.get_by_label("Cron expression"), dialog.get_by_label("Preview")
    expression.fill("61 9 * * *")
    expect(expression).to_have_attribute("aria-invalid", "true")
    expect(preview.get_by_role("listitem")).to_have_count(0)
    expression.fill("30 9 * * 1-5")
    expect(expression).to_have_attribute("aria-invalid", "false")
    expect(preview.get_by_role("listitem")).to_have_count(5)
    expect(preview).to_contain_text("Monday to Friday at 09:30")
    zone = dialog.get_by_label("Timezone")
    zone.fill("Europe/Nowhere")
    expect(zone).to_have_attribute("aria-invalid", "true")
    zone.fill("Europe/Berlin")
    expect(preview).to_contain_text(re.compile(r"(Mon|Tue|Wed|Thu|Fri), .* 09:30:00"))

    name = dialog.get_by_label("Name")
    name.fill("not a name")
    dialog.get_by_label("Type").fill("echo_back")
    dialog.get_by_label("Payload").fill('{"value": 12345678901234567890123}')
    dialog.get_by_label("While an earlier job has not ended").select_option("skip")
    dialog.get_by_role("button", name="Create schedule").click()
    expect(name).to_have_attribute("aria-invalid", "true")
    expect(dialog.get_by_text("may contain only letters")).to_be_visible()
    name.fill("digest")
    dialog.get_by_role("button", name="Create schedule").click()
    expect(dialog).to_have_count(0)

    card = page.get_by_role("article", name="digest", exact=True)
    expect(card).to_contain_text("Monday to Friday at 09:30")
    expect(card).to_contain_text("Europe/Berlin")
    stored = server.http.get("/schedules/digest")
    assert "12345678901234567890123" in stored.text
    assert stored.json()["overlap"] == "skip"

    card.get_by_role("button", name="Trigger now: digest").click()
    page.get_by_role("status").get_by_role("link").click()
    page.wait_for_url("**/jobs/*")
    expect(page.locator('[data-status="completed"]')).to_be_visible()
    page.get_by_role("region", name="Rules").get_by_role("link", name="digest").click()
    page.wait_for_url("**/schedules?name=digest")
    expect(card.get_by_role("link", name="completed")).to_be_visible()
    expect(card.locator('[data-outcome="fired"]')).to_have_count(1)
    expect(page.get_by_role("list", name="Ticks")).to_contain_text("by hand")

    card.get_by_role("button", name="Pause digest").click()
    expect(card).to_contain_text("none while it is paused")
    assert server.get("/schedules/digest")["paused"] is True

    card.get_by_role("button", name="Edit digest").click()
    editor = page.get_by_role("dialog", name="Edit digest")
    expect(editor.get_by_label("Payload")).to_have_value(re.compile("12345678901234567890123"))
    editor.get_by_role("button", name="Interval").click()
    editor.get_by_label("Every").fill("15m")
    editor.get_by_role("button", name="Save changes").click()
    expect(editor).to_have_count(0)
    expect(card).to_contain_text("every 15 m")
    changed = server.get("/schedules/digest")
    assert (changed["cron"], changed["every_sec"], changed["paused"]) == (None, 900, True)

    card.get_by_role("button", name="Delete digest").click()
    page.get_by_role("button", name="Delete the schedule").click()
    expect(page.get_by_text("There is no such schedule")).to_be_visible()
    assert server.http.get("/schedules/digest").status_code == 404
    assert [each for each in visitor.complaints.heard if "404" not in each and "422" not in each] == []


def test_change_a_job_while_it_waits_and_be_told_when_it_is_too_late(
    visitor: Visitor, server: Server
) -> None:
    server.post("/queues/shut/pause")
    job = server.submit("echo_back", {"value": 1}, queue="shut", unique_key="the one")["id"]
    page = visitor.visit(f"/jobs/{job}")
    expect(page.get_by_role("region", name="Rules")).to_contain_text("the one")
    page.get_by_role("button", name="Edit", exact=True).click()
    dialog = page.get_by_role("dialog", name="Edit the job")
    priority = dialog.get_by_label("Priority")
    priority.fill("101")
    dialog.get_by_role("button", name="Save changes").click()
    expect(priority).to_have_attribute("aria-invalid", "true")
    priority.fill("0")
    dialog.get_by_label("Payload").fill('{"value": "changed"}')
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("region", name="Job", exact=True)).to_contain_text("high")
    assert server.job(job)["priority"] == 0

    page.get_by_role("button", name="Edit", exact=True).click()
    priority.fill("2")
    server.post("/queues/shut/resume")
    assert server.ended(job)["result"] == "changed"
    dialog.get_by_role("button", name="Save changes").click()
    expect(dialog.get_by_role("alert")).to_contain_text("the job no longer waits")
    assert server.job(job)["priority"] == 0
