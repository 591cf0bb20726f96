"""Rules and examples for those who bring their own Prometheus and autoscaler."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.core.reasons import Condition, Reason
from enginewright.plugin.main import parse
from support.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "charts" / "enginewright" / "files" / "rules.yaml"
DASHBOARDS = RULES.parent / "dashboards"
EXAMPLES = ROOT / "examples" / "scaling"
CASES = sorted(Path(__file__).parent.glob("rules*.test.yaml"))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("command", [["check", "rules", "--lint-fatal", str(RULES)],
                                     *(["test", "rules", str(cases)] for cases in CASES)])
def test_promtool_agrees(command: list[str]) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "install Debian's package prometheus: hack/bin-deps.sh"
    done = subprocess.run([promtool, *command], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_carries_the_same_rules(objects: Any) -> None:
    rendered = objects({"metrics": {"prometheusRule": {"enabled": True}}})["PrometheusRule"][0]
    assert rendered["spec"] == load(RULES)


def alarms() -> dict[str, Any]:
    return {rule["alert"]: rule for group in load(RULES)["groups"] for rule in group["rules"] if "alert" in rule}


def test_every_alarm_has_a_runbook_that_says_how_severe_it_is() -> None:
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "runbooks").glob("Enginewright*.md")}
    assert pages.keys() == alarms().keys()
    listed = (ROOT / "docs" / "runbooks" / "README.md").read_text()
    for name, text in pages.items():
        severity = alarms()[name]["labels"]["severity"]
        assert text.startswith(f"# {name}\n\n**Severity:** {severity}. **Fires when** ")
        assert f"| [{name}]({name}.md) | {severity} |" in listed
        assert [line for line in text.splitlines() if line.startswith("## ")] == [
            "## What users feel", "## Look", "## Do", "## Whom to wake"]


def test_runbooks_name_reasons_and_commands_that_there_are() -> None:
    text = "".join(path.read_text() for path in (ROOT / "docs" / "runbooks").glob("*.md"))
    asked = re.findall(r"kubectl optimisedmodel ([^`#\n]+)", text)
    assert asked
    for words in asked:
        parse(shlex.split(words.partition("   ")[0]))
    reasons = {word for line in re.findall(r"^- ((?:`[A-Z][A-Za-z]+`(?:, )?)+)", text, re.MULTILINE)
               for word in re.findall(r"`([A-Za-z]+)`", line)}
    assert {reason for reason in reasons if reason not in set(Reason) | set(Condition)} == set()


def test_alarms_have_the_address_of_their_runbook_where_it_is_known(objects: Any) -> None:
    values = {"metrics": {"prometheusRule": {"enabled": True, "runbooks": "https://git.example.com/docs/runbooks/"}}}
    (rendered,) = objects(values)["PrometheusRule"]
    found = {rule["alert"]: rule["annotations"]["runbook_url"] for group in rendered["spec"]["groups"]
             for rule in group["rules"] if "alert" in rule}
    assert found == {name: f"https://git.example.com/docs/runbooks/{name}.md" for name in alarms()}


def test_rules_name_only_what_the_operator_exports() -> None:
    asked = set(re.findall(r"\benginewright_[a-z_]+", RULES.read_text()))
    assert asked
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert {name for name in asked if f"`{name}`" not in documented} == set()


def test_rules_name_conditions_and_reasons_that_there_are() -> None:
    asked = [rule["expr"] for group in load(RULES)["groups"] for rule in group["rules"]]
    text = " ".join(expression for expression in asked if "condition" in expression)
    kinds = {kind for found in re.findall(r'\btype=~?"([^"]+)"', text) for kind in found.split("|")}
    reasons = {reason for found in re.findall(r'\breason[!=]~?"([^"]+)"', text) for reason in found.split("|")}
    assert kinds
    assert kinds <= set(Condition)
    assert reasons
    assert all(any(re.fullmatch(reason, known) for known in Reason) for reason in reasons)


def test_examples_ask_for_what_is_recorded() -> None:
    recorded = {rule["record"] for group in load(RULES)["groups"] for rule in group["rules"] if "record" in rule}
    adapter, keda = load(EXAMPLES / "prometheus-adapter.yaml"), load(EXAMPLES / "keda.yaml")
    (rule,) = adapter["rules"]["external"]
    assert rule["seriesQuery"] in recorded
    (metric,) = load(EXAMPLES / "hpa.yaml")["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    (trigger,) = keda["spec"]["triggers"]
    assert set(re.findall(r"enginewright:[a-z_:]+", trigger["metadata"]["query"])) <= recorded


@pytest.mark.parametrize("example", ["hpa.yaml", "keda.yaml"])
def test_examples_scale_what_the_definition_defines(example: str) -> None:
    crd = load(ROOT / "crds" / "enginewright.io_optimisedmodels.yaml")["spec"]
    target = load(EXAMPLES / example)["spec"]["scaleTargetRef"]
    (version,) = crd["versions"]
    assert target["apiVersion"] == f"{crd['group']}/{version['name']}"
    assert target["kind"] == crd["names"]["kind"]
    assert version["subresources"]["scale"]


def test_the_apiserver_admits_the_autoscaler(control_plane: Path) -> None:
    assert Kubectl(control_plane, "default").admits(load(EXAMPLES / "hpa.yaml")) == ""


def test_the_chart_carries_the_dashboards(objects: Any) -> None:
    """As ConfigMaps that Grafana's sidecar finds; each is the file as it is, and links to the other."""
    assert "dashboard" not in str(objects({}))
    rendered = objects({"metrics": {"dashboards": {"enabled": True}}})["ConfigMap"]
    found = [entry for entry in rendered if "-dashboard-" in entry["metadata"]["name"]]
    boards = {name: json.loads(text) for entry in found for name, text in entry["data"].items()}
    assert all(entry["metadata"]["labels"]["grafana_dashboard"] == "1" for entry in found)
    files = {f"enginewright-{path.name}": load(path) for path in DASHBOARDS.glob("*.json")}
    assert boards == files
    assert {link["url"] for board in boards.values() for link in board["links"]} == {
        f"/d/{board['uid']}" for board in boards.values()
    }
