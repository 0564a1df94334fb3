"""Which failures are the same failure: the type of the job, the type of the error, its message without what differs each
time, and the place in the application where it was raised. Pure: an error in, its description and a short name for it out.

Two jobs that failed on the same line for two users should stand in one group; so ids, numbers, quoted text and paths are
replaced by what they are. The line number is left out: an edit elsewhere in the file does not make it another failure.
"""

import hashlib
import re
from functools import lru_cache
from typing import Any, Final

import msgspec

MESSAGE_MAX: Final = 300
READ_MAX: Final = 500
"""What is looked at of a message, so that a huge one costs no more than others."""
TRACE_MAX: Final = 20_000

# Repetitions that could begin anywhere are bounded: a message of a thousand quotes must not cost the square of that.
_PARTS: Final = (
    ("<url>", r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+"),
    ("<id>", r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    ("<text>", r"\"(?:[^\"\\]|\\.){0,100}\"|(?<!\w)'(?:[^'\\]|\\.){0,100}'(?!\w)|`[^`]{0,100}`"),
    ("<path>", r"(?:\b[A-Za-z]:)?(?:[\\/][\w.@%+~-]+){2,}[\\/]?|\B/[\w.@%+~-]+"),
    ("<time>", r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"),
    ("<hex>", r"\b0[xX][0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b"),
    ("<n>", r"[-+]?\d+(?:[.,_:]\d+)*(?:[eE][-+]?\d+)?"),
)
_VARYING: Final = re.compile("|".join(f"({pattern})" for _, pattern in _PARTS))
_NAMES: Final = tuple(name for name, _ in _PARTS)
_FRAME: Final = re.compile(r'^[ \t]*File "([^"\n]+)", line \d+, in ([^\n]+)$', re.MULTILINE)
_LAST_TRACE: Final = "Traceback (most recent call last):"
_NOT_THE_APPLICATION: Final = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib[\\/]python\d|[\\/]stoker[\\/]executors[\\/]|^<frozen "
)


class Failure(msgspec.Struct, frozen=True):
    """A failure without what differs each time."""

    job_type: str
    error_type: str
    message: str
    frame: str | None
    """The innermost place in the application, as `tasks.py in resize`; None where no traceback names one."""

    @property
    def fingerprint(self) -> str:
        parts = (self.job_type, self.error_type, self.message, self.frame or "")
        text = "\0".join(parts).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=8).hexdigest()


class _Error(msgspec.Struct, frozen=True):
    type: Any = None
    message: Any = None
    traceback: Any = None


def describe(job_type: str, error: bytes | None) -> Failure:
    """Return what an error, as it is stored on a job, has in common with others of its kind."""
    found = _decoded(error)
    trace = found.traceback if isinstance(found.traceback, str) else ""
    kind = found.type if isinstance(found.type, str) else "error"
    message = found.message if isinstance(found.message, str) else ""
    return Failure(job_type, kind[:MESSAGE_MAX], normalised(message), application_frame(trace))


def error_type(error: bytes) -> str:
    """Return the `type` of an error as it is stored; `error` where it says none."""
    told = _decoded(error).type
    return told if isinstance(told, str) else "error"


@lru_cache(maxsize=1024)
def fingerprint(job_type: str, error: bytes | None) -> str:
    """A short name for this failure, the same for all of its kind. Remembered, because where one job fails others fail
    alike."""
    return describe(job_type, error).fingerprint


def brief(error: bytes | None) -> bytes | None:
    """An error as it is stored, with its type and the beginning of its message alone; for lists."""
    if error is None:
        return None
    found = _decoded(error)
    kind = found.type[:MESSAGE_MAX] if isinstance(found.type, str) else None
    message = found.message[:MESSAGE_MAX] if isinstance(found.message, str) else None
    return msgspec.json.encode({"type": kind, "message": message})


def normalised(message: str) -> str:
    """A message with ids, numbers, quoted text, paths and times replaced by what they are."""
    plain = _VARYING.sub(lambda match: _NAMES[(match.lastindex or 1) - 1], message[:READ_MAX])
    return " ".join(plain.split())[:MESSAGE_MAX]


def application_frame(traceback: str) -> str | None:
    """Return the innermost frame that is neither of a library nor ours, of the last exception of a Python traceback."""
    end = traceback[-TRACE_MAX:]
    frames = _FRAME.findall(end[end.rfind(_LAST_TRACE) + 1 :])
    own = [frame for frame in frames if not _NOT_THE_APPLICATION.search(frame[0])]
    if not frames:
        return None
    path, function = (own or frames)[-1]
    name = re.split(r"[\\/]", path)[-1]
    return f"{name} in {function.strip()}"[:MESSAGE_MAX]


def _decoded(error: bytes | None) -> _Error:
    try:
        return msgspec.json.decode(error or b"{}", type=_Error)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _Error("error", (error or b"")[:READ_MAX].decode("utf-8", "replace"))
