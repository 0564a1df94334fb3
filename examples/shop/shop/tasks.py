"""What the shop does in the background: `stoker worker --app shop.tasks:app`.

A worker may die at any moment, and its job then runs again. So every task can run twice and do its work once: the bank
gets a key that belongs to the order, the receipt one that belongs to the payment, and a report is for a day.
"""

from zoneinfo import ZoneInfo

from shop import database
from shop.services import BankUnavailable, CardDeclined, bank, mail
from stoker import Fail, Retry, Stoker, current_job

BERLIN = ZoneInfo("Europe/Berlin")

app = Stoker(name="shop", version=1)


@app.task(queue="payments", timeout_sec=60, retry=Retry(delays_sec=[5, 30, 300], on=BankUnavailable))
def charge_card(order_id: int) -> str:
    """Charge the card for an order. Four attempts if the bank does not answer; one if it says no."""
    order = database.get_order(order_id)
    try:
        payment = bank.charge(key=f"order-{order_id}", cents=order.cents)
    except CardDeclined as error:
        database.set_status(order_id, "declined")
        raise Fail(f"the card was declined: {error}") from error
    database.set_status(order_id, "paid", payment)
    send_receipt.options(idempotency_key=f"receipt-{payment}").submit(order_id)
    return payment


@app.task(queue="mail", max_attempts=5, timeout_sec=30)
def send_receipt(order_id: int) -> None:
    """Tell the customer that the order is paid."""
    order = database.get_order(order_id)
    mail.send(order.email, f"Your receipt for order {order.id}: {order.cents / 100:.2f} EUR")


@app.cron("0 2 * * *", timezone="Europe/Berlin")
@app.task
def nightly_report() -> str:
    """Sum up what was paid since the last report, at two in the morning in Berlin."""
    tick = current_job().scheduled_for
    if tick is None:
        raise Fail("a report is for a day; run it by its schedule: stoker schedules trigger nightly_report")
    report = database.write_report(tick.astimezone(BERLIN).date().isoformat())
    return f"{report.day}: {report.orders} orders, {report.cents / 100:.2f} EUR"


def pay(order_id: int) -> str:
    """Submit the charge of an order, and return the id of its job. While it is not over, there is one for an order."""
    return charge_card.options(unique_key=f"order-{order_id}").submit(order_id).id
