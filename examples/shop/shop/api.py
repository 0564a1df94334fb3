"""The REST API of the shop: `uvicorn shop.api:api`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from shop import database
from shop.tasks import app, pay
from stoker import StokerError

PRICES = {"tea": 450, "kettle": 3_900, "cup": 800}
"""In cents."""


class Item(BaseModel):
    """So many of one thing."""

    sku: str
    quantity: int = Field(ge=1, le=100)


class NewOrder(BaseModel):
    """What a customer sends."""

    email: str = Field(pattern=r"^[^@\s]+@[^@\s]+$")
    items: list[Item] = Field(min_length=1)


class OrderView(BaseModel):
    """An order as customers see it."""

    id: int
    email: str
    cents: int
    status: str
    payment: str | None


class PaymentView(BaseModel):
    """The job that charges the card."""

    job_id: str
    order_id: int


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    database.create_tables()
    yield
    await app.aclose()


api = FastAPI(title="Shop", lifespan=lifespan)


@api.post("/orders", status_code=201)
def create_order(new: NewOrder) -> OrderView:
    """Store an order and charge the card in the background."""
    order = database.add_order(new.email, sum(_price(item) for item in new.items))
    _pay(order.id)
    return _view(order)


@api.get("/orders/{order_id}")
def read_order(order_id: int) -> OrderView:
    return _view(_order(order_id))


@api.post("/orders/{order_id}/payment", status_code=202)
def pay_again(order_id: int) -> PaymentView:
    """Try the card again after it was declined. Two clicks make one charge."""
    order = _order(order_id)
    if order.status == "paid":
        raise HTTPException(409, "this order is paid")
    return PaymentView(job_id=_pay(order_id), order_id=order_id)


@api.get("/reports")
def list_reports() -> list[dict[str, object]]:
    return [report._asdict() for report in database.reports()]


def _pay(order_id: int) -> str:
    try:
        return pay(order_id)
    except StokerError as error:
        # The order is stored; the customer can pay for it as soon as jobs are taken again.
        raise HTTPException(503, f"order {order_id} is stored, but cannot be paid now") from error


def _price(item: Item) -> int:
    if item.sku not in PRICES:
        raise HTTPException(422, f"there is no {item.sku}")
    return PRICES[item.sku] * item.quantity


def _order(order_id: int) -> database.Order:
    try:
        return database.get_order(order_id)
    except LookupError as error:
        raise HTTPException(404, str(error)) from None


def _view(order: database.Order) -> OrderView:
    return OrderView(**order._asdict())
