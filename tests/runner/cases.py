"""One table of cases for both runners: what a job gives, or how it is refused.

Each is run by the Python functions, by the Python runner, and by the C++ runner, single-shot and serving. A result is
compared byte for byte: the runners agree to the last digit and escape.
"""

import hashlib
from typing import Final

import msgspec

INVALID: Final = "invalid_payload"
ON_PURPOSE: Final = "failed_on_purpose"


class Case(msgspec.Struct, frozen=True):
    type: str
    payload: bytes
    result: bytes | None = None
    error: str | None = None
    claim_id: int = 1
    threads: int = 1

    @property
    def id(self) -> str:
        shown = self.payload if len(self.payload) <= 40 else self.payload[:37] + b"..."
        return f"{self.type} {shown.decode('ascii', 'backslashreplace')}"


def gives(type: str, payload: str | bytes, result: str, *, claim_id: int = 1, threads: int = 1) -> Case:
    return Case(type, _bytes(payload), result.encode(), None, claim_id, threads)


def refuses(type: str, payload: str | bytes, error: str = INVALID) -> Case:
    return Case(type, _bytes(payload), None, error)


def _bytes(payload: str | bytes) -> bytes:
    return payload if isinstance(payload, bytes) else payload.encode()


def _chains(iterations: int, chains: int, seed: str) -> str:
    """The digest of `cpu_intensive`, written down once more, as documented."""
    ends = []
    for chain in range(chains):
        digest = hashlib.sha256(f"{seed}:{chain}".encode()).digest()
        for _ in range(iterations // chains + (chain < iterations % chains)):
            digest = hashlib.sha256(digest).digest()
        ends.append(digest)
    return hashlib.sha256(b"".join(ends)).hexdigest()


def _files(files: int, size_kb: int) -> str:
    """The digest of `io_intensive`."""
    digests = []
    for file in range(files):
        content = hashlib.sha256(f"stoker:{file}".encode()).digest() * (size_kb * 32)
        digests.append(hashlib.sha256(content).digest())
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _array(numbers: str) -> str:
    return f'{{"numbers": [{numbers}]}}'


def _cpu(iterations: int, chains: int, seed: str) -> str:
    return f'{{"iterations":{iterations},"digest":"{_chains(iterations, chains, seed)}"}}'


def _io(files: int, size_kb: int) -> str:
    return f'{{"files":{files},"bytes":{files * size_kb * 1024},"digest":"{_files(files, size_kb)}"}}'


def _nested(depth: int) -> str:
    return "[" * depth + "]" * depth


ECHO: Final = [
    gives("echo", text, text)
    for text in (
        "null",
        "{}",
        '"bare"',
        ' {"a" : [1, 2.50, 1E2]} ',
        '{"big":123456789012345678901234567890,"nul":"\\u0000","pair":"\\ud83d\\ude00"}',
        '{"a":1,"a":2}',
        "1" * 1000,
        _nested(256),
        "-0.0",
        "1e-400",
    )
]

ADD_NUMBERS: Final = [
    gives("add_numbers", '{"x": 1, "y": 2}', '{"sum":3}'),
    gives("add_numbers", '{"y": -2, "x": 1}', '{"sum":-1}'),
    gives("add_numbers", '{"x": 0.1, "y": 0.2}', '{"sum":0.30000000000000004}'),
    gives("add_numbers", '{"x": 1, "y": 2.0}', '{"sum":3.0}'),
    gives("add_numbers", '{"x": 1e16, "y": 1}', '{"sum":1e16}'),
    gives("add_numbers", '{"x": -0.0, "y": -0.0}', '{"sum":0.0}'),
    gives(
        "add_numbers",
        '{"x": 123456789012345678901234567890, "y": 1}',
        '{"sum":123456789012345678901234567891}',
    ),
    gives("add_numbers", '{"x": 9223372036854775807, "y": 1}', '{"sum":9223372036854775808}'),
    gives("add_numbers", '{"x": 9, "x": 1, "y": 1}', '{"sum":2}'),
    gives("add_numbers", '{"x": "9", "x": 1, "y": 1}', '{"sum":2}'),
    refuses("add_numbers", "null"),
    refuses("add_numbers", '{"x": 1}'),
    refuses("add_numbers", '{"x": 1, "y": null}'),
    refuses("add_numbers", '{"x": 1, "y": "2"}'),
    refuses("add_numbers", '{"x": 1, "y": true}'),
    refuses("add_numbers", '{"x": 1, "y": [2]}'),
    refuses("add_numbers", '{"x": 1, "y": 2, "z": 3}'),
    refuses("add_numbers", '{"x": 1, "y": 2, "z": null}'),
    refuses("add_numbers", '{"x": 1e308, "y": 1e308}'),
    refuses("add_numbers", f'{{"x": 0.5, "y": 1{"0" * 400}}}'),
    refuses("add_numbers", "[1, 2]"),
]

SUM: Final = [
    gives("large_array_sum", '{"numbers": []}', '{"sum":0}'),
    gives("large_array_sum", '{"numbers": [ \n ]}', '{"sum":0}'),
    gives("large_array_sum", '{"numbers": [1, 2, 3]}', '{"sum":6}', threads=2),
    gives("large_array_sum", '{"numbers": [0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1]}', '{"sum":1.0}'),
    gives("large_array_sum", '{"numbers": [1e100, 1.0, -1e100]}', '{"sum":1.0}'),
    gives("large_array_sum", '{"numbers": [1e308, 1e308, -1e308]}', '{"sum":1e308}'),
    gives("large_array_sum", '{"numbers": [1e16, 1.0, 5e-324]}', '{"sum":1.0000000000000002e16}'),
    gives("large_array_sum", '{"numbers": [9007199254740993, 0.0]}', '{"sum":9007199254740992.0}'),
    gives("large_array_sum", '{"numbers": [9007199254740993, 0]}', '{"sum":9007199254740993}'),
    gives("large_array_sum", '{"numbers": [-0]}', '{"sum":0}'),
    gives("large_array_sum", _array("9" * 1000), f'{{"sum":{"9" * 1000}}}'),
    gives(
        "large_array_sum",
        _array(",".join(str(i) for i in range(100_000))),
        '{"sum":4999950000}',
        threads=3,
    ),
    gives(
        "large_array_sum",
        _array(", ".join(["0.1", "1e17", "-1e17"] * 30_000)),
        '{"sum":3000.0}',
        threads=4,
    ),
    gives("large_array_sum", '{"array": [1, 2, 3]}', '{"sum":6}', threads=2),
    gives("large_array_sum", '{"numbers": null, "array": [4]}', '{"sum":4}'),
    gives("large_array_sum", '{"numbers": [4], "array": null}', '{"sum":4}'),
    refuses("large_array_sum", '{"numbers": [1], "array": [1]}'),
    refuses("large_array_sum", '{"array": 1}'),
    refuses("large_array_sum", '{"array": [1, "2"]}'),
    refuses("large_array_sum", '{"array": [x], "array": [1]}'),
    refuses("large_array_sum", "null"),
    refuses("large_array_sum", "{}"),
    refuses("large_array_sum", '{"numbers": 1}'),
    refuses("large_array_sum", '{"numbers": "[1]"}'),
    refuses("large_array_sum", '{"numbers": [1, "2"]}'),
    refuses("large_array_sum", '{"numbers": ["]", 2]}'),
    refuses("large_array_sum", '{"numbers": [1, null]}'),
    refuses("large_array_sum", '{"numbers": [true]}'),
    refuses("large_array_sum", '{"numbers": [[1]]}'),
    refuses("large_array_sum", '{"numbers": [1,]}'),
    refuses("large_array_sum", '{"numbers": [1 2]}'),
    refuses("large_array_sum", '{"numbers": [01]}'),
    refuses("large_array_sum", '{"numbers": [1], "threads": 2}'),
    refuses("large_array_sum", '{"numbers": [x], "numbers": [1]}'),
    refuses("large_array_sum", '{"numbers": [1e308, 1e308]}'),
    refuses("large_array_sum", _array("9" * 1000 + ", 1")),
    refuses("large_array_sum", _array("9" * 1001)),
]

REVERSE: Final = [
    gives("reverse_string", f'{{"text": "{text}"}}', f'{{"reversed":"{reversed}"}}')
    for text, reversed in (
        ("", ""),
        ("abc", "cba"),
        ("añb", "bña"),
        ("e\u0301x", "xe\u0301"),
        ("1👨\u200d👩\u200d👧2", "2👨\u200d👩\u200d👧1"),
        ("🇩🇪🇫🇷", "🇫🇷🇩🇪"),
        ("👍🏽!", "!👍🏽"),
        ("❤\ufe0fa", "a❤\ufe0f"),
        ("\u1112\u1161\u11ab한", "한\u1112\u1161\u11ab"),
        ("a\\r\\nb", "b\\r\\na"),
        ("क्षिa", "aक्षि"),
        ("กำa", "aกำ"),
        ("a\\u0000b", "b\\u0000a"),
        ("\\ud83d\\ude00a", "a😀"),
        ('\\"\\\\', '\\\\\\"'),
    )
] + [
    refuses("reverse_string", "null"),
    refuses("reverse_string", '{"text": 1}'),
    refuses("reverse_string", '{"text": ["a"]}'),
    refuses("reverse_string", '{"text": "a", "by": "word"}'),
    refuses("reverse_string", '{"text": "\\ud800"}'),
    refuses("reverse_string", b'{"text": "\xff"}'),
    refuses("reverse_string", b'{"text": "\xed\xa0\x80"}'),
]

_DEFAULTS: Final = {
    "cpu_intensive": _cpu(100_000, 8, "stoker"),
    "io_intensive": _io(4, 256),
    "mixed_workload": f'{{"cpu":{_cpu(50_000, 8, "stoker")},"io":{_io(2, 128)}}}',
    "network_task": '{"requests":20,"bytes":81920}',
}
"""What the load types do when the payload names no size."""

LOAD: Final = [
    gives("cpu_intensive", "null", _cpu(100_000, 8, "stoker")),
    gives(
        "cpu_intensive",
        '{"iterations": 1003, "chains": 4, "seed": "é"}',
        _cpu(1003, 4, "é"),
        threads=2,
    ),
    gives(
        "cpu_intensive",
        '{"iterations": 0, "seed": ""}',
        _cpu(0, 8, ""),
    ),
    refuses("cpu_intensive", '{"iterations": -1}'),
    refuses("cpu_intensive", '{"iterations": 1.0}'),
    refuses("cpu_intensive", '{"iterations": 1e3}'),
    refuses("cpu_intensive", '{"iterations": 1000000000001}'),
    refuses("cpu_intensive", '{"iterations": 123456789012345678901234567890}'),
    refuses("cpu_intensive", '{"iterations": true}'),
    refuses("cpu_intensive", '{"chains": 0}'),
    refuses("cpu_intensive", '{"seed": 7}'),
    gives("io_intensive", "{}", _io(4, 256)),
    gives(
        "io_intensive",
        '{"files": 3, "size_kb": 65, "fsync": false}',
        _io(3, 65),
        threads=2,
    ),
    refuses("io_intensive", '{"files": 0}'),
    refuses("io_intensive", '{"size_kb": 0}'),
    refuses("io_intensive", '{"fsync": 1}'),
    refuses("io_intensive", '{"path": "/etc"}'),
    gives(
        "mixed_workload",
        '{"iterations": 100, "chains": 1, "files": 1, "size_kb": 1}',
        f'{{"cpu":{_cpu(100, 1, "stoker")},"io":{_io(1, 1)}}}',
    ),
    refuses("mixed_workload", '{"requests": 1}'),
    refuses("mixed_workload", '{"iterations": 1, "files": "1"}'),
    *(
        gives(type, text, result)
        for type, result in _DEFAULTS.items()
        for text in ('"test task"', '""', ' "é" ')
    ),
    *(refuses(type, text) for type in _DEFAULTS for text in ("[]", "7", "true", '"a', '"a" 1', '"\\ud800"')),
    gives("network_task", "null", '{"requests":20,"bytes":81920}'),
    gives("network_task", '{"requests": 7, "size_kb": 0}', '{"requests":7,"bytes":0}', threads=3),
    refuses("network_task", '{"requests": 0}'),
    refuses("network_task", '{"url": "http://example.com"}'),
]

SLEEP_AND_FAIL: Final = [
    gives("sleep", '{"seconds": 0}', '{"slept":0.0}'),
    gives("sleep", '{"seconds": 0.01}', '{"slept":0.01}'),
    refuses("sleep", '{"seconds": -1}'),
    refuses("sleep", '{"seconds": 2592001}'),
    refuses("sleep", '{"seconds": "1"}'),
    refuses("sleep", '{"secs": 1}'),
    refuses("fail", "null", ON_PURPOSE),
    refuses("fail", '{"message": "no"}', ON_PURPOSE),
    refuses("fail", '{"times": 1}', ON_PURPOSE),
    gives("fail", '{"times": 0}', '{"failed":0}'),
    gives("fail", '{"times": 2}', '{"failed":2}', claim_id=3),
    refuses("fail", '{"times": -1}'),
    refuses("fail", '{"times": "2"}'),
    refuses("fail", '{"message": 1}'),
]

SECOND_NAMES: Final = [
    gives("AddNumbers", '{"x": 1, "y": 2}', '{"sum":3}'),
    refuses("AddNumbers", '{"x": 1}'),
    gives("LargeArraySum", '{"array": [1, 2]}', '{"sum":3}'),
    gives("ReverseString", '{"text": "abc"}', '{"reversed":"cba"}'),
]

NOT_JSON: Final = [
    refuses(type, text)
    for type in ("echo", "add_numbers", "sleep")
    for text in (
        b"",
        b" ",
        b"nope",
        b"{",
        b'{"x":1',
        b'{"x":1,}',
        b"{} {}",
        b"01",
        b"NaN",
        b"1e999",
        b'"\\ud800"',
        b'"\\ude00\\ud83d"',
        b'"\x01"',
        b'"\xc0\xaf"',
        b"\xef\xbb\xbf{}",
        b"1" * 1001,
        b"[" * 257 + b"]" * 257,
        b"[" * 100_000,
        b'{"a":' * 300,
    )
]

CASES: Final = [*ECHO, *ADD_NUMBERS, *SUM, *REVERSE, *LOAD, *SLEEP_AND_FAIL, *SECOND_NAMES, *NOT_JSON]
