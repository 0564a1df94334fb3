"""uvicorn's WebSocket protocol, for which a handshake that was refused with an answer is complete.

uvicorn sends the answer and then logs, at the level of an error, that none was given. A worker with a wrong token would
write such a line with every try.
"""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class RefusalIsAnAnswerProtocol(WebSocketsSansIOProtocol):
    """A WebSocket on one connection; a handshake that is refused is answered with a response."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
