"""What is told of the exception that a task raised."""

from collections.abc import Callable

import msgspec
import pytest

from stoker.executors import child
from stoker.executors.builtin import BUILTINS, PayloadRefused
from stoker.executors.child import describe, failure, note_of


def raised_by(code: str, package: str) -> BaseException:
    """What the code raises, as if it stood in a module of this package."""
    names = {"__package__": package, "__name__": f"{package}.module"}
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile(code, f"{package}.py", "exec"), names)  # noqa: S102 - the code is ours
    error = caught.value
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)  # without the frame of this function


def test_a_traceback_begins_with_the_task() -> None:
    def task() -> None:
        raised = raised_by("1 / 0", "shop")
        raise raised

    ours: dict[str, object] = {"__package__": child.__package__, "task": task}
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("task()", "ours.py", "exec"), ours)  # noqa: S102 - the code is ours
    error = caught.value
    assert error.__traceback__ is not None
    told = msgspec.json.decode(describe(error.with_traceback(error.__traceback__.tb_next)))
    assert "ours.py" not in told["traceback"]
    assert "in task\n" in told["traceback"]
    assert told["traceback"].startswith("Traceback (most recent call last):\n")
    assert (told["type"], told["message"]) == ("ZeroDivisionError", "division by zero")


def test_a_payload_that_a_built_in_type_refuses_is_told_without_a_traceback() -> None:
    with pytest.raises(PayloadRefused) as caught:
        BUILTINS["resize_image"](b"{}")
    assert msgspec.json.decode(describe(caught.value)) == {
        "type": "invalid_payload",
        "message": "width is required",
    }


def test_where_nothing_but_our_own_frames_is_there_all_of_them_are_told() -> None:
    told = msgspec.json.decode(describe(raised_by("1 / 0", str(child.__package__))))
    assert "stoker.executors.py" in told["traceback"]


class Answered(Exception):
    """As many write it around an answer of theirs: every unknown attribute is looked up in a dict."""

    def __getattr__(self, name: str) -> object:
        return self.args[0][name]


class Refuses(Exception):
    @property
    def retryable(self) -> bool:
        raise SystemExit(3)

    @property
    def error_type(self) -> str:
        raise RuntimeError

    def __str__(self) -> str:
        raise KeyboardInterrupt


class Doubtful:
    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


class Undecided(Exception):
    retryable = Doubtful()


class Nowhere(Exception):
    pass


Nowhere.__module__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (lambda: Answered({"code": 5}), "Answered", "{'code': 5}"),
        (lambda: Refuses(), "Refuses", "(no message)"),
        (lambda: Undecided("x"), "Undecided", "x"),
        (lambda: Nowhere("y"), "Nowhere", "y"),
    ],
    ids=["attributes in a dict", "refuses to be looked at", "neither true nor false", "of no module"],
)
def test_an_exception_whose_own_code_fails_is_an_error_like_any_other(
    make: Callable[[], Exception], name: str, message: str
) -> None:
    error = caught(make)
    told = msgspec.json.decode(describe(error))
    assert (told["type"], told["message"]) == (name, message)
    assert told["traceback"].startswith("Traceback (most recent call last):\n")
    assert "in caught\n" in told["traceback"]
    assert failure(error) == "error"
    assert any(known.endswith(name) for known in note_of(error).names)


def caught(make: Callable[[], Exception]) -> Exception:
    try:
        raise make()
    except Exception as error:  # noqa: BLE001 - as a child catches what a task raises
        return error
