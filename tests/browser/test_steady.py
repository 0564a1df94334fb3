"""What is shown holds still where somebody points at it, and does not claim what is not known."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import APP, Visitor
from tests.e2e.system import Server, System

NewVisitor = Callable[..., Visitor]
UNKNOWN = "\N{EN DASH}"


def shout(server: Server, text: str) -> None:
    """One more failure of this kind; each text is a kind of its own."""
    job = server.submit("shout", {"text": text}, max_attempts=1)["id"]
    assert server.ended(job)["status"] == "failed"


def group(page: Page, text: str) -> Locator:
    return page.get_by_role("article", name=f"{text} in shout")


def order(page: Page, *texts: str) -> list[str]:
    """These kinds of failures, from top to bottom."""
    found = [(box["y"], text) for text in texts if (box := group(page, text).bounding_box())]
    return [text for _, text in sorted(found)]


def dead_letters(system: System, new_visitor: NewVisitor) -> tuple[Server, Visitor, Page]:
    server = system.serve()
    system.worker(server, name="crew", threads=2, app=APP)
    shout(server, "Alpha")
    shout(server, "Beta")
    visitor = new_visitor(server.url)
    page = visitor.visit("/dead-letters")
    expect(group(page, "Alpha")).to_be_visible()
    assert order(page, "Alpha", "Beta") == ["Beta", "Alpha"]
    return server, visitor, page


def test_dead_letters_do_not_move_under_the_pointer(system: System, new_visitor: NewVisitor) -> None:
    server, visitor, page = dead_letters(system, new_visitor)
    group(page, "Beta").hover()
    shout(server, "Alpha")
    expect(group(page, "Alpha")).to_contain_text("Retry all 2 jobs")
    assert order(page, "Alpha", "Beta") == ["Beta", "Alpha"]
    shout(server, "Gamma")
    newer = page.get_by_role("button", name="1 new")
    expect(newer).to_be_visible()
    assert order(page, "Alpha", "Beta") == ["Beta", "Alpha"]
    expect(group(page, "Gamma")).to_have_count(0)
    newer.click()
    expect(group(page, "Gamma")).to_be_visible()
    assert order(page, "Alpha", "Beta", "Gamma") == ["Gamma", "Alpha", "Beta"]
    # Away from the list, it is kept up to date by itself.
    page.mouse.move(5, 5)
    shout(server, "Beta")
    expect(group(page, "Beta")).to_contain_text("Retry all 2 jobs")
    assert order(page, "Alpha", "Beta", "Gamma") == ["Beta", "Gamma", "Alpha"]
    visitor.stayed()


def test_an_open_question_stays_modal_and_about_the_group_it_was_asked_for(
    system: System, new_visitor: NewVisitor
) -> None:
    server, visitor, page = dead_letters(system, new_visitor)
    # By keyboard, so that no pointer holds the list still.
    page.mouse.move(5, 5)
    discard = group(page, "Beta").get_by_role("button", name="Discard", exact=True)
    discard.evaluate("button => button.click()")
    dialog = page.get_by_role("dialog", name="Discard this group?")
    expect(page.locator("dialog:modal")).to_have_count(1)
    shout(server, "Alpha")
    shout(server, "Gamma")
    expect(page.get_by_text("4 jobs failed for good in 3 ways")).to_be_visible()
    expect(page.locator("dialog:modal")).to_have_count(1)
    dialog.get_by_role("button", name="Discard 1 job").click()
    expect(dialog).to_have_count(0)
    expect(group(page, "Beta")).to_have_count(0)
    expect(group(page, "Alpha")).to_be_visible()
    left = {row["error_type"]: row["count"] for row in server.http.get("/dlq/groups").json()["groups"]}
    assert left == {"Alpha": 2, "Gamma": 1}
    visitor.stayed()


def tile(page: Page, label: str) -> Locator:
    return page.locator("dl > div").filter(has=page.get_by_text(label, exact=False)).first


def test_the_success_rate_is_of_the_chosen_time(system: System, new_visitor: NewVisitor) -> None:
    server = system.serve()
    system.worker(server, name="crew", threads=2, app=APP)
    shout(server, "Alpha")
    for n in range(3):
        server.ended(server.submit("echo_back", {"value": n})["id"])
    page = new_visitor(server.url).visit("/")
    expect(tile(page, "Success rate, last 15m")).to_contain_text("75.0 %")
    expect(tile(page, "Success rate, last 15m")).to_contain_text("of 4 jobs that ended")
    page.get_by_role("button", name="6h").click()
    expect(tile(page, "Success rate, last 6h")).to_contain_text("75.0 %")


def test_with_the_server_away_nothing_is_claimed(system: System, new_visitor: NewVisitor) -> None:
    server = system.serve()
    system.worker(server, name="crew", threads=2, app=APP)
    for n in range(3):
        server.ended(server.submit("echo_back", {"value": n}, name=f"before {n}")["id"])
    overview, jobs = new_visitor(server.url), new_visitor(server.url)
    page, listed = overview.visit("/"), jobs.visit("/jobs")
    expect(tile(page, "Completed")).to_contain_text("3 in all")
    expect(listed.get_by_text("3 jobs", exact=True)).to_be_visible()
    server.kill()
    expect(page.get_by_text("The server has not answered since")).to_be_visible()
    expect(tile(page, "Completed")).to_contain_text(re.compile(rf"{UNKNOWN}\s*/s"))
    assert page.locator("dl > div[data-stale]").count() == page.locator("dl > div").count()
    expect(listed.get_by_text(f"{UNKNOWN} jobs", exact=True)).to_be_visible()
    # Another list, which was never seen: it is not known to be empty.
    listed.get_by_role("button", name="failed").click()
    expect(listed.get_by_text("Server unreachable")).to_be_visible()
    expect(listed.get_by_text(f"{UNKNOWN} jobs", exact=True)).to_be_visible()
    expect(listed.get_by_text("0 jobs", exact=True)).to_have_count(0)


def test_a_form_that_lacks_something_is_not_sent_and_marks_it(visitor: Visitor, server: Server) -> None:
    page = visitor.visit("/submit?type=send_mail")
    address = page.get_by_role("textbox", name="to *", exact=True)
    address.fill("")
    code = page.get_by_role("region", name="Copy as code")
    expect(code).to_contain_text("Fill in to.")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    page.get_by_role("button", name="Submit job").click()
    expect(page.get_by_role("alert")).to_have_text("Not sent. Fill in to.")
    expect(address).to_have_attribute("aria-invalid", "true")
    expect(address).to_be_focused()
    assert sent == []
    address.fill("ada@example.org")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(code).to_contain_text("ada@example.org")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url("**/jobs/*")
    visitor.stayed()


def test_a_point_with_nothing_beside_it_is_drawn(visitor: Visitor, server: Server) -> None:
    """Run times exist only for steps in which something ran: one of them is a point, not a line."""
    visitor.page.route(re.compile(r"/series\?"), lambda route: route.fulfill(json=lonely_series()))
    page = visitor.visit("/analytics")
    chart = page.get_by_role("img", name="Run time")
    expect(chart.locator("canvas")).to_be_visible()
    assert chart.locator("canvas").evaluate(COLOURED) > 10
    visitor.stayed()


COLOURED = """canvas => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let coloured = 0;
    for (let at = 0; at < data.length; at += 4) {
        const [red, green, blue, alpha] = data.slice(at, at + 4);
        // Grid and words are grey; lines and points are not.
        if (alpha > 128 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) coloured += 1;
    }
    return coloured;
}"""


def lonely_series() -> dict[str, object]:
    """Twenty minutes, in one of which something ran."""
    start = datetime(2026, 1, 31, 12, tzinfo=UTC)
    empty = {
        "submitted": 0,
        "completed": 0,
        "failed": 0,
        "cancelled": 0,
        "retried": 0,
        "wait_p50_sec": None,
        "wait_p95_sec": None,
        "run_p50_sec": None,
        "run_p95_sec": None,
        "queue_depth_max": None,
        "threads_used_max": None,
        "threads_max": None,
        "workers_max": None,
        "autoscaler_wanted": None,
    }
    times = [(start + timedelta(minutes=n)).isoformat() for n in range(21)]
    points: list[dict[str, object]] = [{**empty, "at": at} for at in times[:20]]
    points[10] = {**points[10], "run_p50_sec": 1.0, "run_p95_sec": 2.0}
    return {"from": times[0], "to": times[20], "step_sec": 60, "points": points}
