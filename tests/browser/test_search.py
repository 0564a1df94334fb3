"""The search of the list of jobs: what it finds, and that a mistake in it finds nothing."""

import re
import uuid

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visitor
from tests.e2e.system import Server


@pytest.fixture
def kept(server: Server) -> list[str]:
    """Jobs that wait, and must go on waiting."""
    name = f"kept-{uuid.uuid4().hex[:8]}"
    server.post(f"/queues/{name}/pause")
    return [server.submit("echo_back", {"value": n}, name=name, queue=name)["id"] for n in range(3)]


def cancel_all_that_is_listed(page: Page) -> None:
    """What somebody does who takes the list for the answer to their search, as far as the page lets them."""
    page.keyboard.press("Control+a")
    cancel = page.get_by_role("toolbar", name="Selected jobs").get_by_role("button", name="Cancel")
    if cancel.count() and cancel.is_enabled():
        cancel.click()
    else:
        page.keyboard.press("c")
    confirm = page.get_by_role("dialog").get_by_role("button", name=re.compile("^Cancel all"))
    if confirm.count():
        confirm.click()
        expect(page.get_by_text("looked at")).to_be_visible()


@pytest.mark.parametrize(
    ("typo", "told"),
    [
        ("status:faild", "did you mean failed?"),
        ("stauts:failed", "did you mean status?"),
        ("status:", "needs a value"),
        ("age:>yesterday", "an age is written"),
        ("priority:urgent", "high, normal, low"),
        ('type:"echo_back', "a quote is not closed"),
        ('""', "is empty"),
    ],
)
def test_a_search_with_a_mistake_lists_nothing_and_cancels_nothing(
    visitor: Visitor, server: Server, kept: list[str], typo: str, told: str
) -> None:
    queue = server.job(kept[0])["queue"]
    page = visitor.visit(f"/jobs?q=queue:{queue}")
    rows = page.get_by_role("row").filter(has_text=queue)
    expect(rows).to_have_count(3)
    box = page.get_by_role("combobox", name="Search jobs")
    with page.expect_response(lambda answer: "/jobs?" in answer.url and "kept" not in answer.url):
        box.fill(typo)
        box.press("Enter")
    cancel_all_that_is_listed(page)
    assert [server.status(job) for job in kept] == ["queued"] * 3
    expect(page.get_by_role("row")).to_have_count(0)
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_text(told).first).to_be_visible()
    expect(page.get_by_role("toolbar", name="Selected jobs")).to_have_count(0)
    expect(page.get_by_role("button", name="Export")).to_be_disabled()
    # Once it is right, it lists again.
    box.fill(f"queue:{queue} status:queued")
    box.press("Enter")
    expect(rows).to_have_count(3)
    expect(box).to_have_attribute("aria-invalid", "false")


def test_what_is_asked_about_stays_what_it_was_when_the_list_moves(visitor: Visitor, server: Server) -> None:
    server.post("/queues/moving/pause")
    first = server.submit("echo_back", {"value": 1}, name="the first", queue="moving")["id"]
    page = visitor.visit("/jobs?q=queue:moving")
    expect(page.get_by_role("row").filter(has_text="the first")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("c")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("the first")
    later = server.submit("echo_back", {"value": 2}, name="the second", queue="moving")["id"]
    expect(page.get_by_text("the second")).to_be_visible()
    expect(dialog).to_contain_text("the first")
    dialog.get_by_role("button", name="Cancel 1 job").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("row").filter(has_text="the first")).to_contain_text("cancelled")
    assert (server.status(first), server.status(later)) == ("cancelled", "queued")
    server.post("/queues/moving/resume")
    visitor.stayed()


def test_words_are_found_in_types_and_errors_and_the_list_says_how_jobs_failed(
    visitor: Visitor, server: Server
) -> None:
    job = server.submit("shout", {"text": "Zebra crossed the road"}, name="crossing", max_attempts=1)["id"]
    assert server.ended(job)["status"] == "failed"
    server.ended(server.submit("talk", {"lines": ["x"]}, name="quiet")["id"])
    page = visitor.visit("/jobs?q=zebra")
    row = page.get_by_role("row").filter(has_text="crossing")
    expect(row).to_be_visible()
    box = page.get_by_role("combobox", name="Search jobs")
    box.fill("status:failed crossed the road")
    box.press("Enter")
    expect(page.get_by_role("columnheader", name="Error")).to_be_visible()
    expect(row).to_contain_text("Zebra crossed the road")
    box.fill("TAL")
    box.press("Enter")
    expect(page.get_by_role("row").filter(has_text="quiet")).to_be_visible()
    expect(row).to_have_count(0)
    visitor.stayed()


def test_a_job_that_backs_off_is_retrying_and_says_until_when(visitor: Visitor, server: Server) -> None:
    rules = {"delays_sec": [45] * 8}  # long enough to be looked at on a busy machine
    job = server.submit("shout", {"text": "not yet"}, name="stubborn", retry=rules)["id"]
    page = visitor.visit("/jobs?q=stubborn")
    row = page.get_by_role("row").filter(has_text="stubborn")
    expect(row).to_contain_text("retrying")
    page.goto(f"{server.url}/dashboard/jobs/{job}")
    header = page.get_by_role("region", name="Job", exact=True)
    expect(header).to_contain_text(re.compile(r"retrying.*attempt \d of 9, in \d+ s"))
    server.post(f"/jobs/{job}/cancel")
