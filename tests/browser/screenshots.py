"""Pictures of every page in both themes: `make screenshots` writes them to `docs/images/dashboard/`.

They show a real system with the shop of `dashboard_app`: workers that work, a queue that stands, jobs that fail.
"""

import argparse
import io
import random
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import httpx
from PIL import Image
from playwright.sync_api import Page

from tests.browser.chromium import chromium
from tests.browser.history import write_series
from tests.e2e.system import Server, System, eventually

TARGET: Final = Path(__file__).parents[2] / "docs" / "images" / "dashboard"
APP: Final = "dashboard_app:app"
SOURCE: Final = Path(__file__).parents[2]
WARM_UP_SECONDS: Final = 30.0
SECONDS_THERE: Final = {"overview": 10, "queues": 15, "job-running": 3}
SHOTS: Final[tuple[tuple[Literal["light", "dark"], int, str], ...]] = (
    ("light", 1280, ""),
    ("dark", 1280, ""),
    ("dark", 400, "-narrow"),
)
Colour = tuple[int, ...]
NARROW: Final = (
    "overview",
    "jobs",
    "job-running",
    "workers",
    "queues",
    "dead-letters",
    "analytics",
    "submit",
)
"""Pages that are also shown on a phone."""

# A picture is of anybody's machine, not of the one where it was taken.
ANYWHERE: Final = """names => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode())
    for (const [here, there] of Object.entries(names))
      if (texts.currentNode.data.includes(here))
        texts.currentNode.data = texts.currentNode.data.replaceAll(here, there);
}"""


class Traffic:
    """Customers of the shop, until told to stop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        rng = random.Random(3)
        with httpx.Client(base_url=self._url, timeout=10) as http:
            for tick in range(100_000):
                jobs = list(_orders(rng, tick))
                if jobs:
                    with suppress(httpx.TransportError):
                        http.post("/jobs/batch", json={"jobs": jobs})
                if self._stop.wait(0.25):
                    return


def _orders(rng: random.Random, tick: int) -> Iterator[dict[str, Any]]:
    order = 40_000 + tick
    for _ in range(rng.randint(0, 3)):
        to = f"{rng.choice(['ada', 'grace', 'edsger', 'barbara'])}@example.com"
        yield {"type": "send_mail", "queue": "mail", "payload": {"to": to}, "name": f"receipt {order}"}
    if tick % 2 == 0:
        yield {"type": "make_thumbnail", "queue": "images", "payload": {"path": f"/uploads/{order}.jpg"}}
    for _ in range(rng.randint(0, 2)):
        sku = f"SKU-{rng.randint(1000, 9999)}"
        yield {"type": "index_product", "queue": "search", "payload": {"sku": sku}, "max_attempts": 1}
    if tick % 3 == 0:
        payload = {"order": order, "amount": round(rng.uniform(5, 300), 2)}
        yield {
            "type": "charge_card",
            "queue": "billing",
            "payload": payload,
            "priority": 0,
            "max_attempts": 3,
        }
    if tick % 5 == 0:
        yield {"type": "write_invoice", "queue": "billing", "payload": {"order": order}, "max_attempts": 1}
    if tick % 16 == 0:
        name = f"orders-{order}.csv"
        yield {
            "type": "import_orders",
            "queue": "imports",
            "payload": {"file": name, "rows": 900 if tick % 48 == 0 else 220},
            "name": name,
            "labels": {},
            "metadata": {"source": "sftp", "customer": "acme"},
        }
    if tick % 40 == 0:
        yield {
            "type": "build_report",
            "queue": "reports",
            "payload": {"month": "2026-10", "region": rng.choice(["eu", "us", "apac"])},
            "name": "monthly report",
            "thread_demand": 2,
        }
    if tick % 12 == 0:
        totals = {"month": "2026-11"}
        yield {"type": "build_report", "queue": "nightly", "payload": totals, "name": "nightly totals"}


@contextmanager
def shop(folder: Path) -> Iterator[tuple[System, Server]]:
    """A system with a past and a present."""
    write_series(folder / "stoker.db", time.time_ns() // 1_000)
    with System(folder) as system:
        shutil.copy(Path(__file__).with_name("dashboard_app.py"), folder / "dashboard_app.py")
        server = system.serve(STOKER_AUTOSCALE="recommend", STOKER_RETRY_BACKOFF_BASE_SEC=2)
        for name, extra in (("forge-1", ()), ("forge-2", ()), ("kiln-1", ("--label", "zone=eu"))):
            system.worker(server, *extra, name=name, threads=4, app=APP)
        server.post("/queues/nightly/pause")
        with Traffic(server.url):
            yield system, server


def pages(server: Server) -> dict[str, tuple[Callable[[], str], Callable[[Page], None]]]:
    """Name of the picture, place, and what to wait for there."""

    def job(**filters: str) -> Callable[[], str]:
        return lambda: f"/jobs/{_some(server, **filters)}"

    def smallest_group() -> str:
        groups = server.get("/dlq/groups")["groups"]
        return f"/dead-letters?group={min(groups, key=lambda group: group['count'])['fingerprint']}"

    def shows(selector: str) -> Callable[[Page], None]:
        return lambda page: page.locator(selector).first.wait_for()

    return {
        "overview": (lambda: "/", shows(".uplot canvas")),
        "jobs": (lambda: "/jobs", shows("[role=row] >> nth=5")),
        "jobs-search": (lambda: "/jobs?q=status:failed+type:write_invoice", shows("[role=row] >> nth=1")),
        "job-running": (job(status="running", type="import_orders"), shows("[role=log]")),
        "job-failed": (job(status="failed", type="charge_card"), shows("pre")),
        "job-waiting": (job(status="queued", queue="nightly"), shows("text=Why is it not running?")),
        "workers": (lambda: "/workers", shows("article >> nth=2")),
        "queues": (lambda: "/queues", shows("text=/s >> nth=3")),
        "dead-letters": (smallest_group, shows("article table")),
        "analytics": (lambda: "/analytics?range=6h", shows(".uplot canvas")),
        "submit": (lambda: "/submit?type=import_orders", shows("main form")),
    }


def _some(server: Server, **filters: str) -> str:
    def found() -> str | None:
        jobs = server.get("/jobs", summary=1, limit=20, **filters)["jobs"]
        # The one that has most left to do.
        by_rest = sorted(jobs, key=lambda job: _rest(job["progress"]), reverse=True)
        return str(by_rest[0]["id"]) if by_rest else None

    return eventually(found, 60, f"a job with {filters}")


def _rest(progress: dict[str, Any] | None) -> float:
    return 0.0 if progress is None else float((progress["total"] or 0) - progress["done"])


def take(only: str | None, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, shop(Path(folder)) as (_, server), chromium() as browser:
        eventually(lambda: server.get("/dlq/groups")["total_groups"] >= 3, 180, "some failures")
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > WARM_UP_SECONDS, WARM_UP_SECONDS + 5)
        for theme, width, suffix in SHOTS:
            for name, (place, ready) in pages(server).items():
                if (only is not None and only not in name) or (suffix and name not in NARROW):
                    continue
                page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=theme)
                page.goto(f"{server.url}/dashboard{place()}")
                ready(page)
                page.locator('[data-phase="live"]').wait_for()
                # Rates and lines need a few seconds of them.
                page.wait_for_timeout(SECONDS_THERE.get(name, 1) * 1000)
                page.evaluate(
                    ANYWHERE,
                    {socket.gethostname(): "node-1", str(SOURCE): "/opt/stoker", folder: "/srv/shop"},
                )
                _save(page.screenshot(), target / f"{name}-{theme}{suffix}.png")
                page.close()


def _save(picture: bytes, path: Path) -> None:
    """In 256 colours, which makes it a third as large; every surface and every status keeps its own."""
    with Image.open(io.BytesIO(picture)) as opened:
        image = opened.convert("RGB")
    pixels = list(zip(*(channel.tobytes() for channel in image.split()), strict=True))
    palette, places = _palette(Counter(pixels))
    small = Image.new("P", image.size)
    small.putpalette([value for colour in palette for value in colour])
    small.frombytes(bytes(places[pixel] for pixel in pixels))
    small.save(path, optimize=True)


def _palette(colours: "Counter[Colour]") -> tuple[list[Colour], dict[Colour, int]]:
    """The commonest colours, then those that are farthest from all chosen ones; and for each colour its nearest."""
    palette: list[Colour] = []
    nearest: dict[Colour, tuple[int, int]] = dict.fromkeys(colours, (1 << 30, 0))
    common = [colour for colour, _ in colours.most_common(128)]
    while len(palette) < min(256, len(colours)):
        chosen = common[len(palette)] if len(palette) < len(common) else max(nearest, key=nearest.__getitem__)
        for colour, (far, _) in nearest.items():
            distance = sum((ours - theirs) ** 2 for ours, theirs in zip(colour, chosen, strict=True))
            if distance < far:
                nearest[colour] = (distance, len(palette))
        palette.append(chosen)
    return palette, {colour: place for colour, (_, place) in nearest.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="a part of the names of the pictures to take")
    parser.add_argument("--to", type=Path, default=TARGET)
    options = parser.parse_args()
    take(options.only, options.to)
