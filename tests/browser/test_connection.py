"""When the server goes away, comes back, or asks who is there."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.conftest import APP, Visitor
from tests.e2e.system import System

NewVisitor = Callable[..., Visitor]


def test_a_killed_coordinator_is_told_and_nothing_is_missed_when_it_is_back(
    system: System, new_visitor: NewVisitor
) -> None:
    server = system.serve()
    worker = system.worker(server, name="crew", threads=2, app=APP)
    watching, other = new_visitor(server.url), new_visitor(server.url)
    page = watching.visit("/jobs?q=queue:lasting")
    first = server.submit("echo_back", {"value": 1}, name="before", queue="lasting")["id"]
    rows = page.get_by_role("row").filter(has_text="echo_back")
    expect(rows.filter(has_text="completed")).to_have_count(1)
    waiting = other.visit(f"/jobs/{first}")
    expect(waiting.locator('[data-status="completed"]')).to_be_visible()

    server.kill()
    expect(page.locator("[data-phase]")).to_have_attribute("data-phase", "unreachable")
    expect(page.get_by_text("server unreachable")).to_be_visible()
    expect(page).to_have_title("(unreachable) Jobs · Stoker")

    # Somebody submits while the page is still trying to come back: what happened meanwhile shows as well.
    again = system.serve(port=server.port)
    for n in range(3):
        again.ended(again.submit("echo_back", {"value": n}, name=f"meanwhile {n}", queue="lasting")["id"], 60)
    watching.is_live()
    expect(rows.filter(has_text="completed")).to_have_count(4)
    last = again.submit("echo_back", {"value": 1}, name="after", queue="lasting")["id"]
    expect(rows.filter(has_text="after")).to_contain_text("completed")
    assert again.ended(last)["status"] == "completed"
    assert worker.running
    assert page.evaluate("window.mark") == "still the same page"
    other.is_live()


def test_it_asks_for_the_token_when_the_server_needs_one(system: System, new_visitor: NewVisitor) -> None:
    server = system.serve(token="a-token-of-some-length-for-this-test")
    visitor = new_visitor(server.url)
    page = visitor.page
    page.goto(f"{server.url}/dashboard/queues")
    dialog = page.get_by_role("dialog", name="This server needs its token")
    dialog.get_by_label("Token").fill("wrong")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_contain_text("did not accept")
    dialog.get_by_label("Token").fill("a-token-of-some-length-for-this-test")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog).to_have_count(0)
    visitor.is_live()
    expect(page.get_by_text("No queues yet")).to_be_visible()
    assert "a-token" not in page.url
