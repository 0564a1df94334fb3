"""Everything that depends on the operating system, behind one object: `SYSTEM`.

There are two implementations. `Portable` needs nothing but Python and, for workers, POSIX and `psutil`: it is used on macOS,
and on Windows for clients and coordinators; workers are refused there (`SYSTEM.worker_problem`). `Linux` is a `Portable`
that overrides what Linux does better. docs/portability.md lists the differences for users.

`STOKER_PORTABLE=1` chooses `Portable` on Linux too, so that it can be tested there. Nothing outside this package imports
`fcntl`, `resource`, `uvloop` and the like, or reads `/proc` (tests/unit/test_system_is_one_package.py).
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

from stoker.system.portable import Meter, Portable, ThreadMeter, Usage

__all__ = ["SYSTEM", "Meter", "Portable", "ThreadMeter", "Usage"]

FORCED: Final = "STOKER_PORTABLE"


def choose(environ: Mapping[str, str], platform: str) -> Portable:
    """Return the implementation for this process."""
    if platform != "linux" or environ.get(FORCED, "") not in ("", "0"):
        return Portable()
    try:
        from stoker.system.linux import Linux
    except ImportError:  # a Python that was built without these modules
        return Portable()
    return Linux()


SYSTEM: Final = choose(os.environ, sys.platform)
