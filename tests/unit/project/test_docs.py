"""What the documents say is there: links, make targets, examples, reasons."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.core import labels
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec import Spec
from enginewright.core.spec.parse import parse_spec
from enginewright.core.spec.validate import validate

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
CONDITIONS = (ROOT / "docs" / "reference" / "conditions.md").read_text()


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = document.read_text()
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    named = set(re.findall(r"^make ([a-z0-9-]+)", blocks, re.MULTILINE))
    named |= {target for inline in re.findall(r"`make ([a-z0-9 -]+)`", text) for target in inline.split()}
    assert named <= targets


@pytest.mark.parametrize("path", EXAMPLES, ids=ids)
def test_examples_are_valid(path: Path) -> None:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    spec = parse_spec(document["spec"])
    assert isinstance(spec, Spec), spec
    assert tuple(validate(spec)) == ()


def _pods_of_kubectl_run() -> list[Any]:
    """What ``--overrides`` of the documents' ``kubectl run`` gives, as a parameter for each; ``None`` without any."""
    calls = [(path, call) for path in DOCUMENTS for call in re.findall(
        r"^ *kubectl run .*?(?:[^\\'\n]|'.*?')$", path.read_text(), re.MULTILINE | re.DOTALL)]
    found = [(path, re.search(r"--overrides='(.*?)'", call, re.DOTALL)) for path, call in calls]
    return [pytest.param(json.loads(match[1]) if match else None, id=ids(path)) for path, match in found]


@pytest.mark.parametrize("pod", _pods_of_kubectl_run())
def test_a_namespace_of_restricted_pods_takes_those_that_documents_run(pod: Any) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_documents_run_such_pods() -> None:
    assert len(_pods_of_kubectl_run()) == 2


def test_the_readme_shows_the_example_that_it_names() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"\(`(examples/[a-z]+\.yaml)`\):\n\n```yaml\n(.*?)```", readme, re.DOTALL)
    assert shown
    assert yaml.safe_load(shown[2]) == yaml.safe_load((ROOT / shown[1]).read_text())


def documented() -> set[str]:
    return set(re.findall(r"^\| `([A-Z][A-Za-z]+)` \|", CONDITIONS, re.MULTILINE))


@functools.cache
def raised_by_the_builder() -> frozenset[str]:
    """Reasons as the builder's source writes them: the first argument of an error, a ``reason`` that is kept for one,
    and the problem for which a candidate is offered instead of served."""
    found = set()
    for path in (ROOT / "builders" / "enginewright_builder").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            found |= {place.value for place in _places(node) if isinstance(place, ast.Constant)}
    return frozenset(value for value in found if isinstance(value, str) and re.fullmatch(r"[A-Z][A-Za-z]+", value))


def _places(node: ast.AST) -> list[ast.expr | None]:
    """Where a reason may stand in ``node``."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "reason":
        return [node.value]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return []
    kept = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
    if node.func.id.endswith("Error"):
        return [*kept, *node.args[:1]]
    return [*kept, *(node.args if node.func.id == "_offer" else ())]


@pytest.mark.parametrize("reason", ["NotFasterThanSource", "EvaluationDataInvalid", "CalibrationDataInvalid",
                                    "EvaluationEmpty", "SourceCorrupt", "Interrupted"])
def test_reasons_of_the_builder_are_found_wherever_they_stand(reason: str) -> None:
    assert reason in raised_by_the_builder()


def test_every_condition_and_reason_is_documented() -> None:
    known = {str(member) for member in (*Condition, *Reason)} | raised_by_the_builder()
    assert known - documented() == set()


def test_every_documented_reason_exists() -> None:
    assert documented() - {str(member) for member in (*Condition, *Reason)} - raised_by_the_builder() == set()


def test_help_lists_every_target() -> None:
    command = ["make", "--no-print-directory", "-C", str(ROOT)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)) - {"help"}
    assert {line.split()[0] for line in shown.splitlines() if line.startswith("  ")} == targets


ARCHITECTURE = "".join((ROOT / "docs" / name).read_text() for name in ("architecture.md", "code-map.md"))


@pytest.mark.parametrize("path", sorted(set(re.findall(
    r"`((?:operator|builders|tests|hack|studies|docs|charts|core|clients|act|observe|handlers|reconcile|requirements|crds)/[^`*…]*)`",
    ARCHITECTURE))))
def test_the_architecture_names_only_what_is_there(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "operator" / "enginewright" / path).exists()


def test_every_metric_is_documented() -> None:
    program = "\n".join(path.read_text() for path in (ROOT / "operator" / "enginewright").rglob("*.py"))
    counters = {f"{name}_total" for name in re.findall(r'Counter\(\s*"(enginewright_\w+)"', program)}
    others = set(re.findall(r'(?:Histogram|Gauge|GaugeMetricFamily|gauge)\(\s*"(enginewright_\w+)"', program))
    page = (ROOT / "builders" / "enginewright_builder" / "quality" / "page.py").read_text()
    others |= set(re.findall(r'"(enginewright_\w+)", "(?:gauge|counter)"', page))
    model = (ROOT / "builders" / "enginewright_builder" / "pod" / "python_model" / "model.py").read_text()
    counters |= set(re.findall(r'"(enginewright_\w+_total)"', model))
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert set(re.findall(r"^\| `(enginewright_\w+)`", text, re.MULTILINE)) == counters | others


def test_every_label_and_annotation_is_documented() -> None:
    names = {value for key, value in vars(labels).items()
             if key.isupper() and isinstance(value, str) and value.startswith(f"{labels.GROUP}/")}
    names -= {labels.API_VERSION}
    managers = {value for key, value in vars(labels).items() if key.startswith("FIELD_MANAGER")}
    components = {value for key, value in vars(labels).items() if key.startswith("COMPONENT_")}
    text = (ROOT / "docs" / "reference" / "labels.md").read_text()
    rows = set(re.findall(r"^\| `([a-z./-]+)` \|", text, re.MULTILINE))
    assert rows == names | managers
    told = text.partition("`component` is ")[2].partition(".\n")[0]
    assert set(re.findall(r"`([a-z]+)`", told)) == components
