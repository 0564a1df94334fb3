"""A real Prometheus on loopback, for tests that ask it what it made of a running system."""

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

SCRAPE_SECONDS = 0.25
START_SECONDS = 30.0


class Prometheus:
    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)

    def close(self) -> None:
        self._http.close()

    def ready(self) -> bool:
        try:
            return self._http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        answer = self._http.get("/api/v1/query", params={"query": expr})
        assert answer.status_code == 200, f"{expr}: {answer.text}"
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return result

    def numbers(self, expr: str) -> list[float]:
        """Their values that are numbers: a ratio of nothing to nothing is none."""
        values = [float(series["value"][1]) for series in self.query(expr)]
        return [value for value in values if value == value]

    def alerts(self) -> set[str]:
        """The names of alerts that fire now."""
        found = self._http.get("/api/v1/alerts").json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}

    def rules(self) -> list[dict[str, Any]]:
        groups = self._http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@contextlib.contextmanager
def prometheus(folder: Path, port: int, target: str, token: str, rules: str) -> Iterator[Prometheus]:
    """Scrapes `target` four times a second as the job `stoker`, and judges these rules as often."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yml").write_text(rules)
    (folder / "token").write_text(token)
    (folder / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}}
rule_files: [{folder}/rules.yml]
scrape_configs:
  - job_name: stoker
    authorization: {{credentials_file: {folder}/token}}
    static_configs: [{{targets: ["{target}"]}}]
"""
    )
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--query.lookback-delta=2s",
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    server = Prometheus(f"http://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.ready():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield server
    finally:
        server.close()
        process.kill()
        process.wait()


def shrunk(text: str, durations: Mapping[str, str], replace: Callable[[str], str] = lambda text: text) -> str:
    """Rules for people in a hurry: every duration in them becomes a shorter one. One that is not in the map is an error."""

    def shorter(found: re.Match[str]) -> str:
        return found[1] + durations[found[2]] + found[3]

    return replace(re.sub(r"(\[|for: )(\d+[smh])(\]|\n)", shorter, text))
