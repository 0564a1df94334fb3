"""The job types that every worker knows, in Python. docs/reference/job-types.md describes each of them.

A type takes its payload and gives its result as JSON bytes. It fails by raising; `error_type` and `retryable` of the
exception's class say what that means for the job.
"""

from collections.abc import Callable
from typing import Final

from stoker.domain.builtin_types import ALIASES
from stoker.executors.builtins import basic, load, numbers, text
from stoker.executors.builtins.payload import PayloadRefused

__all__ = ["BUILTINS", "PayloadRefused"]


def _resize_image(payload: bytes) -> bytes:
    from stoker.executors.builtins.image import resize_image  # with it comes Pillow, which few jobs need

    return resize_image(payload)


_BY_NAME: Final[dict[str, Callable[[bytes], bytes]]] = {
    "add_numbers": numbers.add_numbers,
    "cpu_intensive": load.cpu_intensive,
    "echo": basic.echo,
    "fail": basic.fail,
    "io_intensive": load.io_intensive,
    "large_array_sum": numbers.large_array_sum,
    "mixed_workload": load.mixed_workload,
    "network_task": load.network_task,
    "resize_image": _resize_image,
    "reverse_string": text.reverse_string,
    "sleep": basic.sleep,
}

BUILTINS: Final = {**_BY_NAME, **{alias: _BY_NAME[name] for alias, name in ALIASES.items()}}
