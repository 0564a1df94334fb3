"""Where the runner is looked for."""

from pathlib import Path

import pytest

import stoker
from stoker.executors.native_binary import find_runner


class _Distribution:
    def __init__(self, root: Path) -> None:
        self._root = root

    def locate_file(self, path: Path) -> Path:
        return self._root / path


def a_runner(package: Path, mode: int = 0o755) -> Path:
    path = package / "_runner" / "stoker-runner"
    path.parent.mkdir(parents=True)
    path.touch(mode)
    return path


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An editable install: the package in one place, what was built for it in another."""
    installed = _Distribution(tmp_path / "site-packages")
    monkeypatch.setattr("importlib.metadata.distribution", lambda _name: installed)
    monkeypatch.setattr(stoker, "__file__", str(tmp_path / "src" / "stoker" / "__init__.py"))
    return tmp_path / "src" / "stoker"


def test_without_a_compiler_there_is_none(sources: Path) -> None:
    assert find_runner() is None
    a_runner(sources, mode=0o644)
    assert find_runner() is None


def test_what_was_installed_goes_before_what_lies_among_the_sources(tmp_path: Path, sources: Path) -> None:
    beside = a_runner(sources)
    assert find_runner() == beside
    installed = a_runner(tmp_path / "site-packages" / "stoker")
    assert find_runner() == installed
