"""Sending an answer that comes piece by piece, until it ends or the client leaves, whichever is first."""

import asyncio
from collections.abc import AsyncGenerator

import structlog
from starlette.types import Receive, Send

from stoker.api.exchange import Header, Interrupted, Stream

_log = structlog.get_logger(__name__)


async def send_stream(response: Stream, headers: list[Header], receive: Receive, send: Send) -> None:
    """Send the pieces of a response without announcing a length: the server sends them in chunks."""
    unsized = [header for header in headers if header[0] != b"content-length"]
    await send({"type": "http.response.start", "status": response.status, "headers": unsized})
    sending = asyncio.create_task(_send_pieces(response.pieces, send))
    leaving = asyncio.create_task(_until_gone(receive))
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


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
