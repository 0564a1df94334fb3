"""What a caller is told when the embedded store cannot be read: that it is unavailable, as for a write."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from stoker.domain.errors import StoreUnavailable

C = TypeVar("C", bound=type)


def tell_unreadable(cls: C) -> C:
    """Decorate a class of reads: its public methods raise `StoreUnavailable` where SQLite fails to read the file."""
    for name, method in vars(cls).copy().items():
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _telling(method))
    return cls


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def read(*arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        except apsw.Error as error:
            raise StoreUnavailable(f"the database cannot be read ({error})") from error

    return read
