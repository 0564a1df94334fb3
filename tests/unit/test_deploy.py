"""What is in `deploy/`: generated files are fresh, names exist, tools that know the formats find nothing wrong, and nothing
asks for more rights than it needs."""

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stoker.coordinator.metric_table import TABLE
from stoker.settings import load
from stoker.settings.table import table
from tests.support.programs import needs

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DEPLOY / "grafana" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()
DOCUMENT: dict[str, Any] = GENERATOR.dashboard()
PANELS = [panel for panel in DOCUMENT["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def promtool(*args: object) -> None:
    done = subprocess.run(["promtool", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def documents(path: Path) -> list[dict[str, Any]]:
    """A YAML file, where something that reads YAML is at hand."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    yaml: Any = importlib.import_module("yaml")
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


# ── metrics ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_dashboard_is_not_stale() -> None:
    assert GENERATOR.OUTPUT.read_text() == GENERATOR.text(), "run: python deploy/grafana/generate.py"


def test_dashboard_and_alerts_ask_only_for_metrics_that_exist_and_for_all_of_them() -> None:
    names = {spec.name for spec in TABLE}
    histograms = {spec.name for spec in TABLE if spec.kind == "histogram"}
    names |= {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
    asked = set(re.findall(r"\bstoker_\w+", " ".join(EXPRESSIONS)))
    assert asked <= names
    assert set(re.findall(r"\bstoker_\w+", ALERTS.read_text())) <= names
    unseen = {spec.name for spec in TABLE if not any(one.startswith(spec.name) for one in asked)}
    assert unseen == set(), "a metric that nobody looks at"


def test_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    cells = [
        (x, y)
        for panel in DOCUMENT["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < GENERATOR.WIDTH


def test_every_alert_says_what_to_do_and_has_a_case_in_the_unit_tests() -> None:
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert len(alerts) >= 5
    cases = (DEPLOY / "prometheus" / "alerts_test.yml").read_text().split("alertname: ")[1:]
    fired = {case.split()[0] for case in cases if "exp_alerts" in case.split("alert_rule_test")[0]}
    quiet = {case.split()[0] for case in cases if "exp_alerts" not in case.split("eval_time")[0]}
    assert fired == quiet == set(alerts)
    assert ALERTS.read_text().count("description:") == ALERTS.read_text().count("summary:") == len(alerts)


@needs("promtool", "prometheus")
def test_promtool_accepts_the_rules_and_their_unit_tests_pass() -> None:
    promtool("check", "rules", ALERTS)
    promtool("test", "rules", DEPLOY / "prometheus" / "alerts_test.yml")


@needs("promtool", "prometheus")
def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    """With the paths of the container put where the files are."""
    token = tmp_path / "token"
    token.write_text("a-token-of-enough-characters")
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    for inside, outside in (("/run/secrets/stoker_token", token), ("/etc/prometheus/rules/*.yml", ALERTS)):
        assert inside in text
        text = text.replace(inside, str(outside))
    config = tmp_path / "prometheus.yml"
    config.write_text(text)
    promtool("check", "config", config)


# ── containers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_setting_in_compose_manifests_and_units_is_one() -> None:
    known = {variable for entry in table() for variable in entry.variables}
    files = [DEPLOY / "compose.yaml", *DEPLOY.glob("kubernetes/*.yaml"), *DEPLOY.glob("systemd/*")]
    named = {name for file in files for name in re.findall(r"\bSTOKER_[A-Z_]+\b", file.read_text())}
    assert named
    assert named <= known


def test_images_are_not_root_and_their_base_is_an_argument() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE).count("${BASE_IMAGE}") == 2
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    runtime = next(stage for stage in stages if stage.startswith("${BASE_IMAGE} AS runtime"))
    assert re.search(r"^USER 10001:10001$", runtime, re.MULTILINE)
    finals = [stage for stage in stages if stage.startswith("runtime AS ")]
    assert [stage.split()[2] for stage in finals] == ["coordinator", "worker", "autoscaler"]
    assert not any(re.search(r"^(USER|RUN)", stage, re.MULTILINE) for stage in finals)
    assert all("HEALTHCHECK" in stage for stage in finals)


def test_the_context_of_a_build_holds_what_is_copied_and_nothing_else() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    wanted = {name.rstrip("/") for line in copied for name in line.split()}
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignore[1] == "*"
    assert {line[1:] for line in ignore if line.startswith("!")} == wanted
    assert all((ROOT / name).exists() for name in wanted)


def checked(program: str, *args: object) -> str | None:
    """What a schema tool of the virtual environment has to say against a file; None when it is content."""
    tool = Path(sys.executable).with_name(program)
    if not tool.exists() and os.environ.get("CI") != "true":
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([str(tool), *map(str, args)], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stdout + done.stderr


def test_the_compose_file_keeps_to_the_schema_of_compose(tmp_path: Path) -> None:
    check = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    assert checked(*check, DEPLOY / "compose.yaml") is None
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((DEPLOY / "compose.yaml").read_text().replace("read_only: true", "readonly: true"))
    assert "'readonly' was unexpected" in (checked(*check, wrong) or "")


@pytest.mark.parametrize("version", ["1.27", "1.33"])
def test_the_manifests_keep_to_the_schema_of_kubernetes(version: str, tmp_path: Path) -> None:
    check = ("kubernetes-validate", "--strict", "-k", version)
    manifests = [DEPLOY / "kubernetes" / name for name in ("coordinator.yaml", "worker.yaml")]
    assert checked(*check, *manifests) is None
    wrong = tmp_path / "coordinator.yaml"
    wrong.write_text(manifests[0].read_text().replace("periodSeconds: 10", "everySeconds: 10"))
    assert "everySeconds" in (checked(*check, wrong) or "")


def test_the_kustomization_names_files_that_exist() -> None:
    (kustomization,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    folder = DEPLOY / "kubernetes"
    assert all((folder / name).exists() for name in kustomization["resources"])


def test_only_the_autoscaler_gets_the_socket_and_only_when_asked_for() -> None:
    (compose,) = documents(DEPLOY / "compose.yaml")
    services = compose["services"]
    assert {
        "coordinator",
        "worker",
        "postgres",
        "redis",
        "prometheus",
        "grafana",
        "autoscaler",
    } == services.keys()
    with_socket = [name for name, service in services.items() if "docker.sock" in str(service.get("volumes"))]
    assert with_socket == ["autoscaler"]
    assert services["autoscaler"]["profiles"] == ["autoscale"]
    for service in services.values():
        assert not service.get("privileged")
        assert "cap_add" not in service
    for name in ("coordinator", "worker", "autoscaler"):
        assert (services[name]["read_only"], services[name]["cap_drop"]) == (True, ["ALL"])
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_workers_have_longer_to_leave_than_they_need() -> None:
    grace = load({}).shutdown_grace_sec + load({}).cancel_grace_sec
    (compose,) = documents(DEPLOY / "compose.yaml")
    assert int(compose["services"]["worker"]["stop_grace_period"].removesuffix("s")) > grace
    deployment = documents(DEPLOY / "kubernetes" / "worker.yaml")[0]
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > grace
    unit = (DEPLOY / "systemd" / "stoker-worker@.service").read_text()
    found = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert found is not None
    assert int(found[1]) > grace


def test_every_pod_is_probed_drained_budgeted_and_without_rights() -> None:
    manifests = [
        *documents(DEPLOY / "kubernetes/coordinator.yaml"),
        *documents(DEPLOY / "kubernetes/worker.yaml"),
    ]
    deployments = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
    budgets = [manifest for manifest in manifests if manifest["kind"] == "PodDisruptionBudget"]
    assert [d["metadata"]["name"] for d in deployments] == [b["metadata"]["name"] for b in budgets]
    for deployment, budget in zip(deployments, budgets, strict=True):
        pod = deployment["spec"]["template"]
        assert budget["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["automountServiceAccountToken"] is False
        (container,) = pod["spec"]["containers"]
        assert {"livenessProbe", "readinessProbe", "lifecycle", "resources"} <= container.keys()
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "drain" in str(deployments[1]["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"])


@needs("systemd-analyze", "systemd")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """With the program put where it is here."""
    stoker = Path(sys.executable).with_name("stoker")
    units = []
    for unit in sorted((DEPLOY / "systemd").iterdir()):
        copy = tmp_path / unit.name.replace("@.", "@1.")
        text = unit.read_text()
        assert "/opt/stoker/bin/stoker" in text
        copy.write_text(text.replace("/opt/stoker/bin/stoker", str(stoker)))
        units.append(copy)
    assert len(units) == 3
    analyze = shutil.which("systemd-analyze")
    done = subprocess.run(
        [str(analyze), "verify", "--man=no", *map(str, units)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "stoker-" in line]
    assert complaints == []
