"""Which types and failures free text is a part of."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from stoker.coordinator.text_search import is_in_failure, with_text
from stoker.domain.fingerprint import brief
from stoker.store.base import Store
from stoker.store.reads import Count, FailureSample, JobFilter

TRACE = 'Traceback (most recent call last):\n  File "/app/shop.py", line 3, in charge\n    pay(7)\n'


def sample(message: str, type: str = "ValueError") -> FailureSample:
    error = {"type": type, "message": message, "traceback": TRACE}
    return FailureSample("f1", "charge_card", msgspec.json.encode(error))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no lines", True),
        ("NO LINES", True),
        ("valueerror", True),
        ("ValueError: order", True),
        ("shop.py", True),
        ("pay(7)", False),
        ("order 7", False),
        ("7", False),
        ("gateway", False),
    ],
)
def test_text_is_looked_for_in_what_failures_of_a_kind_have_in_common(text: str, found: bool) -> None:
    assert is_in_failure(text.casefold(), sample("order 7 has no lines")) is found


class _Few:
    """A store with a few types and one kind of failure."""

    async def counts(self) -> list[Count]:
        return [
            Count("default", "resize_image", "queued", 1),
            Count("mail", "resize_image", "failed", 2),
            Count("mail", "send_mail", "failed", 0),
        ]

    async def failure_samples(self, limit: int) -> list[FailureSample]:
        return [sample("no disk to resize on")]


def searched(filter: JobFilter, store: Any = None) -> JobFilter:
    return asyncio.run(with_text(cast(Store, store or _Few()), filter))


def test_a_filter_with_text_gets_the_types_and_failures_it_is_a_part_of() -> None:
    wanted = JobFilter(text="Resize", status="failed")
    assert searched(wanted) == JobFilter(
        text="Resize", status="failed", text_types=("resize_image",), text_failures=("f1",)
    )


def test_without_text_nothing_is_asked() -> None:
    assert searched(JobFilter(type="a"), SimpleNamespace()) == JobFilter(type="a")


def test_an_error_in_a_list_has_its_type_and_the_beginning_of_its_message() -> None:
    assert brief(None) is None
    told = msgspec.json.decode(brief(sample("x" * 1_000).error) or b"")
    assert told == {"type": "ValueError", "message": "x" * 300}
    assert msgspec.json.decode(brief(b"not json") or b"")["message"] == "not json"
