"""The Grafana dashboard as code: `python deploy/grafana/generate.py` writes `dashboards/stoker.json` beside it.

What is shown is the table of rows below. The JSON is committed, because Grafana reads it from a folder; a test fails when
it is stale, and another asks a real Prometheus every expression.

Every coordinator tells the same of the system as a whole, so that is taken with `max`; what each counts of itself is summed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).parent
OUTPUT: Final = HERE / "dashboards" / "stoker.json"
WIDTH: Final = 24
HEIGHT: Final = 8
STAT_HEIGHT: Final = 4
RATE: Final = "$__rate_interval"
WORKING: Final = 'state=~"available|busy"'
COMPLETED: Final = 'status="completed"'
ENDED: Final = 'status=~"completed|failed"'
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Line(NamedTuple):
    """One expression and what its series are called."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    title: str
    lines: tuple[Line, ...]
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    stacked: bool = False
    text: str = ""


class Row(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


def of_system(metric: str, by: str = "", labels: str = "") -> str:
    """A number that every coordinator knows of the whole system."""
    chosen = f'{metric}{{job="$job"{"," if labels else ""}{labels}}}'
    return f"max by ({by}) ({chosen})" if by else f"max({chosen})"


def rate(metric: str, by: str = "", labels: str = "") -> str:
    """How often something happens in a second, over all coordinators."""
    chosen = f'rate({metric}{{job="$job"{"," if labels else ""}{labels}}}[{RATE}])'
    return f"sum by ({by}) ({chosen})" if by else f"sum({chosen})"


def quantiles(metric: str) -> tuple[Line, ...]:
    return tuple(
        Line(f"histogram_quantile({q}, {rate(f'{metric}_bucket', 'le')})", f"p{q * 100:g}")
        for q in (0.5, 0.95, 0.99)
    )


def stat(title: str, expr: str, unit: str = "short", text: str = "") -> Panel:
    return Panel(title, (Line(expr),), unit, 4, "stat", text=text)


ROWS: Final = (
    Row(
        "Now",
        (
            stat("Jobs that wait", f"sum({of_system('stoker_queue_depth', 'queue')})"),
            stat("Jobs that run", of_system("stoker_jobs", labels='status="running"')),
            stat(
                "Oldest job that waits", f"max({of_system('stoker_queue_oldest_age_seconds', 'queue')})", "s"
            ),
            stat("Workers", f"sum({of_system('stoker_workers', 'state', WORKING)})"),
            stat("Dead letters", of_system("stoker_dead_letters")),
            stat(
                "Success rate",
                f"{rate('stoker_jobs_finished_total', labels=COMPLETED)} / "
                f"{rate('stoker_jobs_finished_total', labels=ENDED)}",
                "percentunit",
                "Of the jobs that ended in the last moments.",
            ),
        ),
    ),
    Row(
        "Processing",
        (
            Panel(
                "Submitted and finished per second",
                (
                    Line(rate("stoker_jobs_submitted_total"), "submitted"),
                    Line(rate("stoker_jobs_finished_total", "status"), "{{status}}"),
                ),
                "ops",
                12,
            ),
            Panel(
                "Finished per second, by type",
                (Line(f"topk(10, {rate('stoker_jobs_finished_total', 'type')})", "{{type}}"),),
                "ops",
                12,
            ),
            Panel(
                "Jobs in the store",
                (Line(of_system("stoker_jobs", "status"), "{{status}}"),),
                width=12,
                text="Totals by status, finished ones as long as they are kept.",
            ),
            Panel(
                "Finished in the range shown",
                (
                    Line(
                        'sum by (status) (increase(stoker_jobs_finished_total{job="$job"}[$__range]))',
                        "{{status}}",
                    ),
                ),
                width=12,
                kind="bargauge",
            ),
        ),
    ),
    Row(
        "Queue and dead letters",
        (
            Panel(
                "Jobs that wait, by queue",
                (Line(of_system("stoker_queue_depth", "queue"), "{{queue}}"),),
                stacked=True,
            ),
            Panel(
                "Oldest job that waits, by queue",
                (Line(of_system("stoker_queue_oldest_age_seconds", "queue"), "{{queue}}"),),
                "s",
            ),
            Panel("Dead letters over time", (Line(of_system("stoker_dead_letters"), "dead letters"),)),
        ),
    ),
    Row(
        "Durations",
        (
            Panel("From due to start", quantiles("stoker_job_wait_seconds"), "s"),
            Panel("From start to end", quantiles("stoker_job_run_seconds"), "s"),
            Panel("From submission to end", quantiles("stoker_job_total_seconds"), "s"),
        ),
    ),
    Row(
        "What goes wrong",
        (
            Panel(
                "Retries per second, by reason",
                (Line(rate("stoker_job_retries_total", "reason"), "{{reason}}"),),
                "ops",
                stacked=True,
            ),
            Panel(
                "Ticks of schedules per second",
                (Line(rate("stoker_schedule_ticks_total", "outcome"), "{{outcome}}"),),
                "ops",
                text="Skipped: the job before was still there, or a pause. Missed: no coordinator was there in time.",
            ),
            Panel(
                "Lease timeouts per second",
                (Line(rate("stoker_lease_timeouts_total"), "lease timeouts"),),
                "ops",
                text="Claims taken back from workers that fell silent.",
            ),
            Panel(
                "Handed back and refused per second",
                (
                    Line(rate("stoker_hand_backs_total"), "handed back without charge"),
                    Line(rate("stoker_stale_reports_total"), "stale reports refused"),
                ),
                "ops",
            ),
        ),
    ),
    Row(
        "Workers",
        (
            Panel(
                "Workers by state", (Line(of_system("stoker_workers", "state"), "{{state}}"),), stacked=True
            ),
            Panel(
                "Threads",
                (
                    Line(of_system("stoker_threads"), "there are"),
                    Line(of_system("stoker_threads_used"), "in use"),
                ),
            ),
            Panel(
                "Time since the last heartbeat",
                (
                    Line(
                        f"topk(20, {of_system('stoker_worker_heartbeat_age_seconds', 'worker')})",
                        "{{worker}}",
                    ),
                ),
                "s",
            ),
        ),
    ),
    Row(
        "Autoscaler",
        (
            Panel(
                "Workers wanted",
                (
                    Line(of_system("stoker_autoscaler_workers", "mode"), "there are ({{mode}})"),
                    Line(of_system("stoker_autoscaler_wanted_workers", "mode"), "wanted ({{mode}})"),
                    Line(of_system("stoker_autoscaler_min_workers"), "minimum"),
                    Line(of_system("stoker_autoscaler_max_workers"), "maximum"),
                ),
            ),
            Panel(
                "Decisions",
                (
                    Line(
                        'sum by (action) (increase(stoker_autoscaler_decisions_total{job="$job"}[$__rate_interval]))',
                        "{{action}}",
                    ),
                ),
            ),
            Panel(
                "Last heard of",
                (
                    Line(
                        'min(stoker_autoscaler_decision_age_seconds{job="$job"})', "age of its last decision"
                    ),
                ),
                "s",
            ),
        ),
    ),
    Row(
        "Store and coordinators",
        (
            Panel("Transactions: time until durable", quantiles("stoker_store_transaction_seconds"), "s"),
            Panel(
                "Transactions per second, and jobs in one",
                (
                    Line(rate("stoker_store_transaction_seconds_count"), "transactions per second"),
                    Line(
                        f"{rate('stoker_store_transaction_jobs_sum')} / {rate('stoker_store_transaction_jobs_count')}",
                        "jobs in one",
                    ),
                ),
            ),
            Panel(
                "Jobs that wait for a transaction",
                (Line('sum(stoker_store_pending_jobs{job="$job"})', "pending"),),
            ),
            Panel(
                "Clients that follow a stream",
                (Line('sum by (stream) (stoker_stream_clients{job="$job"})', "{{stream}}"),),
            ),
            Panel(
                "Coordinators by version",
                (Line('count by (version) (stoker_build_info{job="$job"})', "{{version}}"),),
            ),
            Panel("Uptime", (Line('stoker_uptime_seconds{job="$job"}', "{{instance}}"),), "s"),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    return {
        "uid": "stoker",
        "title": "Stoker",
        "tags": ["stoker"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "templating": {"list": [_datasource(), _job()]},
        "panels": list(_panels()),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _job() -> dict[str, Any]:
    query = "label_values(stoker_build_info, job)"
    return {
        "name": "job",
        "label": "System",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "job"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
    }


def _panels() -> Iterator[dict[str, Any]]:
    """Left to right, top to bottom."""
    number, y = 0, 0
    for row in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": _place(0, y, WIDTH, 1),
        }
        y += 1
        x, height = 0, STAT_HEIGHT if row.panels[0].kind == "stat" else HEIGHT
        for panel in row.panels:
            number += 1
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            yield _panel(panel, number, _place(x, y, panel.width, height))
            x += panel.width
        y += height


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    custom = {
        "fillOpacity": 20 if panel.stacked else 0,
        "stacking": {"mode": "normal" if panel.stacked else "none"},
    }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": custom if panel.kind == "timeseries" else {},
            },
            "overrides": [],
        },
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": line.expr,
                "legendFormat": line.legend or "__auto",
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
            }
            for index, line in enumerate(panel.lines)
        ],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {"reduceOptions": {"calcs": ["lastNotNull"]}, "orientation": "auto"}


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
