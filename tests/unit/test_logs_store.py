"""The rules of what is kept of output, and what only the embedded store of output does with its file."""

import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.domain.errors import StoreUnavailable
from stoker.store.logs import Extent, fit, whole_characters
from stoker.store.sqlite.logs import SqliteLogs, logs_path
from tests.support.output import piece


@given(
    st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=30)), max_size=12),
    st.lists(st.integers(0, 12), max_size=4),
)
def test_however_pieces_come_the_extent_only_grows(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """In whatever batches they are written, the same is stored."""
    given_pieces = [piece(data, offset) for offset, data in pieces]
    whole, segments = fit(Extent(), given_pieces)
    extent, stored = Extent(), b""
    bounds = sorted({0, len(given_pieces), *(cut for cut in cuts if cut < len(given_pieces))})
    for start, end in pairwise(bounds):
        before = extent
        extent, part = fit(extent, given_pieces[start:end])
        assert extent.stored >= before.stored
        stored += b"".join(bytes(segment.data) for segment in part)
    assert extent == whole
    assert stored == b"".join(bytes(segment.data) for segment in segments)
    assert whole.written == max((p.end for p in given_pieces), default=0) == whole.stored


def test_a_cut_does_not_split_a_character() -> None:
    text = "aé👍".encode()
    assert [text[: whole_characters(text, size)].decode() for size in range(8)] == [
        "", "a", "a", "aé", "aé", "aé", "aé", "aé👍",
    ]  # fmt: skip
    assert whole_characters(b"\x80" * 10, 7) == 7


def test_the_file_stands_next_to_that_of_the_jobs() -> None:
    assert logs_path(Path("data/stoker.db")) == Path("data/stoker-logs.db")


async def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreUnavailable, match="cannot open"):
        SqliteLogs.open(path)
    newer = tmp_path / "newer.db"
    db = sqlite3.connect(newer)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreUnavailable, match="upgrade"):
        SqliteLogs.open(newer)
