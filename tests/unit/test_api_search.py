"""The search language: what is understood, and that everything else is refused as a whole."""

from typing import Any

import pytest
from msgspec.structs import asdict

from stoker.api.problems import RequestProblem
from stoker.api.schemas.search import KEYS, parse_search
from stoker.store.reads import JobFilter
from tests.unit.test_api_service import FakeService, ask

NOW = 1_000_000_000_000_000
MINUTE = 60_000_000
HOUR = 60 * MINUTE


def meant(text: str) -> dict[str, Any]:
    """The fields that a search sets."""
    found, nothing = asdict(parse_search(text, NOW)), asdict(JobFilter())
    return {name: value for name, value in found.items() if value != nothing[name]}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("   ", {}),
        ("status:failed", {"status": "failed"}),
        ("status:failed,cancelled,failed", {"status": ("failed", "cancelled")}),
        ("STATUS:Failed", {"status": "failed"}),
        ("type:resize queue:mail", {"type": "resize", "queue": "mail"}),
        ("priority:0", {"priority": 0}),
        ("priority:Low", {"priority": 2}),
        ("priority:100", {"priority": 100}),
        ("worker:w1", {"worker": "w1"}),
        ("age:>10m", {"created_before": NOW - 10 * MINUTE}),
        ("age:10m", {"created_before": NOW - 10 * MINUTE}),
        ("age:<=1.5h", {"created_after": NOW - 90 * MINUTE}),
        ("age:>1h age:<1d", {"created_before": NOW - HOUR, "created_after": NOW - 24 * HOUR}),
        ("invoice 2041", {"text": "invoice 2041"}),
        ('"weekly  digest"', {"text": "weekly  digest"}),
        ('name:"weekly digest" status:queued', {"name": "weekly digest", "status": "queued"}),
        (r'name:"say \"hi\""', {"name": 'say "hi"'}),
        (r'name:"back\\slash"', {"name": r"back\slash"}),
        ("type:a:b", {"type": "a:b"}),
        ("0192f0c1-2345", {"text": "0192f0c1-2345"}),
        (":x", {"text": ":x"}),
        ('"colour:red"', {"text": "colour:red"}),
        ("fingerprint:3f2a", {"fingerprint": "3f2a"}),
    ],
)
def test_it_is_understood(text: str, fields: dict[str, Any]) -> None:
    assert meant(text) == fields


WRONG = [
    ("status:faild", "did you mean failed?"),
    ("status:failed,nope", "there is no status nope"),
    ("status:failed,", "a status is missing"),
    ("status:retrying", "status:scheduled"),
    ("status:", "needs a value"),
    ('type:""', "needs a value"),
    ("priority:101", "0 to 100"),
    ("priority:-1", "0 to 100"),
    ("priority:urgent", "high, normal, low"),
    ("age:soon", "age:>10m"),
    ("age:>2026-01-31", "age:>10m"),
    ("age:>1h age:>2h", "twice"),
    ("type:a type:b", "twice"),
    ("status:failed status:queued", "twice"),
    ("colour:red", "there is no key colour"),
    ("stauts:failed", "did you mean status?"),
    ("http://example.org", "there is no key http"),
    ('name:"half', "a quote is not closed"),
    ('name:half"', "a quote is not closed"),
    ('"half', "a quote is not closed"),
    ('""', "is empty"),
    ("type:größe", "may contain only"),
    ("name:a\x00b", "NUL"),
    ("a\x00b", "NUL"),
    ("x" * 300, "at most 256"),
]


@pytest.mark.parametrize(("text", "part"), WRONG)
def test_it_is_refused(text: str, part: str) -> None:
    with pytest.raises(RequestProblem) as refused:
        parse_search(text, NOW)
    assert part in refused.value.errors[0].message


def test_every_word_that_is_not_understood_is_named() -> None:
    with pytest.raises(RequestProblem) as refused:
        parse_search("status:faild type:x age:soon", NOW)
    first, second = (error.message for error in refused.value.errors)
    assert first.startswith("`status:faild`")
    assert second.startswith("`age:soon`")


@pytest.mark.parametrize("key", KEYS)
def test_no_key_goes_without_a_value(key: str) -> None:
    with pytest.raises(RequestProblem, match="needs a value"):
        parse_search(f"{key}:", NOW)


@pytest.mark.parametrize("text", [text for text, _ in WRONG])
def test_a_search_with_a_mistake_lists_nothing_and_changes_nothing(text: str) -> None:
    service = FakeService()
    listed = ask(service, "GET", "/jobs", params={"q": text})
    assert listed.status_code == 422
    assert {error["field"] for error in listed.json()["errors"]} == {"q"}
    bulk = ask(service, "POST", "/bulk", json={"action": "cancel", "filter": {"q": text}})
    assert bulk.status_code == 422
    assert {error["field"] for error in bulk.json()["errors"]} == {"filter.q"}
    assert service.bulk_rows == {}


def test_a_bulk_operation_takes_a_search() -> None:
    service = FakeService()
    answer = ask(
        service, "POST", "/bulk", json={"action": "retry", "filter": {"q": "status:failed type:echo"}}
    )
    assert answer.status_code == 202
    assert answer.json()["filter"] == {"status": "failed", "type": "echo"}
    (row,) = service.bulk_rows.values()
    assert row.filter == JobFilter("failed", "echo")


def test_a_search_and_fields_are_not_mixed() -> None:
    filter = {"q": "status:failed", "type": "echo", "status": "queued"}
    answer = ask(FakeService(), "POST", "/bulk", json={"action": "cancel", "filter": filter})
    assert answer.status_code == 422
    assert "cannot be combined with status, type" in answer.json()["detail"]
