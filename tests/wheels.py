"""Whether PyPI has a wheel of everything that `pip install stoker` needs, for each system that the docs promise.

    python -m tests.wheels

pip itself judges markers by the system it runs on, so dependencies are walked here: of each package the newest release that
fits, by its tags and its own markers, for the system that is asked about. Exit code 1 names what has no wheel.
"""

import contextlib
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).parents[1]
INDEX: Final = "https://pypi.org/pypi"
PYTHONS: Final = ((3, 11), (3, 12), (3, 13))


class Target(NamedTuple):
    """A system, as wheels and markers name it."""

    name: str
    platforms: tuple[str, ...]
    sys_platform: str
    system: str
    machine: str

    def environment(self, python: tuple[int, int]) -> dict[str, str]:
        """The marker variables of CPython there."""
        version = ".".join(map(str, python))
        return {
            **{name: str(value) for name, value in default_environment().items()},
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "nt" if self.sys_platform == "win32" else "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": self.system,
            "platform_version": "",
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": self.sys_platform,
            "extra": "",
        }

    def tags(self, python: tuple[int, int]) -> frozenset[Tag]:
        interpreter = f"cp{python[0]}{python[1]}"
        tags = (
            *cpython_tags(python, platforms=self.platforms),
            *compatible_tags(python, interpreter, self.platforms),
        )
        return frozenset(tags)


def _linux(machine: str) -> tuple[str, ...]:
    modern = [f"manylinux_2_{minor}_{machine}" for minor in range(28, 4, -1)]
    return (*modern, f"manylinux2014_{machine}", f"linux_{machine}")


TARGETS: Final = (
    Target("macOS arm64", tuple(mac_platforms((13, 0), "arm64")), "darwin", "Darwin", "arm64"),
    Target("macOS x86-64", tuple(mac_platforms((13, 0), "x86_64")), "darwin", "Darwin", "x86_64"),
    Target("Windows x86-64", ("win_amd64",), "win32", "Windows", "AMD64"),
    Target("Linux x86-64", _linux("x86_64"), "linux", "Linux", "x86_64"),
    Target("Linux arm64", _linux("aarch64"), "linux", "Linux", "aarch64"),
)


def requirements() -> list[Requirement]:
    """What pyproject.toml says that Stoker needs at run time."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(text) for text in project["dependencies"]]


def wanted(found: Iterable[Requirement], environment: dict[str, str]) -> Iterator[Requirement]:
    """Those whose markers hold in this environment."""
    return (one for one in found if one.marker is None or one.marker.evaluate(environment))


@cache
def _ask(path: str) -> dict[str, Any]:
    answer = httpx.get(f"{INDEX}/{path}/json", timeout=60, follow_redirects=True)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def _files(name: str) -> list[dict[str, Any]]:
    """The files of all releases of a package."""
    return [file for files in _ask(canonicalize_name(name))["releases"].values() for file in files]


def _dependencies(name: str, version: Version) -> list[Requirement]:
    """What a release says that it needs; what the newest says, where a mirror knows only that."""
    about = _ask(canonicalize_name(name))
    if Version(about["info"]["version"]) != version:
        with contextlib.suppress(httpx.HTTPStatusError):
            about = _ask(f"{canonicalize_name(name)}/{version}")
    return [Requirement(text) for text in about["info"]["requires_dist"] or ()]


def _release(requirement: Requirement, target: Target, python: tuple[int, int]) -> Version | None:
    """The newest release that fits; None when it has no wheel for this system."""
    here = f"{python[0]}.{python[1]}.0"
    fitting: set[Version] = set()
    newest: Version | None = None
    tags = target.tags(python)
    for file in _files(requirement.name):
        try:
            _, version, _, has = parse_wheel_filename(file["filename"])
        except (InvalidWheelFilename, InvalidVersion):
            continue
        if file.get("yanked") or version.is_prerelease or version not in requirement.specifier:
            continue
        allowed = file.get("requires_python")
        if allowed and here not in SpecifierSet(allowed):
            continue
        newest = version if newest is None else max(newest, version)
        if has & tags:
            fitting.add(version)
    return newest if newest in fitting else None


def missing(target: Target, python: tuple[int, int]) -> tuple[list[str], int]:
    """What has no wheel, and how many packages were looked at."""
    environment = target.environment(python)
    left = list(wanted(requirements(), environment))
    seen: set[str] = set()
    lacking: list[str] = []
    while left:
        requirement = left.pop()
        key = f"{canonicalize_name(requirement.name)}{sorted(requirement.extras)}"
        if key in seen:
            continue
        seen.add(key)
        release = _release(requirement, target, python)
        if release is None:
            lacking.append(str(requirement))
            continue
        of_it = _dependencies(requirement.name, release)
        for extra in ("", *requirement.extras):
            left += wanted(of_it, environment | {"extra": extra})
    return lacking, len(seen)


def main() -> int:
    failed = False
    for target in TARGETS:
        for python in PYTHONS:
            lacking, count = missing(target, python)
            failed = failed or bool(lacking)
            verdict = f"no wheel of {', '.join(lacking)}" if lacking else f"wheels of all {count} packages"
            sys.stdout.write(f"{target.name:15} Python {python[0]}.{python[1]}: {verdict}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
