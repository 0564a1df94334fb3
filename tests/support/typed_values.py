"""Every kind of type that a task may take and return: an annotation, and a Hypothesis strategy for its values."""

import datetime as dt
import enum
import typing
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import attrs
import msgspec
import pydantic
from hypothesis import strategies as st

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flavour(enum.StrEnum):
    SWEET = enum.auto()
    SOUR = enum.auto()


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Shape:
    name: str
    points: list[Point] = field(default_factory=list)
    colour: Colour | None = None
    parent: "Shape | None" = None


@dataclass
class Box(Generic[T]):
    content: T


class Row(typing.TypedDict):
    id: int
    when: dt.date
    note: typing.NotRequired[str]


@attrs.define
class Widget:
    size: Decimal
    tags: frozenset[str] = frozenset()


class Event(msgspec.Struct):
    id: uuid.UUID
    at: dt.datetime
    kind: Literal["click", "key"] = "click"


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Model(pydantic.BaseModel):
    name: str
    at: dt.datetime | None = None
    path: Path = Path()
    inner: "Model | None" = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True)

    day: dt.date
    amount: Decimal
    items: tuple[int, ...] = ()


texts = st.text(st.characters(exclude_categories=["Cs"]))
floats = st.floats(allow_nan=False, allow_infinity=False)
ints = st.integers(-(2**80), 2**80)
minutes = st.integers(-14 * 60, 14 * 60).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))
naive = st.datetimes()
aware = st.datetimes(
    dt.datetime(1900, 1, 1),  # noqa: DTZ001 - the zones come by themselves
    dt.datetime(9000, 1, 1),  # noqa: DTZ001
    timezones=minutes,
)
times = st.times()
spans = st.timedeltas(dt.timedelta(days=-100_000), dt.timedelta(days=100_000))
decimals = st.decimals(allow_nan=False, allow_infinity=False)
paths = st.lists(st.text("abc. ", min_size=1), max_size=3).map(lambda parts: Path(*parts))
points = st.builds(Point, ints, ints)
shapes = st.builds(
    Shape,
    texts,
    st.lists(points, max_size=2),
    st.sampled_from(Colour) | st.none(),
    st.none() | st.builds(Shape, texts),
)
rows = st.fixed_dictionaries({"id": ints, "when": st.dates()}, optional={"note": texts})
widgets = st.builds(Widget, decimals, st.frozensets(texts, max_size=2))
events = st.builds(Event, st.uuids(), aware, st.sampled_from(["click", "key"]))
models = st.builds(
    Model, name=texts, at=st.none() | aware, path=paths, inner=st.none() | st.builds(Model, name=texts)
)
stricts = st.builds(
    Strict, day=st.dates(), amount=decimals, items=st.lists(st.integers(), max_size=2).map(tuple)
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | ints | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)

TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (int, ints),
    "float": (float, floats),
    "str": (str, texts),
    "bool": (bool, st.booleans()),
    "none": (None, st.none()),
    "any": (Any, json_values),
    "list": (list[int], st.lists(ints, max_size=3)),
    "dict": (dict[str, float], st.dictionaries(texts, floats, max_size=3)),
    "sequence": (Sequence[int], st.lists(ints, max_size=3)),
    "mapping": (Mapping[str, int], st.dictionaries(texts, ints, max_size=3)),
    "int keys": (dict[int, str], st.dictionaries(st.integers(), texts, max_size=3)),
    "uuid keys": (dict[uuid.UUID, int], st.dictionaries(st.uuids(), ints, max_size=3)),
    "date keys": (dict[dt.date, int], st.dictionaries(st.dates(), ints, max_size=3)),
    "enum keys": (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), ints)),
    "datetime": (dt.datetime, naive | aware),
    "date": (dt.date, st.dates()),
    "time": (dt.time, times),
    "timedelta": (dt.timedelta, spans),
    "uuid": (uuid.UUID, st.uuids()),
    "decimal": (Decimal, decimals),
    "enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "str enum": (Flavour, st.sampled_from(Flavour)),
    "bytes": (bytes, st.binary()),
    "bytearray": (bytearray, st.binary().map(bytearray)),
    "path": (Path, paths),
    "pure path": (PurePosixPath, paths.map(PurePosixPath)),
    "set": (set[int], st.sets(ints, max_size=3)),
    "frozenset": (frozenset[dt.date], st.frozensets(st.dates(), max_size=3)),
    "tuple": (tuple[int, str, Colour], st.tuples(ints, texts, st.sampled_from(Colour))),
    "long tuple": (tuple[Decimal, ...], st.lists(decimals, max_size=3).map(tuple)),
    "named tuple": (Pair, st.builds(Pair, ints, texts)),
    "literal": (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    "optional": (dt.timedelta | None, st.none() | spans),
    "union": (int | str | list[int] | None, st.none() | ints | texts | st.lists(ints, max_size=2)),
    "tagged union": (Cat | Dog, st.builds(Cat, ints) | st.builds(Dog, texts)),
    "annotated": (Annotated[int, msgspec.Meta(ge=0)], st.integers(0)),
    "dataclass": (Shape, shapes),
    "generic dataclass": (Box[uuid.UUID], st.builds(Box, st.uuids())),
    "typed dict": (Row, rows),
    "attrs": (Widget, widgets),
    "struct": (Event, events),
    "model": (Model, models),
    "strict model": (Strict, stricts),
    "union of models": (Model | Strict | None, models | stricts | st.none()),
    "models by name": (
        dict[str, list[Model]],
        st.dictionaries(texts, st.lists(models, max_size=2), max_size=2),
    ),
    "nested": (
        dict[str, list[tuple[Shape, Widget | None]]],
        st.dictionaries(texts, st.lists(st.tuples(shapes, widgets | st.none()), max_size=2), max_size=2),
    ),
}
