"""Both runners, side by side, on payloads that nobody thought of."""

import json
import random
import struct

import pytest

from stoker.context import JobContext, enter_job
from stoker.executors.builtin import BUILTINS
from stoker.executors.builtins.graphemes import clusters
from tests.runner.serving import Serving, request

SPICE = b'{}[]",:0129.eE+-\\u \n\x00tfn'
LETTERS = "a\r\n\u0301\u200d😀👩🏽🇩🇪กำक्षि\u200c\u0903\u1100\u1161\u11a8가각\u0600❤\ufe0f\u20e3"
EDGES = [
    "-0",
    "-0.0",
    "1e308",
    "-1e308",
    "5e-324",
    "1e-400",
    "9007199254740993",
    "9223372036854775808",
    "1e23",
]


def a_number(random: random.Random) -> str:
    match random.randrange(5):
        case 0:
            return str(random.randint(-10, 10))
        case 1:
            return str(random.randint(-(2**70), 2**70))
        case 2:
            return random.choice(EDGES)
        case 3:
            return repr(random.uniform(-1e6, 1e6))
        case _:
            bits = random.getrandbits(64) & ~(1 << 62)  # any double below 2, of either sign
            return repr(struct.unpack("<d", struct.pack("<Q", bits))[0])


def a_text(random: random.Random) -> str:
    return "".join(random.choice(LETTERS) for _ in range(random.randrange(16)))


def a_payload(random: random.Random, type: str) -> bytes:
    match type:
        case "add_numbers":
            return f'{{"x":{a_number(random)},"y":{a_number(random)}}}'.encode()
        case "large_array_sum":
            numbers = ",".join(a_number(random) for _ in range(random.randrange(12)))
            name = random.choice(["numbers", "array"])
            return f'{{"{name}":[{numbers}]}}'.encode()
        case "fail":
            return json.dumps({"times": random.randrange(3), "message": a_text(random)}).encode()
        case _:
            return json.dumps({"text": a_text(random)}, ensure_ascii=random.random() < 0.5).encode()


def mutated(random: random.Random, payload: bytes) -> bytes:
    text = bytearray(payload)
    for _ in range(random.randrange(4)):
        at = random.randrange(len(text) + 1)
        match random.randrange(4):
            case 0:
                text[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                del text[at : at + random.randrange(1, 4)]
            case 2:
                text.insert(at, random.choice(SPICE))
            case _:
                text[at:at] = text[: random.randrange(8)]
    return bytes(text)


def by_python(type: str, payload: bytes) -> tuple[str, object]:
    enter_job(JobContext("job-1", 1, type, 1, 1, 1, "default", None, {}))
    try:
        return "completed", BUILTINS[type](payload)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other runner must say the same
        kind = "error" if getattr(error, "retryable", True) else "invalid"
        return kind, getattr(error, "error_type", repr(error))


@pytest.mark.parametrize("type", ["add_numbers", "echo", "fail", "large_array_sum", "reverse_string"])
def test_runners_agree(warm: Serving, type: str) -> None:
    chance = random.Random(f"{type} 1")
    payloads = [mutated(chance, a_payload(chance, type)) for _ in range(2000)]
    completed = 0
    for payload in payloads:
        warm.send(request(1, type, payload, threads=2))
        answer = warm.answer()
        said: object = answer.body if answer.kind == "completed" else json.loads(answer.body)["type"]
        assert (answer.kind, said) == by_python(type, payload), payload
        completed += answer.kind == "completed"
    assert 100 < completed < 1900, "a run in which all or nothing is valid shows nothing"


def test_clusters_lose_nothing() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        text = a_text(chance)
        found = list(clusters(text))
        assert "".join(found) == text
        assert all(found)
