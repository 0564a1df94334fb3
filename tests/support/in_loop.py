"""Runs `async def` tests, and fixtures that must be made inside the test's own event loop.

A fixture that needs the loop returns `in_loop(make)`, where `make()` is an async context manager. The test receives what
that yields; it is entered before the test's first line and left after its last, in the same loop.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar, cast

import pytest

T = TypeVar("T")


class _InLoop:
    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self.make = make


def in_loop(make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
    """A promise of what `make()` yields, kept by the time the test begins."""
    return cast(T, _InLoop(make))


def call(item: pytest.Function) -> bool | None:
    """The body of the hook `pytest_pyfunc_call`: True when this was an async test and it ran."""
    if not inspect.iscoroutinefunction(item.obj):
        return None
    wanted = inspect.signature(item.obj).parameters
    asyncio.run(_call(item.obj, {name: item.funcargs[name] for name in wanted}))
    return True


async def _call(test: Callable[..., Awaitable[None]], arguments: Mapping[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        ready = {
            name: await stack.enter_async_context(value.make()) if isinstance(value, _InLoop) else value
            for name, value in arguments.items()
        }
        await test(**ready)
