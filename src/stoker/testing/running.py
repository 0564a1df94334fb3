"""The app under test, where the kit's worker finds it: a worker knows an app by the name of a module and of a variable."""

from typing import Any, Final

NAME: Final = f"{__name__}:app"
app: Any = None
