"""Real HTTP over the loopback interface: a small server on a port that the system picks, and clients that ask it.

Apart from the other types because these imports take longer than most jobs.
"""

import contextlib
import http.client
import http.server
import threading
from collections.abc import Iterator
from typing import Any, Final

_PATIENCE_SECONDS: Final = 10
_POLL_SECONDS: Final = 0.01  # how long the end of the server may take


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE_SECONDS
    # Head and body leave in one packet: in two, the second waits for the other side's delayed acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: this would be a line for each of thousands of requests."""


@contextlib.contextmanager
def serving(body_bytes: int) -> Iterator[int]:
    """A server that answers every GET with that many bytes; its port."""
    handler = type("Handler", (_Handler,), {"body": b"x" * body_bytes})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def ask(port: int, requests: int) -> int:
    """Run one client with one connection. Return how many bytes it received. Raises `OSError`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    received = 0
    with contextlib.closing(connection):
        for _ in range(requests):
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                received += len(answer.read())
            except http.client.HTTPException as error:
                raise OSError(f"a bad answer: {error!r}") from error
            if answer.status != http.HTTPStatus.OK:
                raise OSError(f"a bad answer: {answer.status}")
    return received
