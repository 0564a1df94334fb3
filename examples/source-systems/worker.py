"""A worker of the `/run` shapes, with the standard library alone: `python worker.py API_URL PORT ID`.

It registers, sends heartbeats, takes jobs at `/run`, answers at once and reports each when it is done.
"""

import json
import queue
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

API, PORT, ID = sys.argv[1].rstrip("/"), int(sys.argv[2]), sys.argv[3]
jobs: queue.Queue[dict[str, Any]] = queue.Queue()


def post(path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(  # noqa: S310
        API + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request).close()  # noqa: S310


class Run(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        jobs.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(202)  # any 2xx means accepted
        self.end_headers()


def run(type: str, payload: str) -> dict[str, Any]:
    if type == "broken":
        return {"success": False, "error": f"cannot run {payload}"}
    time.sleep(float(payload) if type == "slow" else 0)
    return {"success": True, "result": f"{ID} ran {type}: {payload}"}


def work() -> None:
    while job := jobs.get():
        post(f"/jobs/{job['job_id']}/complete", run(job["type"], job["payload"]))


threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", PORT), Run).serve_forever, daemon=True).start()
threading.Thread(target=work, daemon=True).start()
post("/workers", {"id": ID, "endpoint": f"http://127.0.0.1:{PORT}"})
while True:
    time.sleep(0.5)
    post("/workers/heartbeat", {"id": ID})
