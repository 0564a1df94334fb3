"""The statements of the embedded store, by name, and the columns that they read."""

from typing import Final

from stoker.domain.byte_bounds import INLINE_BYTES
from stoker.domain.job import COLUMNS
from stoker.store import queries

Q: Final = queries.load("stoker.store.sqlite")

COLUMN_LIST: Final = ", ".join(COLUMNS)
SUMMARY: Final = {"error": "NULL", "payload": "CAST('null' AS BLOB)", "result": "NULL", "digest": "NULL"}
SUMMARY_LIST: Final = ", ".join(SUMMARY.get(column, column) for column in COLUMNS)
"""Every column, but null where a value can be large."""
LIGHT_LIST: Final = ", ".join(
    SUMMARY[column] if column in ("payload", "result", "digest") else column for column in COLUMNS
)
"""For jobs that are judged and changed: payloads and results, which may be large, stay where they are."""
_INLINE: Final = {
    "payload": f"CASE WHEN length(payload) <= {INLINE_BYTES} THEN payload ELSE x'' END",
    "digest": "NULL",
}
INLINE_LIST: Final = ", ".join(_INLINE.get(column, column) for column in COLUMNS)
"""Every column, but no large payload. The length of a BLOB is in the head of its row, so a large payload is not touched; a
digest stands behind it."""
