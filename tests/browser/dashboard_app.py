"""Tasks for the dashboard's tests and pictures: a small shop, and a few that do exactly what a test asks."""

import random
import sys
import time
from typing import Any

from stoker import Stoker
from stoker.context import current_job, progress

app = Stoker()


# ── what a test asks ─────────────────────────────────────────────────────────────────────────────────────────────────


@app.task
def talk(lines: list[str], pause: float = 0.0) -> int:
    """Write these lines, one after the other."""
    for done, line in enumerate(lines, 1):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        progress(done, len(lines), line)
        time.sleep(pause)
    return len(lines)


@app.task
def hold(path: str, seconds: float = 60.0) -> str:
    """Run until this file is there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            time.sleep(0.02)
    return "nobody came"


@app.task(max_attempts=1)
def flaky(path: str, order: int) -> str:
    """Fail until this file is there."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise ValueError(f"order {order} has no lines") from None


@app.task(max_attempts=1)
def shout(text: str) -> None:
    """Fail with whatever it is given, as the type of the error as well, and say it."""
    sys.stderr.write(text + "\n")
    progress(1, 2, text)
    raise type(text[:200] or "Silence", (RuntimeError,), {})(text)


@app.task
def echo_back(value: Any) -> Any:
    """Say and return what it is given."""
    sys.stdout.write(f"{value}\n")
    progress(1, 1, str(value)[:500])
    return value


# ── the shop ─────────────────────────────────────────────────────────────────────────────────────────────────────────

GREEN, YELLOW, CYAN, DIM, BOLD, PLAIN = "\033[32m", "\033[33m", "\033[36m", "\033[2m", "\033[1m", "\033[0m"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@app.task(queue="mail")
def send_mail(to: str, subject: str = "Your order") -> dict[str, Any]:
    """Send a message to one address."""
    time.sleep(random.uniform(0.02, 0.2))
    return {"to": to, "accepted": True}


@app.task(queue="images")
def make_thumbnail(path: str, width: int = 320) -> dict[str, Any]:
    """Make a small picture of a large one."""
    time.sleep(random.uniform(0.2, 1.2))
    return {"path": path.replace(".jpg", f"_{width}.webp"), "bytes": random.randint(9_000, 60_000)}


@app.task(queue="imports")
def import_orders(file: str, rows: int = 200, pace: float = 0.02) -> dict[str, Any]:
    """Read a file of orders into the shop."""
    say(f"{DIM}reading{PLAIN} {BOLD}{file}{PLAIN}")
    skipped = 0
    for row in range(1, rows + 1):
        time.sleep(pace * random.uniform(0.5, 1.5))
        if row % 37 == 0:
            skipped += 1
            say(f"{YELLOW}warning{PLAIN}  row {row}: no postcode, skipped")
        elif row % 10 == 0:
            say(f"{GREEN}ok{PLAIN}       {row - 9} to {row} {DIM}in {random.uniform(8, 40):.1f} ms{PLAIN}")
        progress(row, rows, f"row {row} of {file}")
    say(f"{CYAN}done{PLAIN}     {rows - skipped} orders, {skipped} skipped")
    return {"orders": rows - skipped, "skipped": skipped, "ledger": 9_007_199_254_740_993_123, "took": "fine"}


@app.task(queue="reports", timeout_sec=600)
def build_report(month: str, region: str = "all", seconds: float = 12.0) -> dict[str, Any]:
    """Sum up a month."""
    parts = 40
    for part in range(1, parts + 1):
        time.sleep(seconds / parts)
        progress(part, parts, f"{region}: part {part}")
    return {"month": month, "region": region, "pages": random.randint(4, 30)}


@app.task(queue="billing", max_attempts=2)
def charge_card(order: int, amount: float) -> str:
    """Take money for an order."""
    time.sleep(random.uniform(0.05, 0.3))
    if order % 11 == 0:
        raise ConnectionError(f"gateway did not answer within 250 ms for order {order}")
    return f"paid {amount:.2f}"


@app.task(queue="billing", max_attempts=1)
def write_invoice(order: int) -> str:
    """Make the invoice of an order."""
    time.sleep(random.uniform(0.02, 0.1))
    if order % 7 == 0:
        return _address(order)["street"]
    return f"/invoices/2026/{order}.pdf"


def _address(order: int) -> dict[str, str]:
    return {"name": f"customer {order}"}


@app.task(queue="search")
def index_product(sku: str) -> str:
    """Put a product into the search index."""
    time.sleep(random.uniform(0.01, 0.08))
    if sku.endswith("99"):
        raise LookupError(f"no product with sku '{sku}'")
    return f"{sku} indexed at attempt {current_job().attempt}"
