"""The traces of the first seeds (`hashes.txt`), and of which sources they are.

A trace shows every step of the code that it ran, so a change of that code may well change it: hashes say nothing about
right or wrong. They say that two people who run a seed see the same run. So the file names what made it, by a digest of
all the code that a simulation runs and by the version of Python, whose event loop is part of it. Equal makers must give
equal traces; with other ones it is time to write the file anew.
"""

import hashlib
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
HASHES: Final = Path(__file__).with_name("hashes.txt")
SIMULATED: Final = (
    "src/stoker/*.py",
    "src/stoker/bus/*.py",
    "src/stoker/coordinator/**/*.py",
    "src/stoker/domain/*.py",
    "src/stoker/executors/**/*.py",
    "src/stoker/logs/*.py",
    "src/stoker/settings/*.py",
    "src/stoker/store/*.py",
    "src/stoker/store/sqlite/**/*.py",
    "src/stoker/store/sqlite/**/*.sql",
    "src/stoker/system/*.py",
    "src/stoker/testing/*.py",
    "src/stoker/wire/*.py",
    "src/stoker/worker/*.py",
    "tests/sim/*.py",
)
NOT_SIMULATED: Final = frozenset({"__main__.py", "hashes.py", "mutants.py"})


class Written(NamedTuple):
    maker: str
    hashes: dict[int, str]
    """By seed."""


def sources() -> Iterator[Path]:
    """Every file that a simulation may run, whether it is that of a test or of Stoker."""
    for pattern in SIMULATED:
        for path in sorted(ROOT.glob(pattern)):
            if not (path.is_relative_to(ROOT / "tests") and _is_beside_it(path.name)):
                yield path


def _is_beside_it(name: str) -> bool:
    return name in NOT_SIMULATED or name.startswith("test_")


def maker() -> str:
    """What makes traces here: the code, and the Python that runs it."""
    digest = hashlib.sha256()
    for path in sources():
        text = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()} {len(text)}\n".encode())
        digest.update(text)
    version = ".".join(platform.python_version_tuple()[:2])
    return f"sources {digest.hexdigest()[:16]}, Python {version}"


def write(hashes: Iterable[tuple[int, str]]) -> None:
    lines = [f"# {maker()}", *(f"{seed} {hash}" for seed, hash in hashes)]
    HASHES.write_text("\n".join(lines) + "\n", encoding="ascii")


def read() -> Written:
    head, *lines = HASHES.read_text(encoding="ascii").splitlines()
    pairs = (line.split() for line in lines)
    return Written(head.removeprefix("# "), {int(seed): hash for seed, hash in pairs})
