"""Text that wants to be code, or to break the page, in every field that a job can carry."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visitor
from tests.e2e.system import Server

CODE: Final = "window.canary='sang'"
CORPUS: Final = [
    f"<script>{CODE}</script>",
    f'"><img src=x onerror="{CODE}">',
    f"<svg/onload={CODE}>",
    f"javascript:{CODE}",
    f"data:text/html,<script>{CODE}</script>",
    f"'-{CODE}-'",
    f"{{{{constructor.constructor(`{CODE}`)()}}}} ${{{CODE}}} #{{{CODE}}} <%= {CODE} %>",
    "\u202egnp.exe\u2066 mirrored \u2069\u202c",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349a\u0489l\u0489g\u0489o"
    * 8,
    "\033[31;1mred\033[0m\033]8;;javascript:alert(1)\007link\033]8;;\007\033[2J\033[1;1H\033[5m\a\b\x7f",
    "👩‍👩‍👧‍👦🏳️‍🌈🇦🇶" * 20,
    "\0\u0001\ufeff\u200b\u2028\u2029\ufffd",
    "__proto__",
    "W" * 10_000,
    "null",
    " " * 300 + "after a long silence",
]
BENT: Final = [text.replace("\0", "") for text in CORPUS]


def specs(text: str) -> list[dict[str, Any]]:
    """Jobs with this text wherever it fits: one that fails with it, one that returns it, two that wait with it."""
    short, word = text[:256], text[:128] or "x"
    common = {"name": short, "queue": word, "metadata": {"value": short}, "max_attempts": 1}
    return [
        {"type": "shout", "payload": {"text": text}, **common},
        {"type": "echo_back", "payload": {"value": {text: [text]}}, **common},
        {"type": word, "payload": text, **common},
        {
            "type": "echo",
            "payload": text,
            "labels": {"kind": short},
            "metadata": {word: short},
            "name": short,
        },
    ]


def submitted(server: Server, wanted: dict[str, Any]) -> str | None:
    """With as many of the fields as the server takes: it refuses some characters in some of them."""
    answer = server.http.post("/jobs", json=wanted)
    if answer.status_code == 202:
        return str(answer.json()["id"])
    refused = {error["field"].partition(".")[0].partition("[")[0] for error in answer.json()["errors"]}
    left = {name: value for name, value in wanted.items() if name not in refused}
    return submitted(server, left) if "type" in left else None


@pytest.fixture(scope="module")
def jobs(server: Server) -> dict[str, list[str]]:
    """Jobs that carry the corpus, by text; the first of each has failed with it."""
    made: dict[str, list[str]] = {}
    for text in BENT:
        made[text] = [id for wanted in specs(text) if (id := submitted(server, wanted)) is not None]
    for text, (failing, *_) in made.items():
        assert text.strip()[:50] in server.ended(failing)["error"]["message"]
    return made


def is_whole(page: Page) -> None:
    """Nothing ran, and the page does not scroll sideways."""
    assert page.evaluate("window.canary") is None
    wide = page.evaluate(
        "[document.documentElement, document.body, document.querySelector('main')]"
        ".map(e => e.scrollWidth - e.clientWidth)"
    )
    assert max(wide) <= 0, f"wider than the window by {wide} at {page.url}"
    assert page.locator('a[href^="javascript:" i], a[href^="data:" i]').count() == 0


@pytest.mark.parametrize("width", [400, 1280])
def test_lists_and_groups_show_it_as_text(
    new_visitor: Callable[..., Visitor], server: Server, jobs: dict[str, list[str]], width: int
) -> None:
    visitor = new_visitor(server.url, width=width)
    for place in (
        "/jobs",
        "/",
        "/workers",
        "/queues",
        "/dead-letters",
        "/analytics",
        "/analytics?by=queue",
        "/submit",
    ):
        page = visitor.visit(place)
        expect(page.locator("main .pulse.block")).to_have_count(0)
        is_whole(page)
    page = visitor.visit("/dead-letters")
    for button in page.locator("article button[aria-expanded=false]").all()[:4]:
        button.click()
        expect(page.locator("article table").first).to_be_visible()
        is_whole(page)
    visitor.stayed()


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_of_a_job_shows_it_as_text(
    new_visitor: Callable[..., Visitor], server: Server, jobs: dict[str, list[str]], width: int
) -> None:
    visitor = new_visitor(server.url, width=width)
    for text, (failing, *others) in jobs.items():
        page = visitor.visit(f"/jobs/{failing}")
        error = page.get_by_role("region", name="Error", exact=True)
        expect(error).to_be_visible()
        expect(page.get_by_role("log")).to_be_visible()
        is_whole(page)
        if text.startswith("<"):
            expect(error).to_contain_text(text)
        # Where there is little room everything else that carries it as well: results, labels, why it waits.
        for job in others if width == 400 else ():
            page = visitor.visit(f"/jobs/{job}")
            expect(page.get_by_role("region", name="Payload")).to_be_visible()
            is_whole(page)
    visitor.stayed()


@pytest.mark.parametrize("text", [CORPUS[0], CORPUS[1], CORPUS[3], CORPUS[6], CORPUS[13][:2000]])
def test_the_url_is_text_as_well(visitor: Visitor, server: Server, text: str) -> None:
    word = quote(text, safe="")
    for place in (
        f"/jobs?q={word}",
        f"/analytics?key={word}",
        f"/submit?type={word}",
        f"/dead-letters?group={word}",
    ):
        page = visitor.visit(place)
        expect(page.locator("main .pulse.block")).to_have_count(0)
        is_whole(page)
    page = visitor.page
    page.goto(f"{server.url}/dashboard/jobs/{word}")
    expect(page.get_by_text("There is no such job")).to_be_visible()
    is_whole(page)
    # That nothing is there was asked of the server, which the console says.
    assert [line for line in visitor.complaints.heard if "status of 4" not in line] == []
