"""Answers that take their time: they end when there is no more to say or the client leaves, whichever is first."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Final, TypeVar

import structlog
from starlette.types import Receive, Scope, Send

from stoker.api.server.exchange import ClientGone, Header, Interrupted, Stream

T = TypeVar("T")

GONE: Final = "stoker.gone"
"""Set in the scope of a request whose connection ended before its answer was sent."""

LISTENS: Final = "stoker.listens"
"""Set in the scope of a request that wants to know when its client leaves."""

HALF_CLOSED: Final = "stoker.half_closed"
"""In the scope of a request whose client will send nothing more: how to hang up."""

_log = structlog.get_logger(__name__)


async def while_there(work: Coroutine[Any, Any, T], leaving: Coroutine[Any, Any, None]) -> T:
    """Return what `work` comes to; it is given up when the client leaves first. Raises `ClientGone`."""
    working = asyncio.create_task(work)
    gone = asyncio.create_task(leaving)
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def send_stream(
    response: Stream, headers: list[Header], scope: Scope, receive: Receive, send: Send
) -> None:
    """Send the pieces of a response. The headers announce no length: the server sends them in chunks."""
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    sending = asyncio.create_task(_send_pieces(response.pieces, send))
    leaving = asyncio.create_task(until_gone(scope, receive))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
        await response.pieces.aclose()


async def _send_pieces(pieces: AsyncGenerator[bytes, None], send: Send) -> None:
    try:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except Interrupted as error:
        _log.info("stream_interrupted", detail=str(error))
        return
    except Exception:  # noqa: BLE001 - the answer has begun: all that is left is not to end it as if it were whole
        _log.exception("stream_failed")
        return
    await send({"type": "http.response.body", "body": b""})


async def until_gone(scope: Scope, receive: Receive) -> None:
    """Who waits for long takes the end of what the client sends for its end: the two cannot be told apart."""
    scope[LISTENS] = True
    hang_up = scope.get(HALF_CLOSED)
    if hang_up is not None:
        hang_up()
    while (await receive())["type"] != "http.disconnect":
        pass
