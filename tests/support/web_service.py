"""A web service on loopback whose every answer a test decides, down to the bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Reply = Callable[["Received"], Awaitable[bytes]]


class Received:
    """A request as it came."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path = path
        self.headers = headers
        self.body = body

    @property
    def job(self) -> dict[str, Any]:
        job: dict[str, Any] = json.loads(self.body)
        return job


def http(status: int, body: bytes = b"", *headers: str) -> bytes:
    """An answer, byte for byte."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def said(status: int = 200, **fields: Any) -> bytes:
    return http(status, json.dumps(fields).encode(), "Content-Type: application/json")


class WebService:
    """Answers with `reply`, and remembers what it was sent and which requests were broken off."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.received: list[Received] = []
        self.broken_off = asyncio.Event()
        self.arrived = asyncio.Event()
        self.connections = 0
        self.reply: Reply = echo

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await _read(reader)) is not None:
                self.received.append(request)
                self.arrived.set()
                answering = asyncio.ensure_future(self.reply(request))
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    answering.cancel()
                    self.broken_off.set()
                    return
                gone.cancel()
                await asyncio.wait({gone})
                writer.write(answering.result())
                await writer.drain()
        except ConnectionError:
            self.broken_off.set()
        except asyncio.CancelledError:
            pass  # the end of the service; whoever ended it waits for us
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(first.split()[1], headers, body)


async def echo(request: Received) -> bytes:
    return said(result=request.job["payload"])


@asynccontextmanager
async def web_service(port: int = 0) -> AsyncIterator[WebService]:
    made: list[WebService] = []
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        await made[0].serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    made.append(WebService(server.sockets[0].getsockname()[1]))
    try:
        yield made[0]
    finally:
        server.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
