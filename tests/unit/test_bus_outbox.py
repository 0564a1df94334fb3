"""Notifications on their way: merging, bounds, and their form on the line."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.bus.base import CancelClaim, Changed, DrainSession, JobsWaiting, Notification, ProgressOf, Watch
from stoker.bus.outbox import Outbox, pack, unpack

EVERY_KIND: list[Notification] = [
    JobsWaiting(),
    Watch(["a", "b"]),
    Changed(["c"]),
    CancelClaim("session", "job", 7),
    DrainSession("session"),
    ProgressOf("job", 7, 1.5, 3.0, 'half "way"\n\x00', 50.0),
]


def progress(id: str, claim_id: int, done: float) -> ProgressOf:
    return ProgressOf(id, claim_id, done, None, None, None)


def sent(messages: list[bytes]) -> list[Notification]:
    """What a receiver reads from the messages."""
    notifications: list[Notification] = []
    for message in messages:
        packet = unpack(message)
        assert packet is not None
        assert packet.unreadable == 0
        notifications += packet.notifications
    return notifications


def test_all_that_waits_is_taken_once() -> None:
    outbox = Outbox()
    for notification in EVERY_KIND:
        outbox.add(notification)
    taken = outbox.take()
    assert sorted(map(repr, taken)) == sorted(map(repr, EVERY_KIND))
    assert len(outbox) == 0
    assert outbox.take() == []


def test_what_says_the_same_is_said_once() -> None:
    outbox = Outbox()
    for _ in range(3):
        outbox.add(JobsWaiting())
        outbox.add(CancelClaim("s", "j", 1))
        outbox.add(DrainSession("s"))
    outbox.add(CancelClaim("s", "j", 2))
    assert outbox.take() == [
        JobsWaiting(),
        CancelClaim("s", "j", 1),
        DrainSession("s"),
        CancelClaim("s", "j", 2),
    ]


def test_ids_are_merged_and_the_two_kinds_of_them_kept_apart() -> None:
    outbox = Outbox()
    outbox.add(Watch(["a", "b"]))
    outbox.add(Changed(["b", "c"]))
    outbox.add(Watch(["b", "d"]))
    outbox.add(Changed(["c", "a"]))
    assert outbox.take() == [Watch(["a", "b", "d"]), Changed(["b", "c", "a"])]


def test_of_progress_the_newest_of_each_job_is_kept() -> None:
    outbox = Outbox()
    outbox.add(progress("a", 1, 10))
    outbox.add(progress("b", 1, 20))
    outbox.add(progress("a", 1, 11))
    outbox.add(progress("a", 2, 0))
    outbox.add(progress("a", 1, 12))  # an earlier claim, come late
    assert outbox.take() == [progress("a", 2, 0), progress("b", 1, 20)]


def test_progress_that_is_not_a_number_is_not_passed_on() -> None:
    outbox = Outbox()
    outbox.add(progress("a", 1, math.nan))
    outbox.add(progress("b", 1, math.inf))
    assert outbox.take() == []


def test_with_nobody_to_take_them_the_oldest_go_and_are_counted() -> None:
    outbox = Outbox(limit=3)
    outbox.add(JobsWaiting())
    outbox.add(Changed(["a", "b", "c", "d"]))
    assert len(outbox) == 3
    assert outbox.dropped == 2
    assert outbox.take() == [Changed(["b", "c", "d"])]


@pytest.mark.parametrize("notification", EVERY_KIND, ids=lambda notification: type(notification).__name__)
def test_every_kind_comes_through_as_it_was(notification: Notification) -> None:
    messages, too_long = pack("me", [notification], 8_000)
    assert too_long == 0
    assert sent(messages) == [notification]


def test_no_notifications_make_an_empty_message_that_names_its_sender() -> None:
    [message], _ = pack("me", [], 8_000)
    packet = unpack(message)
    assert packet is not None
    assert (packet.sender, packet.notifications) == ("me", [])


@given(
    st.lists(st.text(max_size=60), unique=True, max_size=200),
    st.lists(st.text(max_size=30), unique=True, max_size=40),
    st.integers(500, 3_000),
)
def test_no_message_is_longer_than_the_line_takes_and_nothing_is_missing(
    ids: list[str], sessions: list[str], max_bytes: int
) -> None:
    notifications: list[Notification] = [*map(DrainSession, sessions), *([Changed(ids)] if ids else [])]
    messages, too_long = pack("sender", notifications, max_bytes)
    assert too_long == 0
    assert max(map(len, messages)) <= max_bytes
    got = sent(messages)
    assert [item for item in got if isinstance(item, DrainSession)] == list(map(DrainSession, sessions))
    assert [id for item in got if isinstance(item, Changed) for id in item.ids] == ids


def test_ids_fill_messages_to_the_brim() -> None:
    ids = [f"{number:036}" for number in range(1_000)]
    messages, _ = pack("sender", [Changed(ids)], 7_900)
    assert len(messages) == 5  # 39 bytes an id: 201 ids in each


def test_what_is_too_long_alone_is_left_out_and_counted() -> None:
    outbox = Outbox()
    outbox.add(DrainSession("x" * 500))
    outbox.add(Changed(["a", "y" * 500, "b"]))
    messages = outbox.take_messages("me", 300)
    assert [item.ids for item in sent(messages) if isinstance(item, Changed)] == [["a"], ["b"]]
    assert outbox.dropped == 2


@pytest.mark.parametrize(
    "message",
    [b"", b"hello", b"\xff\xfe", b"[]", b'{"sender":1,"news":[]}', b'{"news":[]}', b"[" * 100_000, "ü"],
    ids=["empty", "text", "no-utf8", "list", "bad-sender", "no-sender", "deep", "str"],
)
def test_what_is_no_message_is_nothing(message: bytes | str) -> None:
    assert unpack(message) is None


def test_of_a_message_what_can_be_read_is_read() -> None:
    message = msgspec.json.encode(
        {
            "sender": "newer",
            "news": [
                {"type": "Work"},
                {"type": "Unheard", "of": 1},
                {"type": "Changed", "ids": [1]},
                5,
            ],
        }
    )
    packet = unpack(message)
    assert packet is not None
    assert packet.notifications == [JobsWaiting()]
    assert packet.unreadable == 3
