"""A real Prometheus beside a real system: every panel has data, and every alert fires in the scenario made for it.

The rules are those of `deploy/`, in a hurry: their durations are shortened, and the thresholds that only time could
reach are lowered. That they hold at their real size is what `promtool test rules` shows.
"""

import contextlib
import importlib.util
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from stoker.coordinator.metric_table import TABLE
from tests.e2e.system import Program, Server, System, eventually, free_port
from tests.support.programs import needs
from tests.support.prometheus import Prometheus, prometheus, shrunk

pytestmark = [needs("prometheus", "prometheus"), pytest.mark.timeout(300)]

DEPLOY = Path(__file__).parents[2] / "deploy"
TOKEN = "a-token-of-enough-characters"
DURATIONS = {"1m": "1s", "5m": "2s", "10m": "5s", "15m": "5s"}
THRESHOLDS = {
    "stoker_queue_oldest_age_seconds) > 900": "stoker_queue_oldest_age_seconds) > 2",
    "stoker_autoscaler_decision_age_seconds) > 60": "stoker_autoscaler_decision_age_seconds) > 3",
    "> 0.5": "> 0",  # no disk is slow on demand
}


def rules() -> str:
    text = shrunk((DEPLOY / "prometheus" / "alerts.yml").read_text(), DURATIONS)
    for real, reachable in THRESHOLDS.items():
        assert text.count(real) == 1, real
        text = text.replace(real, reachable)
    return text


def panels() -> dict[str, list[str]]:
    """Expressions by title of panel."""
    spec = importlib.util.spec_from_file_location("generate", DEPLOY / "grafana" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, list[str]] = {}
    for panel in module.dashboard()["panels"]:
        for target in panel.get("targets", []):
            expr = target["expr"].replace("$job", "stoker").replace("$__rate_interval", "10s")
            found.setdefault(panel["title"], []).append(expr.replace("$__range", "60s"))
    return found


class Site(NamedTuple):
    system: System
    server: Server
    prometheus: Prometheus

    def fires(self, alert: str, within: float = 30.0) -> None:
        eventually(
            lambda: alert in self.prometheus.alerts(),
            within,
            lambda: f"{alert} to fire; firing: {self.prometheus.alerts()}; {self.rule(alert)}",
        )

    def is_quiet(self, alert: str, within: float = 30.0) -> None:
        eventually(lambda: alert not in self.prometheus.alerts(), within, f"{alert} to end")

    def rule(self, alert: str) -> object:
        (rule,) = [rule for rule in self.prometheus.rules() if rule["name"] == alert]
        return rule["query"], self.prometheus.query(rule["query"])

    def worker(self, **options: Any) -> Program:
        return self.system.worker(self.server, STOKER_TOKEN=TOKEN, **options)

    def scaler(self, **settings: object) -> Program:
        return self.system.start(
            *("autoscale", "--mode", "recommend", "--url", self.server.url), STOKER_TOKEN=TOKEN, **settings
        )


@pytest.fixture
def site(system: System) -> Iterator[Site]:
    server = system.serve(
        token=TOKEN,
        WORKER_HEARTBEAT_TIMEOUT_SEC=2,
        STOKER_RETRY_BACKOFF_BASE_SEC=1,
        STOKER_RETRY_BACKOFF_CAP_SEC=0.2,
    )
    with prometheus(
        system.folder / "prometheus", free_port(), f"127.0.0.1:{server.port}", TOKEN, rules()
    ) as found:
        eventually(lambda: found.numbers('up{job="stoker"}') == [1.0], 30, "the first scrape")
        yield Site(system, server, found)


@contextlib.contextmanager
def followed_logs(server: Server, job: str) -> Iterator[None]:
    """Somebody who reads along."""

    def follow() -> None:
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.stream(
                "GET",
                f"{server.url}/jobs/{job}/logs?follow=1",
                headers={"Authorization": f"Bearer {TOKEN}"},
                timeout=60,
            ) as answer,
        ):
            for _ in answer.iter_bytes():
                pass

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        server.http.delete(f"/jobs/{job}")
        thread.join(30)


def some_of_everything(server: Server) -> None:
    """Jobs that end in every way, some after retries."""
    ids = [server.submit("echo", "hello")["id"] for _ in range(20)]
    ids += [server.submit("fail", {"times": 1})["id"] for _ in range(3)]
    ids += [server.submit("fail", {"times": 9}, max_attempts=2)["id"] for _ in range(2)]
    ids.append(server.submit("sleep", {"seconds": 30}, timeout_sec=0.2, max_attempts=2)["id"])
    for id in ids:
        server.ended(id, within=60)


def test_every_panel_has_data(site: Site) -> None:
    site.worker(threads=2)
    site.worker(threads=2, name="second")
    site.scaler(MAX_WORKERS=1)
    follow = site.server.submit("sleep", {"seconds": 60})
    nobody = site.server.submit("nobody-serves-this")
    empty: dict[str, list[str]] = {}

    def all_filled() -> bool:
        some_of_everything(site.server)
        nonlocal empty
        empty = {
            title: [expr for expr in exprs if not site.prometheus.numbers(expr)]
            for title, exprs in panels().items()
        }
        empty = {title: exprs for title, exprs in empty.items() if exprs}
        return not empty

    with followed_logs(site.server, follow["id"]):
        eventually(all_filled, 60, lambda: f"panels without data: {empty}")
        assert site.prometheus.numbers('sum(stoker_stream_clients{stream="logs"})') == [1.0]
    assert site.server.status(nobody["id"]) == "queued"

    # Each metric that is declared was scraped, and says what the API says.
    scraped = {series["metric"]["__name__"] for series in site.prometheus.query('{job="stoker"}')}
    for spec in TABLE:
        assert any(name.startswith(spec.name) for name in scraped), f"{spec.name} was never scraped"
    stats = site.server.get("/stats")
    eventually(
        lambda: (
            site.prometheus.numbers('stoker_jobs{status="completed"}')
            == [stats["jobs_by_status"]["completed"]]
        ),
        10,
    )
    assert site.prometheus.numbers("sum(stoker_queue_depth)") == [1.0]
    reasons = {series["metric"]["reason"] for series in site.prometheus.query("stoker_job_retries_total > 0")}
    assert reasons >= {"error", "timeout"}


def test_no_workers_and_then_some(site: Site) -> None:
    site.fires("StokerNoWorkers")
    site.worker()
    site.is_quiet("StokerNoWorkers")


def test_a_job_that_nobody_serves(site: Site) -> None:
    site.worker()
    job = site.server.submit("nobody-serves-this", queue="mail")
    site.fires("StokerJobsStuck")
    site.fires("StokerOldestJobTooOld")
    (series,) = site.prometheus.query("stoker_queue_oldest_age_seconds > 2")
    assert series["metric"]["queue"] == "mail"
    site.server.http.delete(f"/jobs/{job['id']}")
    site.is_quiet("StokerJobsStuck")
    site.is_quiet("StokerOldestJobTooOld")


def test_dead_letters_that_grow(site: Site) -> None:
    site.worker()

    def growing() -> bool:
        site.server.submit("fail", {"times": 9}, max_attempts=1)
        return "StokerDeadLettersGrowing" in site.prometheus.alerts()

    eventually(growing, 30, lambda: str(site.rule("StokerDeadLettersGrowing")))
    eventually(lambda: site.prometheus.numbers("stoker_dead_letters")[0] > 0, 10)
    site.is_quiet("StokerDeadLettersGrowing")


def test_a_worker_that_is_killed_while_it_works(site: Site) -> None:
    worker = site.worker(threads=1)
    job = site.server.submit("nap", {"seconds": 60, "tag": "lost"})
    site.server.started(job["id"])
    worker.kill()
    site.fires("StokerWorkersLost")
    assert site.prometheus.numbers('sum(stoker_job_retries_total{reason="lost"})') == [1.0]
    assert site.prometheus.numbers('stoker_workers{state="lost"}') == [1.0]


def test_a_store_whose_transactions_take_time(site: Site) -> None:
    site.worker()

    def slow() -> bool:
        site.server.submit("echo")
        return "StokerStoreSlow" in site.prometheus.alerts()

    eventually(slow, 30, lambda: str(site.rule("StokerStoreSlow")))


def test_an_autoscaler_at_its_maximum_and_one_that_fell_silent(site: Site) -> None:
    site.worker(threads=1)
    scaler = site.scaler(MAX_WORKERS=1)
    for _ in range(3):
        site.server.submit("nap", {"seconds": 60, "tag": "long"})
    site.fires("StokerAtMaximum")
    scaler.kill()
    site.fires("StokerAutoscalerSilent")
    site.scaler(MAX_WORKERS=1)
    site.is_quiet("StokerAutoscalerSilent")


def test_a_coordinator_that_is_gone(site: Site) -> None:
    site.server.kill()
    site.fires("StokerDown")


def test_there_is_a_scenario_for_every_alert() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", (DEPLOY / "prometheus" / "alerts.yml").read_text()))
    here = Path(__file__).read_text()
    assert alerts == set(re.findall(r'"(Stoker[A-Z]\w+)"', here))
