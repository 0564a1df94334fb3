"""What axe finds on each page, in both themes and on a phone."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visitor
from tests.e2e.system import Server

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
SETTLED = """Promise.all(document.getAnimations()
  .filter(animation => animation.effect.getTiming().iterations !== Infinity)
  .map(animation => animation.finished.catch(() => null)))"""
PLACES = [
    "/",
    "/jobs",
    "/jobs/{job}",
    "/jobs/{failed}",
    "/workers",
    "/queues",
    "/schedules",
    "/schedules?name=axe",
    "/dead-letters",
    "/analytics",
    "/submit",
]


@functools.cache
def axe() -> str:
    return AXE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def places(server: Server) -> dict[str, str]:
    server.submit("hold", {"path": "/nowhere", "seconds": 120}, name="runs on")
    body = {"cron": "0 9 * * 1-5", "paused": True, "job": {"type": "echo_back", "payload": {"value": 1}}}
    server.http.put("/schedules/axe", json=body).raise_for_status()
    server.http.post("/schedules/axe/trigger").raise_for_status()
    value = {"list": [1, "two", None, {"deep": True}]}
    done = server.submit("echo_back", {"value": value}, labels={}, metadata={"who": "me"})
    failed = server.submit("shout", {"text": "for \033[31mred\033[0m axe"}, max_attempts=1)
    return {"job": server.ended(done["id"])["id"], "failed": server.ended(failed["id"])["id"]}


def violations(page: Page) -> list[str]:
    """Serious ones, each with where it is."""
    # What is still fading in has not its colours yet.
    page.evaluate(SETTLED)
    # Code that a test evaluates is not the page's own, so its policy does not refuse it.
    page.evaluate(axe())
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['impact']} {rule['id']}: {json.dumps([node['html'][:160] for node in rule['nodes'][:3]])}"
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_violation(
    new_visitor: Callable[..., Visitor], server: Server, places: dict[str, str], dark: bool
) -> None:
    visitor = new_visitor(server.url, dark=dark)
    found = {}
    for place in PLACES:
        page = visitor.visit(place.format(**places))
        expect(page.locator("main .pulse.block")).to_have_count(0)
        if violated := violations(page):
            found[place] = violated
    assert found == {}
    visitor.stayed()


def test_no_serious_violation_on_a_phone_nor_in_dialogs(
    new_visitor: Callable[..., Visitor], server: Server, places: dict[str, str]
) -> None:
    visitor = new_visitor(server.url, width=400)
    found = {}
    for place in ("/", "/jobs", "/jobs/{job}", "/workers", "/queues", "/schedules", "/dead-letters"):
        page = visitor.visit(place.format(**places))
        expect(page.locator("main .pulse.block")).to_have_count(0)
        if violated := violations(page):
            found[place] = violated
    page = visitor.visit("/workers")
    page.get_by_role("button", name="Drain crew").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    found["drain"] = violations(page)
    page.keyboard.press("Escape")
    page = visitor.visit("/schedules")
    page.get_by_role("button", name="Edit axe").click()
    expect(page.get_by_label("Preview").get_by_role("listitem")).to_have_count(5)
    found["schedule"] = violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    found["help"] = violations(page)
    assert not any(found.values()), found
    visitor.stayed()
