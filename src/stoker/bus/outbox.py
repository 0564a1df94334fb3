"""News that wait to be sent, merged; and their form on the line. No I/O.

While a message is under way, or the line is down, news gather here. Telling a coordinator twice to look again says no
more than once, so news merge: one `Work`, each id once, the newest progress of each job. Their number is bounded: while
the line is down, the oldest are dropped.

A message is a JSON object, `{"sender": …, "news": [ … ]}`, of at most as many bytes as the line takes. Each of the
news is read by itself, so that a coordinator of another version may send kinds that this one does not know.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from stoker.bus.base import Changed, Happened, News, ProgressOf, Watch

LIMIT: Final = 20_000
"""So many ids and single news wait at most."""


class Packet(msgspec.Struct, frozen=True):
    """A message as it came: who sent it, what could be read, and how many news could not."""

    sender: str
    news: list[News]
    unreadable: int = 0


class _Envelope(msgspec.Struct):
    sender: str
    news: list[msgspec.Raw]


_envelopes: Final = msgspec.json.Decoder(_Envelope)
_news: Final = msgspec.json.Decoder[News](News)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Outbox:
    """What waits to be sent."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._waiting: OrderedDict[tuple[Any, ...], News] = OrderedDict()
        self._windows = 0
        self.dropped = 0
        """How many ids and single news were given up, because too much waited or one alone was too long."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, news: News) -> None:
        match news:
            case Watch(ids) | Changed(ids):
                for id in ids:
                    self._put((type(news), id), news)
            case ProgressOf():
                self._add_progress(news)
            case Happened():  # each tells of another moment
                self._windows += 1
                self._put((Happened, self._windows), news)
            case _:
                self._put((news,), news)

    def _add_progress(self, news: ProgressOf) -> None:
        key = (ProgressOf, news.id)
        earlier = self._waiting.get(key)
        older = isinstance(earlier, ProgressOf) and earlier.claim_id > news.claim_id
        if not older and math.isfinite(news.done):  # what is not finite has no form in JSON
            self._put(key, news)

    def _put(self, key: tuple[Any, ...], news: News) -> None:
        self._waiting[key] = news
        if len(self._waiting) > self._limit:
            self._waiting.popitem(last=False)
            self.dropped += 1

    def take(self) -> list[News]:
        """Everything that waits, merged; nothing waits afterwards."""
        waiting, self._waiting = self._waiting, OrderedDict()
        watched = [key[1] for key in waiting if key[0] is Watch]
        changed = [key[1] for key in waiting if key[0] is Changed]
        taken: list[News] = [news for news in waiting.values() if not isinstance(news, Watch | Changed)]
        if watched:
            taken.append(Watch(watched))
        if changed:
            taken.append(Changed(changed))
        return taken

    def take_messages(self, sender: str, max_bytes: int) -> list[bytes]:
        """Everything that waits, as messages for the line."""
        taken = self.take()
        messages, too_long = pack(sender, taken, max_bytes)
        self.dropped += too_long
        return messages


def pack(sender: str, news: Iterable[News], max_bytes: int) -> tuple[list[bytes], int]:
    """Messages of at most `max_bytes` each, and how many news were too long for any. No news make one empty message."""
    begin = b'{"sender":' + msgspec.json.encode(sender) + b',"news":['
    room = max_bytes - len(begin) - len(b"]}")
    parts, too_long = _parts(news, room)
    groups = _filled(parts, room) if parts else [[]]
    return [begin + b",".join(group) + b"]}" for group in groups], too_long


def _parts(news: Iterable[News], room: int) -> tuple[list[bytes], int]:
    """Each of the news in its form on the line; long lists of ids in several that fit."""
    parts: list[bytes] = []
    too_long = 0
    for item in news:
        pieces = _cut(item, room) if isinstance(item, Watch | Changed) else [item]
        for piece in pieces:
            part = msgspec.json.encode(piece)
            if len(part) <= room:
                parts.append(part)
            else:
                too_long += 1
    return parts, too_long


def _cut(news: Watch | Changed, room: int) -> Iterator[Watch | Changed]:
    kind = type(news)
    empty = len(msgspec.json.encode(kind([])))
    sizes = {id: msgspec.json.encode(id) for id in news.ids}
    for group in _filled(sizes, room - empty, size_of=lambda id: len(sizes[id])):
        yield kind(group)


def _filled(items: Iterable[Any], room: int, size_of: Any = len) -> list[list[Any]]:
    """In order, each group filled with what fits, commas included. What is too long alone gets a group of its own."""
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
    """What a message says; None when it is none of ours."""
    try:
        envelope = _envelopes.decode(message)
    except _UNREADABLE:
        return None
    news: list[News] = []
    for raw in envelope.news:
        try:
            news.append(_news.decode(raw))
        except _UNREADABLE:
            continue
    return Packet(envelope.sender, news, len(envelope.news) - len(news))
