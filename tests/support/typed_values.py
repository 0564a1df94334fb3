"""Every kind of type that a task may take and return: an annotation, and a Hypothesis strategy for its values."""

import datetime as dt
import enum
import typing
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar

import attrs
import msgspec
import pydantic
from hypothesis import strategies as st

T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flavour(enum.StrEnum):
    SWEET = enum.auto()
    SOUR = enum.auto()


class Right(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Bit(enum.IntFlag):
    ONE = 1
    TWO = 2


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


@dataclass(frozen=True, slots=True)
class Parcel:
    id: UserId
    _: KW_ONLY
    parts: list[bytes] = field(default_factory=list)
    to: Path = Path()
    weight: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", sum(map(len, self.parts)))


@dataclass
class Box(Generic[T]):
    content: T


class Row(typing.TypedDict):
    id: int
    when: dt.date
    note: typing.NotRequired[str]


class Sparse(typing.TypedDict, total=False):
    id: typing.Required[int]
    raw: bytes
    prices: dict[str, Decimal]


@attrs.frozen
class Converted:
    number: int = attrs.field(converter=int, validator=attrs.validators.instance_of(int))
    tags: frozenset[str] = attrs.field(converter=frozenset, factory=frozenset, kw_only=True)


@attrs.define
class Crate(Generic[T]):
    content: T


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


class Checked(pydantic.BaseModel):
    """A model whose validators change what they are given."""

    model_config = pydantic.ConfigDict(populate_by_name=True)

    email: str = pydantic.Field(alias="e-mail")
    number: Annotated[int, pydantic.Field(ge=0)] = 0

    @pydantic.field_validator("email")
    @classmethod
    def lower(cls, email: str) -> str:
        if "@" not in email:
            raise ValueError("an address has an @")
        return email.casefold()

    @pydantic.model_validator(mode="after")
    def even(self) -> "Checked":
        self.number -= self.number % 2
        return self


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
    raw: pydantic.Base64Bytes = b""


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
parcels = st.builds(Parcel, ints.map(UserId), parts=st.lists(st.binary(max_size=3), max_size=2), to=paths)
sparse = st.fixed_dictionaries(
    {"id": ints},
    optional={"raw": st.binary(), "prices": st.dictionaries(texts, decimals, max_size=2)},
)
checked = st.builds(Checked, email=st.text("ab@C", max_size=4).map("x@".__add__), number=st.integers(0))
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
    "path keys": (dict[Path, int], st.dictionaries(paths, ints, max_size=3)),
    "decimal keys": (dict[Decimal, int], st.dictionaries(decimals, ints, max_size=3)),
    "bytes by name": (dict[str, bytes], st.dictionaries(texts, st.binary(), max_size=3)),
    "paths by name": (dict[str, Path | None], st.dictionaries(texts, st.none() | paths, max_size=3)),
    "new type": (UserId, ints.map(UserId)),
    "new types": (dict[UserId, list[UserId]], st.dictionaries(ints, st.lists(ints, max_size=2), max_size=2)),
    "datetime": (dt.datetime, naive | aware),
    "date": (dt.date, st.dates()),
    "time": (dt.time, times | st.times(timezones=minutes)),
    "timedelta": (dt.timedelta, spans),
    "uuid": (uuid.UUID, st.uuids()),
    "decimal": (Decimal, decimals),
    "enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "str enum": (Flavour, st.sampled_from(Flavour)),
    "flag": (Right, st.sampled_from([Right(0), *Right, Right.READ | Right.RUN, ~Right(0)])),
    "int flag": (Bit, st.sampled_from([Bit(0), *Bit, Bit.ONE | Bit.TWO])),
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
    "literal texts": (list[Literal["a", "b"]], st.lists(st.sampled_from(["a", "b"]), max_size=2)),
    "optional": (dt.timedelta | None, st.none() | spans),
    "union": (int | str | list[int] | None, st.none() | ints | texts | st.lists(ints, max_size=2)),
    "tagged union": (Cat | Dog, st.builds(Cat, ints) | st.builds(Dog, texts)),
    "annotated": (Annotated[int, msgspec.Meta(ge=0)], st.integers(0)),
    "dataclass": (Shape, shapes),
    "frozen dataclass": (Parcel, parcels),
    "generic dataclass": (Box[uuid.UUID], st.builds(Box, st.uuids())),
    "typed dict": (Row, rows),
    "sparse typed dict": (Sparse, sparse),
    "attrs": (Widget, widgets),
    "attrs with converters": (
        Converted,
        st.builds(Converted, st.integers().map(str), tags=st.lists(texts, max_size=2)),
    ),
    "generic attrs": (Crate[Decimal | None], st.builds(Crate, st.none() | decimals)),
    "struct": (Event, events),
    "model": (Model, models),
    "model with validators": (Checked, checked),
    "generic model": (Page[int], st.builds(Page[int], items=st.lists(st.integers(), max_size=2))),
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
