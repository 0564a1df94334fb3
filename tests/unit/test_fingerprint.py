"""Which failures are the same failure."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.domain.fingerprint import application_frame, describe, fingerprint, normalised
from stoker.domain.retry import problem

TRACE = """Traceback (most recent call last):
  File "/srv/app/worker/tasks.py", line 10, in outer
    inner()
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/stoker/executors/child.py", line 210, in run
    return task(*arguments)
  File "/srv/app/worker/tasks.py", line 42, in resize
    image.load()
  File "/opt/venv/lib/python3.12/site-packages/PIL/Image.py", line 1, in load
    raise OSError
OSError: broken
"""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("user 17 not found", "user <n> not found"),
        ("took 1.5e3 s, -2 left", "took <n> s, <n> left"),
        ("no job 0198c1e2-7b0e-7c61-b6a5-0d3f6b8f2a11 here", "no job <id> here"),
        ("at 0x7f3a2b1c", "at <hex>"),
        ("commit deadbeef01 is bad", "commit <hex> is bad"),
        ("decoded the defaced facade", "decoded the defaced facade"),
        ("KeyError: 'alice'", "KeyError: <text>"),
        ('unknown "a \\"b\\" c" given', "unknown <text> given"),
        ("can't open /var/data/in.csv", "can't open <path>"),
        (r"can't open C:\data\in.csv!", "can't open <path>!"),
        ("GET https://a.example/x?y=1 failed", "GET <url> failed"),
        ("since 2026-01-02T03:04:05.6Z", "since <time>"),
        ("a\n  b\t c", "a b c"),
        ("", ""),
    ],
)
def test_what_differs_each_time_is_replaced(message: str, expected: str) -> None:
    assert normalised(message) == expected


def test_the_frame_is_the_innermost_of_the_application() -> None:
    assert application_frame(TRACE) == "tasks.py in resize"
    library = 'Traceback (most recent call last):\n  File "/x/site-packages/a/b.py", line 1, in f\n'
    assert application_frame(library) == "b.py in f"
    assert application_frame("no traceback at all") is None


def test_a_group_is_told_by_type_error_message_and_place() -> None:
    first = problem("ValueError", "row 1 is bad", traceback=TRACE)
    again = problem("ValueError", "row 2 is bad", traceback=TRACE.replace("line 42", "line 43"))
    assert fingerprint("import", first) == fingerprint("import", again)
    others = [
        ("export", first),
        ("import", problem("TypeError", "row 1 is bad", traceback=TRACE)),
        ("import", problem("ValueError", "row 1 is good", traceback=TRACE)),
        ("import", problem("ValueError", "row 1 is bad", traceback=TRACE.replace("resize", "scale"))),
    ]
    assert len({fingerprint(*other) for other in others} | {fingerprint("import", first)}) == 5


@given(st.binary(max_size=200), st.text(max_size=20))
def test_whatever_an_error_is_it_has_a_fingerprint(error: bytes, type: str) -> None:
    assert len(fingerprint(type, error)) == 16


@pytest.mark.parametrize(
    "error", [None, b"[1,2]", b'"text"', b'{"type": 5, "message": ["a"]}', b"[" * 10_000]
)
def test_errors_that_are_no_objects(error: bytes | None) -> None:
    assert describe("t", error).job_type == "t"


@pytest.mark.parametrize(
    "part", ["'", "/a", "a1", "\\", '"\\', "`a", "1.", "a:", "' a", "\n", " ", '\n File "']
)
def test_a_message_made_to_be_slow_is_not(part: str) -> None:
    started = time.process_time()
    normalised(part * 50_000)
    application_frame(part * 50_000)
    assert time.process_time() - started < 2, "it takes milliseconds; quadratic time would be minutes"
