"""Types whose values would arrive with less than was sent are refused where the task is defined."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import attrs
import pydantic
import pytest

from stoker import Stoker
from stoker.client.arguments import encode_arguments
from stoker.client.errors import TaskError
from stoker.client.requests import JobInfo
from stoker.domain.json_losses import loss


@attrs.define
class Private:
    name: str
    _balance: int = 0


class Secret(pydantic.BaseModel):
    password: pydantic.SecretStr | None = None


class Renamed(pydantic.BaseModel):
    size: int = pydantic.Field(0, serialization_alias="bytes")


class Excluded(pydantic.BaseModel):
    size: int = pydantic.Field(0, exclude=True)


class Outer(pydantic.BaseModel):
    inner: list[Secret] = []


@dataclass
class Account:
    owners: dict[str, Private] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Private, "'_balance' of Private is private"),
        (Account, "'_balance' of Private is private"),
        (Secret, "field 'password' of Secret is a secret, which pydantic writes as asterisks"),
        (list[Outer | None], "field 'password' of Secret is a secret"),
        (Outer | Excluded, "field 'password' of Secret is a secret"),
        (Renamed, "field 'size' of Renamed is written as 'bytes' and not read by that name"),
        (Excluded, "field 'size' of Excluded is excluded from its JSON"),
        (dict[tuple[int, int], str], "keys of a dict cannot be of type tuple in JSON"),
        (list[dict[bool, str]], "keys of a dict cannot be of type bool in JSON"),
    ],
)
def test_what_would_be_lost_is_refused(kind: Any, said: str) -> None:
    app = Stoker()

    def take(value=None):  # type: ignore[no-untyped-def]
        ...

    def give():  # type: ignore[no-untyped-def]
        ...

    take.__annotations__ = {"value": kind}
    give.__annotations__ = {"return": kind}
    with pytest.raises(TaskError) as taken:
        app.task(take)
    with pytest.raises(TaskError) as given:
        app.task(give)
    assert said in str(taken.value)
    assert said in str(given.value)


class Written(pydantic.BaseModel):
    """Secrets that say themselves how they are written."""

    key: pydantic.SecretStr
    other: Annotated[
        pydantic.SecretStr, pydantic.PlainSerializer(lambda secret: secret.get_secret_value())
    ] = pydantic.SecretStr("")

    @pydantic.field_serializer("key")
    def plain(self, key: pydantic.SecretStr) -> str:
        return key.get_secret_value()


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)

    size: int = pydantic.Field(alias="bytes")
    colour: str = pydantic.Field("red", validation_alias=pydantic.AliasChoices("color", "colour"))
    next: "Aliased | None" = None


@pytest.mark.parametrize("kind", [Written, Aliased, dict[Path, int], dict[int | str, int], int, None, Any])
def test_what_comes_back_is_taken(kind: Any) -> None:
    assert loss(kind) is None


def test_keys_that_are_paths_come_back_as_paths() -> None:
    app = Stoker()

    @app.task
    def sizes() -> dict[Path, int]:
        return {}

    job = JobInfo(id="x", type="sizes", status="completed", result={"a/b": 1})
    assert sizes.result_of(job) == {Path("a/b"): 1}


class Safe(str):
    """Like the safe text of a template engine."""

    __slots__ = ()

    def __str__(self) -> str:
        return "other"


class Metres(float): ...


class Count(int): ...


def test_values_of_derived_classes_are_sent_as_what_they_derive_from() -> None:
    app = Stoker()

    @app.task
    def take(text: str, size: float, count: int) -> None: ...

    payload = encode_arguments(take.arguments, (Safe("a"), Metres(1.5), Count(3)), {})
    assert payload == b'{"text":"a","size":1.5,"count":3}'
