"""Orders and reports, in one SQLite file that the API and the workers share (`SHOP_DATABASE`)."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY,
    email TEXT NOT NULL,
    cents INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'new',
    payment TEXT,
    report TEXT
);
CREATE TABLE IF NOT EXISTS reports (day TEXT PRIMARY KEY, orders INTEGER NOT NULL, cents INTEGER NOT NULL);
"""


class Order(NamedTuple):
    """A row of `orders`. Its status is new, paid or declined."""

    id: int
    email: str
    cents: int
    status: str
    payment: str | None


class Report(NamedTuple):
    """A row of `reports`: what was paid since the report before."""

    day: str
    orders: int
    cents: int


@contextmanager
def connect() -> Iterator[sqlite3.Connection]:
    """A connection with one transaction, which is committed unless the block raises."""
    connection = sqlite3.connect(os.environ.get("SHOP_DATABASE", "shop.db"), timeout=20)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def create_tables() -> None:
    with connect() as db:
        db.executescript(SCHEMA)


def add_order(email: str, cents: int) -> Order:
    with connect() as db:
        order_id = db.execute("INSERT INTO orders (email, cents) VALUES (?, ?)", (email, cents)).lastrowid
    assert order_id is not None
    return get_order(order_id)


def get_order(order_id: int) -> Order:
    """Return the order. Raises `LookupError`."""
    with connect() as db:
        row = db.execute(
            "SELECT id, email, cents, status, payment FROM orders WHERE id = ?", (order_id,)
        ).fetchone()
    if row is None:
        raise LookupError(f"there is no order {order_id}")
    return Order(*row)


def set_status(order_id: int, status: str, payment: str | None = None) -> None:
    with connect() as db:
        db.execute("UPDATE orders SET status = ?, payment = ? WHERE id = ?", (status, payment, order_id))


def write_report(day: str) -> Report:
    """Assign paid orders that no report has yet to this day's, and sum them up. A second call finds the same."""
    with connect() as db:
        db.execute("UPDATE orders SET report = ? WHERE status = 'paid' AND report IS NULL", (day,))
        count, cents = db.execute(
            "SELECT count(*), coalesce(sum(cents), 0) FROM orders WHERE report = ?", (day,)
        ).fetchone()
        db.execute("INSERT OR REPLACE INTO reports VALUES (?, ?, ?)", (day, count, cents))
    return Report(day, count, cents)


def reports() -> list[Report]:
    with connect() as db:
        return [Report(*row) for row in db.execute("SELECT day, orders, cents FROM reports ORDER BY day")]
