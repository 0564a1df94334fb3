"""The yardstick: an endpoint that does nothing, served the way Stoker is served. `python -m bench.bare PORT`."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def nothing(request: Request) -> Response:
    return Response(status_code=202)


def main() -> None:
    app = Starlette(routes=[Route("/jobs", nothing, methods=["POST"])])
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
