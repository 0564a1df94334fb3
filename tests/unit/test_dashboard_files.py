"""The built dashboard as it is shipped: small, whole, and nothing in it from elsewhere."""

import gzip
import re
from pathlib import Path

import stoker

FOLDER = Path(stoker.__file__).parent / "dashboard"
MOST_BYTES = 350_000


def test_it_is_small_enough() -> None:
    parts = [path for path in FOLDER.rglob("*") if path.suffix in {".js", ".css"}]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in parts) < MOST_BYTES


def test_the_page_names_only_files_that_are_there() -> None:
    page = (FOLDER / "index.html").read_text()
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert named
    for name in named:
        assert name.startswith("/dashboard/")
        assert (FOLDER / name.removeprefix("/dashboard/")).is_file()


def test_nothing_is_fetched_from_elsewhere() -> None:
    for path in FOLDER.rglob("*.css"):
        assert not re.search(r"url\((?!data:|#)|@import", path.read_text())
    for path in FOLDER.rglob("*.js"):
        found = set(re.findall(r"""(?:fetch|import|importScripts)\(["']https?://[^"']+""", path.read_text()))
        assert not found
