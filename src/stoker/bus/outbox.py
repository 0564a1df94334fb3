"""The notifications that wait to be sent, and the format of messages. No I/O.

While a message is under way, or the bus is not connected, notifications are collected here and merged: one `JobsWaiting`,
each id once, the newest progress of each job. Beyond a limit the oldest are dropped.

A message is a JSON object, `{"sender": …, "news": [ … ]}`, of at most as many bytes as the bus takes (`news` are the
notifications). Each is decoded by itself, so that coordinators of other versions may send kinds that this one does not know.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from stoker.bus.base import Changed, Happened, Notification, ProgressOf, Watch

LIMIT: Final = 20_000
"""The most ids and other notifications that wait."""


class Packet(msgspec.Struct, frozen=True):
    """A received message: its sender, the notifications that could be decoded, and how many could not."""

    sender: str
    notifications: list[Notification]
    unreadable: int = 0


class _Envelope(msgspec.Struct):
    sender: str
    notifications: list[msgspec.Raw] = msgspec.field(name="news")


_envelopes: Final = msgspec.json.Decoder(_Envelope)
_notification: Final = msgspec.json.Decoder[Notification](Notification)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Outbox:
    """The notifications that wait to be sent."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._waiting: OrderedDict[tuple[Any, ...], Notification] = OrderedDict()
        self._windows = 0
        self.dropped = 0
        """How many ids and other notifications were dropped, because too many waited or one was too long."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, notification: Notification) -> None:
        match notification:
            case Watch(ids) | Changed(ids):
                for id in ids:
                    self._put((type(notification), id), notification)
            case ProgressOf():
                self._add_progress(notification)
            case Happened():  # each is another window, so they are not merged
                self._windows += 1
                self._put((Happened, self._windows), notification)
            case _:
                self._put((notification,), notification)

    def _add_progress(self, notification: ProgressOf) -> None:
        key = (ProgressOf, notification.id)
        earlier = self._waiting.get(key)
        older = isinstance(earlier, ProgressOf) and earlier.claim_id > notification.claim_id
        if not older and math.isfinite(notification.done):  # JSON has only finite numbers
            self._put(key, notification)

    def _put(self, key: tuple[Any, ...], notification: Notification) -> None:
        self._waiting[key] = notification
        if len(self._waiting) > self._limit:
            self._waiting.popitem(last=False)
            self.dropped += 1

    def take(self) -> list[Notification]:
        """Remove and return everything that waits, merged."""
        waiting, self._waiting = self._waiting, OrderedDict()
        watched = [key[1] for key in waiting if key[0] is Watch]
        changed = [key[1] for key in waiting if key[0] is Changed]
        taken: list[Notification] = [
            notification for notification in waiting.values() if not isinstance(notification, Watch | Changed)
        ]
        if watched:
            taken.append(Watch(watched))
        if changed:
            taken.append(Changed(changed))
        return taken

    def take_messages(self, sender: str, max_bytes: int) -> list[bytes]:
        """Remove and return everything that waits, as messages."""
        taken = self.take()
        messages, too_long = pack(sender, taken, max_bytes)
        self.dropped += too_long
        return messages


def pack(sender: str, notifications: Iterable[Notification], max_bytes: int) -> tuple[list[bytes], int]:
    """Return messages of at most `max_bytes` each, and how many notifications were too long for one. Without notifications
    there is one empty message."""
    begin = b'{"sender":' + msgspec.json.encode(sender) + b',"news":['
    room = max_bytes - len(begin) - len(b"]}")
    parts, too_long = _parts(notifications, room)
    groups = _filled(parts, room) if parts else [[]]
    return [begin + b",".join(group) + b"]}" for group in groups], too_long


def _parts(notifications: Iterable[Notification], room: int) -> tuple[list[bytes], int]:
    """Encode each notification, split where its ids would not fit, and count those that are too long."""
    parts: list[bytes] = []
    too_long = 0
    for item in notifications:
        pieces = _cut(item, room) if isinstance(item, Watch | Changed) else [item]
        for piece in pieces:
            part = msgspec.json.encode(piece)
            if len(part) <= room:
                parts.append(part)
            else:
                too_long += 1
    return parts, too_long


def _cut(notification: Watch | Changed, room: int) -> Iterator[Watch | Changed]:
    kind = type(notification)
    empty = len(msgspec.json.encode(kind([])))
    sizes = {id: msgspec.json.encode(id) for id in notification.ids}
    for group in _filled(sizes, room - empty, size_of=lambda id: len(sizes[id])):
        yield kind(group)


def _filled(items: Iterable[Any], room: int, size_of: Any = len) -> list[list[Any]]:
    """Group items in order, each group filled with what fits, commas included. An item that is too long is a group alone."""
    groups: list[list[Any]] = []
    left = -1
    for item in items:
        size = size_of(item) + 1
        if size > left or not groups:
            groups.append([])
            left = room + 1
        groups[-1].append(item)
        left -= size
    return groups


def unpack(message: bytes | str) -> Packet | None:
    """Decode a message; None when it is not one of ours."""
    try:
        envelope = _envelopes.decode(message)
    except _UNREADABLE:
        return None
    notifications: list[Notification] = []
    for raw in envelope.notifications:
        try:
            notifications.append(_notification.decode(raw))
        except _UNREADABLE:
            continue
    return Packet(envelope.sender, notifications, len(envelope.notifications) - len(notifications))
