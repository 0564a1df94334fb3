"""A worker that is a web service, as anybody might write one: `python web_worker.py API_URL PORT QUEUE`."""

import json
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

API, PORT, QUEUE = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def post(path: str, body: object) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(API + path, json.dumps(body).encode(), headers)  # noqa: S310
    return json.load(urllib.request.urlopen(request))  # noqa: S310


class Jobs(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = run(job)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


def run(job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    if job["type"] == "shout":
        return 200, {"result": job["payload"].upper()}
    if job["type"] == "slow":  # answered at once, reported from a thread
        threading.Timer(0.3, report_later, [job["id"], job["claim_id"]]).start()
        return 202, {}
    if job["attempt"] < 3:
        return 500, {"error": {"type": "Stumbled", "message": f"at attempt {job['attempt']}"}}
    return 200, {"result": {"attempt": job["attempt"]}}


def report_later(id: str, claim_id: int) -> None:
    report = {"id": id, "claim_id": claim_id, "outcome": "completed", "result": "at last"}
    post(f"/workers/{me['id']}/report", {"reports": [report]})


server = ThreadingHTTPServer(("127.0.0.1", PORT), Jobs)
threading.Thread(target=server.serve_forever).start()
hello = {"name": "web", "threads": 2, "types": ["shout", "stumble", "slow"], "queues": [QUEUE]}
me = post("/workers", {**hello, "endpoint": f"http://127.0.0.1:{PORT}/jobs"})
while not threading.Event().wait(me["heartbeat_interval_sec"]):
    post(f"/workers/{me['id']}/heartbeat", {})
