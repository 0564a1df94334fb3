"""A real system and a real browser, shared by the tests; every test has a fresh visitor."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import Complaints, chromium, executable
from tests.e2e.system import Server, System

APP = "dashboard_app:app"
TOOLS = Path(__file__).parent
PATIENCE_MS = 20_000
"""A busy machine is not a defect."""

expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if TOOLS in item.path.parents]
    for item in ours:
        if item.path.name == "test_load.py" and os.environ.get("DASHBOARD_LOAD") != "1":
            item.add_marker(pytest.mark.skip(reason="heavy; `make dashboard-load` runs it"))
        elif os.environ.get("BROWSER_TESTS") != "1":
            item.add_marker(pytest.mark.skip(reason="needs Chromium and both cores: `make browser-test`"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    assert executable() is not None, "Chromium is required here (Debian: chromium), and there is none"
    with chromium() as browser:
        yield browser


def new_system(folder: Path) -> System:
    system = System(folder)
    shutil.copy(TOOLS / "dashboard_app.py", folder / "dashboard_app.py")
    return system


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """A system of the test's own, with nothing running yet."""
    with new_system(tmp_path) as system:
        yield system


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The system that most tests share."""
    with new_system(tmp_path_factory.mktemp("town")) as town:
        yield town


@pytest.fixture(scope="session")
def server(town: System) -> Server:
    server = town.serve(STOKER_RETRY_BACKOFF_BASE_SEC=1)
    town.worker(server, name="crew", threads=4, app=APP)
    return server


class Visitor:
    """Somebody at the dashboard, who never reloads it unless they say so."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints = Complaints(page)
        self._marked = False

    def visit(self, place: str = "/") -> Page:
        """Open the dashboard at a place, and wait until it is live."""
        self.page.goto(f"{self.url}/dashboard{place}")
        self.is_live()
        self.page.evaluate("window.mark = 'still the same page'")
        self._marked = True
        return self.page

    def is_live(self) -> None:
        expect(self.page.locator('[data-phase="live"]')).to_be_visible()

    def stayed(self) -> None:
        """The page was never loaded again, and nothing went wrong on it."""
        if self._marked:
            assert self.page.evaluate("window.mark") == "still the same page"
        assert self.complaints.heard == []


@pytest.fixture
def new_visitor(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    pages: list[Page] = []

    def make(url: str, width: int = 1280, height: int = 800, dark: bool = False) -> Visitor:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        pages.append(page)
        return Visitor(page, url)

    yield make
    for page in pages:
        page.context.close()


@pytest.fixture
def visitor(new_visitor: Callable[..., Visitor], server: Server) -> Visitor:
    return new_visitor(server.url)
