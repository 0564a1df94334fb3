"""What a runner says of itself, and what it is given."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli import exits
from stoker.executors.command import kind_of_failure
from stoker.executors.runner_contract import (
    ARGUMENT_MAX,
    PLAIN,
    RunnerContract,
    payload_argument,
    read_types,
)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "shout\n",
        "OK:\n",
        "stoker-runner\n",
        "stoker-runner 2 threads\nshout\n",
        "\nstoker-runner 1\n",
        "usage: x",
    ],
)
def test_any_answer_but_the_documented_one_means_the_plain_contract(answer: str) -> None:
    assert read_types(answer) == PLAIN
    assert PLAIN.any_type


def test_a_runner_that_knows_stoker_says_what_it_takes() -> None:
    assert read_types("stoker-runner 1 threads json\nshout\n whisper \nnot a type\n") == RunnerContract(
        ("shout", "whisper"), threads=True, json=True, codes=True
    )
    assert read_types("stoker-runner 1\n") == RunnerContract(codes=True)
    assert read_types("stoker-runner 1\n").any_type


@pytest.mark.parametrize(
    ("payload", "argument"),
    [
        ("hello", "hello"),
        ("", ""),
        ("5", "5"),
        ('it is "so"\n', 'it is "so"\n'),
        (5, "5"),
        (None, "null"),
        ({"a": ["é"]}, '{"a":["é"]}'),
    ],
)
def test_text_is_passed_as_it_is_and_anything_else_as_json(payload: object, argument: str) -> None:
    assert payload_argument(msgspec.json.encode(payload)) == (argument, b"")


@pytest.mark.parametrize("text", ["-", "a\0b", "x" * (ARGUMENT_MAX + 1)])
def test_what_no_argument_can_carry_goes_to_standard_input(text: str) -> None:
    assert payload_argument(msgspec.json.encode(text)) == ("-", text.encode())


def test_a_runner_may_ask_for_text_as_json() -> None:
    assert payload_argument(b'"hello"', json=True) == ('"hello"', b"")


@given(st.text(st.characters(codec="utf-8")))
def test_every_text_arrives_as_it_was_sent(text: str) -> None:
    argument, given = payload_argument(msgspec.json.encode(text))
    assert (given.decode() if argument == "-" else argument) == text


@pytest.mark.parametrize("code", range(1, 6))
def test_only_an_unusable_payload_is_not_retried_and_only_if_the_runner_knows_that_code(code: int) -> None:
    knows = RunnerContract(codes=True)
    assert kind_of_failure(code, knows) == ("invalid" if exits.RUNNER[code][1] == "no" else "error")
    assert {kind_of_failure(code, PLAIN), kind_of_failure(code, None)} == {"error"}
