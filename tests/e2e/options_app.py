"""Tasks with options of their own, with names that built-in types have, and with values that are more than JSON."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from uuid import UUID

from stoker import Stoker, current_job

app = Stoker()


@app.task(
    queue="mail",
    priority=0,
    timeout_sec=30,
    max_attempts=7,
    thread_demand=2,
    memory_mb=900,
    on_oversize="wait",
    labels={"role": "mailer"},
    metadata={"team": "post"},
)
def send(to: str) -> str:
    """Sends a letter."""
    return f"{to} by {current_job().queue} on {current_job().threads}"


@app.task
def plain() -> str:
    return "as ever"


@app.task
def echo(text: str) -> str:
    return f"mine: {text}"


@app.task
async def sleep(seconds: float = 0) -> str:
    return f"mine: {seconds}"


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Parcel:
    path: Path
    size: Size = Size.SMALL
    sent_at: datetime | None = None


@app.task
def pack(parcels: list[Parcel], price: Decimal, number: UUID) -> dict[str, Parcel]:
    assert all(isinstance(parcel.path, Path) for parcel in parcels)
    assert (type(price), type(number)) == (Decimal, UUID)
    return {parcel.path.name: Parcel(parcel.path.parent, Size.LARGE, parcel.sent_at) for parcel in parcels}


@app.task
async def where(path: Path) -> Path | None:
    return path.parent


@app.task
def wrongly(text: str) -> int:
    return text  # type: ignore[return-value]  # that is what the test is about
