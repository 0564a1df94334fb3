"""The reference page of the SDK: not stale, nothing public is missing, and everything has a docstring in plain words."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

import stoker
import stoker.testing
from stoker import sdk_reference
from stoker.client import errors
from stoker.sdk_reference import ALIASES, OWN_USE, members, things
from stoker.testing import plugin

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "sdk.md"
KNOWN: Final = {
    *(
        "Any",
        "AsyncIterator",
        "Callable",
        "Path",
        "PathLike",
        "ContextVar",
        "Coroutine",
        "False",
        "Iterable",
        "Iterator",
        "Literal",
    ),
    *("Mapping", "None", "Self", "Sequence", "SimpleNamespace", "True", "Unpack", "BaseException", "R_co"),
}
"""Of Python itself."""
RIDDLES: Final = r"\b(whoever|somebody|nobody|everybody|so many|so much)\b"


def headings() -> list[str]:
    return re.findall(r"^#+ (.+)$", PAGE.read_text(), re.MULTILINE)


def documented() -> Iterator[tuple[str, Any]]:
    """Everything that must have a docstring, by its name."""
    for name, thing in things().items():
        yield name, thing.value
        if isinstance(thing.value, type):
            for member in members(thing.value):
                yield f"{name}.{member.name}", member.value
                if member.twin is not None:
                    yield f"{name}.{member.name}_async", member.twin


def docstring(value: Any) -> str:
    """Of its own: a class without one inherits none."""
    own = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
    return inspect.cleandoc(own or "")


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text() == sdk_reference.reference(), (
        "run: python -m stoker.sdk_reference > docs/reference/sdk.md"
    )


def test_every_public_name_has_an_entry() -> None:
    entries = set(headings())
    assert {*stoker.__all__} - entries == {"errors", "__version__"}
    assert "`stoker.__version__`" in PAGE.read_text()
    assert set(stoker.testing.__all__) <= entries
    of_errors = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert of_errors <= entries


def test_every_fixture_has_an_entry() -> None:
    fixtures = {
        name for name, value in vars(plugin).items() if type(value).__name__ == "FixtureFunctionDefinition"
    }
    assert fixtures
    assert fixtures <= set(headings())


def test_every_object_of_an_app_has_an_entry() -> None:
    """`app.queues` and the like are found by what their properties return."""
    app = stoker.Stoker()
    kinds = {type(getattr(app, name)).__name__ for name in ("queues", "workers", "dead_letters", "schedules")}
    assert {*kinds, type(app.pipeline()).__name__} <= set(headings())


def test_every_public_method_and_property_has_an_entry() -> None:
    shown = PAGE.read_text()
    count = 0
    for name, thing in things().items():
        for member in dir(thing.value) if isinstance(thing.value, type) else ():
            value = inspect.getattr_static(thing.value, member)
            of_stoker = str(getattr(sdk_reference._function(value), "__module__", "")).startswith("stoker.")
            if member.startswith("_") or member in OWN_USE.get(name, ()) or not of_stoker:
                continue
            owner = next(kind for kind in thing.value.__mro__ if member in vars(kind))
            if (
                isinstance(value, type)
                or owner.__name__ not in things()
                or member in OWN_USE.get(owner.__name__, ())
            ):
                continue
            count += 1
            alone = f"\n#### {owner.__name__}.{member}\n"
            twin = f"\n#### {owner.__name__}.{member.removesuffix('_async')}\n"
            assert alone in shown or (member.endswith("_async") and twin in shown), (
                f"{owner.__name__}.{member}"
            )
    assert count > 80, "the search finds nothing any more"


@pytest.mark.parametrize(("name", "value"), [*documented()], ids=lambda it: it if isinstance(it, str) else "")
def test_everything_has_a_docstring_in_plain_words(name: str, value: Any) -> None:
    text = docstring(value)
    first = " ".join(text.partition("\n\n")[0].split())
    assert first, f"{name} has no docstring"
    assert re.match(r"[A-Z`0-9]", first), f"{name}: begin with a sentence"
    assert first.endswith((".", "`")), f"{name}: end the first paragraph with a full stop"
    assert not first.startswith("The same"), f"{name}: say what it does"
    assert not re.search(RIDDLES, text, re.IGNORECASE), f"{name}: name the thing"


def test_a_name_without_docstring_would_be_found() -> None:
    class Bare(stoker.StokerError):
        pass

    assert docstring(Bare) == ""
    assert docstring(stoker.StokerError)


def test_what_is_for_our_own_use_exists() -> None:
    for owner, names in OWN_USE.items():
        kind = things()[owner].value
        source = inspect.getsource(kind)
        for name in names:
            assert hasattr(kind, name) or f"self.{name}" in source, f"{owner}.{name}"


def test_every_type_in_a_signature_is_explained() -> None:
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    plain = re.sub(r"\"[^\"]*\"|'[^']*'", "", blocks)
    names = set(re.findall(r"\b[A-Z]\w+\b", plain))
    assert len(names) > 30, "the search finds nothing any more"
    assert names - set(things()) - set(ALIASES) - KNOWN == set()
    for name, module in ALIASES.items():
        assert hasattr(import_module(module), name)


def test_every_link_within_the_page_has_its_heading() -> None:
    anchors: dict[str, str] = {}
    for heading in headings():  # of headings that are spelt alike, a link leads to the first
        anchors.setdefault(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-"), heading)
    linked = set(re.findall(r"\]\(#([^)]+)\)", PAGE.read_text()))
    assert linked <= set(anchors)
    assert {anchors[anchor] for anchor in linked} <= {*things(), "Index", "Errors"}
    for path in re.findall(r"\]\((\.\./[^)#]+)", PAGE.read_text()):
        assert (PAGE.parent / path).exists(), path
