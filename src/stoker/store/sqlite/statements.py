"""The statements of the embedded store, by name."""

from typing import Final

from stoker.store import queries

Q: Final = queries.load("stoker.store.sqlite")
