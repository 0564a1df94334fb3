"""Holds the app under test, because a worker loads its app by the names of a module and a variable."""

from typing import Any, Final

NAME: Final = f"{__name__}:app"
app: Any = None
