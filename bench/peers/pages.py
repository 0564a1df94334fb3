"""Generated parts of Markdown pages: what stands between two comments of a name is written anew, the rest stays."""

from pathlib import Path


class NoPlace(Exception):
    """The page has no place of that name."""


def replaced(page: str, name: str, text: str) -> str:
    """Return the page with this text between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise NoPlace(f"there is no place for {name}: it needs {begin} and {end}")
    return f"{before}{begin}\n{text.strip()}\n{end}{after}"


def write(path: Path, name: str, text: str) -> None:
    path.write_text(replaced(path.read_text(encoding="utf-8"), name, text), encoding="utf-8")
