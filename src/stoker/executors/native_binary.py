"""Where the C++ runner is, if it was built."""

import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import stoker

_IN_PACKAGE: Final = Path("_runner") / "stoker-runner"


def find_runner() -> Path | None:
    """Return the runner that was built when Stoker was installed. None where there was no compiler: then Python stands
    in."""
    return next((path for path in _candidates() if path.is_file() and os.access(path, os.X_OK)), None)


def _candidates() -> Iterator[Path]:
    # What pip built goes first: in an editable install it stands beside the metadata, while the sources are elsewhere.
    try:
        yield Path(str(importlib.metadata.distribution("stoker").locate_file(Path("stoker") / _IN_PACKAGE)))
    except importlib.metadata.PackageNotFoundError:
        pass
    yield Path(stoker.__file__).parent / _IN_PACKAGE
