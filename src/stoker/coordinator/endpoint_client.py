"""The HTTP client for workers that are web services."""

import ssl
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx
import msgspec

from stoker.coordinator.endpoint_answers import OWN, EndpointAnswer, Shape
from stoker.wire.frames import Assignment

CONNECT_SECONDS: Final = 5.0
MAX_CONNECTIONS: Final = 1_000
KEEPALIVE_SECONDS: Final = 2.0
"""Shorter than the patience of common servers, so that a connection is rarely closed while a job is being sent on it."""
ANSWER_MARGIN_BYTES: Final = 256 * 1024
"""What an answer may have beside the largest result: its frame, or an error with its traceback."""


class Unreachable(Exception):
    """The job never got to the endpoint."""


class Broken(Exception):
    """The connection ended before there was a whole answer; `type` says what to call it."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(message)
        self.type = type


class EndpointClient:
    """One HTTP client for all endpoints."""

    def __init__(self, max_answer_bytes: int) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(),
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS // 10,
                keepalive_expiry=KEEPALIVE_SECONDS,
            ),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "stoker"},
        )

    async def post(self, endpoint: str, job: Assignment, shape: Shape = OWN) -> EndpointAnswer:
        """Send a job and read the answer. Raises `Unreachable` or `Broken`."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"{job.id}:{job.claim_id}"}
        body = msgspec.json.encode(shape.body(job))
        try:
            async with self._client.stream("POST", endpoint, content=body, headers=headers) as response:
                return EndpointAnswer(response.status_code, await self._read(response))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreachable(str(error) or type(error).__name__) from error
        except httpx.RemoteProtocolError as error:
            raise Broken("bad_answer", f"the answer is not HTTP, or was cut off: {error}") from error
        except httpx.TransportError as error:
            raise Broken("connection_lost", str(error) or type(error).__name__) from error

    async def _read(self, response: httpx.Response) -> bytes | None:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > self._max_answer_bytes:
                return None
            chunks.append(chunk)
        return b"".join(chunks)

    async def close(self) -> None:
        await self._client.aclose()
