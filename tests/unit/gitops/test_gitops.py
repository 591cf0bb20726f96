"""The health script for Argo CD, in a real Lua, over every reason; what kstatus makes of conditions; the examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.core.reasons import Reason
from enginewright.core.spec import Spec
from enginewright.core.spec.parse import parse_spec
from support.argo import SCRIPT, health

ROOT = Path(__file__).resolve().parents[3]
FLUX = ROOT / "examples" / "gitops" / "flux" / "models.yaml"
GITOPS = (ROOT / "docs" / "gitops.md").read_text()


def listed(table: str) -> set[str]:
    match = re.search(rf"local {table} = {{(.*?)}}", SCRIPT.read_text(), re.DOTALL)
    assert match
    return set(re.findall(r"(\w+) = true", match[1]))


PROGRESSING, SUSPENDED = listed("waits_for_time"), listed("waits_for_somebody")
# Somebody has to change something.
DEGRADED = {
    Reason.INVALID_SPEC, Reason.NAME_TAKEN, Reason.API_REFUSED, Reason.OPERATOR_ERROR, Reason.BUILD_FAILED,
    Reason.BUILD_DEADLINE_EXCEEDED,
    Reason.STORE_MISSING, Reason.STORE_UNREACHABLE, Reason.VOLUME_MISSING, Reason.IMAGE_PULL_FAILED,
    Reason.OUT_OF_MEMORY, Reason.SERVER_DID_NOT_START, Reason.SERVER_IMAGE_UNFIT, Reason.DRIVER_TOO_OLD,
    Reason.ENERGY_NOT_METERED,
    Reason.POD_CANNOT_START, Reason.ACCURACY_NOT_REACHED, Reason.ROLLED_BACK, Reason.ROLLBACK_TARGET_UNKNOWN,
    Reason.GATEWAY_NOT_INSTALLED, Reason.ENGINE_REFUSED, Reason.TENSORRT_VERSION_MISMATCH, Reason.DEVICE_MISMATCH,
    Reason.SMOKE_TEST_FAILED, Reason.CRASHING, Reason.FAILED_INFERENCES, Reason.SLOWER, Reason.OBJECTIVE_MISSED,
    Reason.OUTPUTS_DIFFER, Reason.QUALITY_DRIFTED, Reason.ANALYSIS_INCONCLUSIVE, Reason.PROGRESS_DEADLINE_EXCEEDED,
    Reason.QUEUE_TIMEOUT_TOO_SHORT, Reason.CACHE_MISSING, Reason.CACHE_UNSAFE, Reason.MEMORY_LIMIT_TOO_LOW,
    Reason.BATCH_FAILED, Reason.BUILT_SLOWER,
}
# Of conditions that are true, or that Ready does not wait for.
NEVER_OF_A_READY_THAT_IS_FALSE = {
    Reason.RESOLVED, Reason.BUILT, Reason.CACHE_HIT, Reason.SOURCE_SERVED, Reason.VERIFIED,
    Reason.VERIFIED_ON_SYNTHETIC_DATA, Reason.MET, Reason.NOT_MET, Reason.NO_OBJECTIVE, Reason.COMPLETE, Reason.SERVING,
    Reason.SERVING_PREVIOUS, Reason.MANUAL, Reason.SCALING, Reason.STEADY, Reason.HOLDING, Reason.AT_LIMIT,
    Reason.SCALED_TO_ZERO, Reason.WAKING, Reason.OBJECTIVE_OUT_OF_REACH, Reason.REPLICAS_CONTESTED,
    Reason.PRICE_UNKNOWN, Reason.AGREEING, Reason.MEASURING, Reason.UNDECIDED, Reason.NOT_MEASURED,
    Reason.BATCH_COMPLETE, Reason.AS_FAST, Reason.NOT_COMPARABLE,
}


RULES = ROOT / "charts" / "enginewright" / "files" / "rules.yaml"
CONDITIONS = (ROOT / "docs" / "reference" / "conditions.md").read_text()
# They have an alarm of their own.
OF_ANOTHER_ALARM = {Reason.ACCURACY_NOT_REACHED, Reason.STORE_UNREACHABLE}


def model(status: dict[str, Any] | None, *, generation: int = 2, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "minilm", "generation": generation}, "spec": spec,
            **({"status": status} if status is not None else {})}


def ready(status: str, reason: str, *, observed: int = 2) -> dict[str, Any]:
    condition = {"type": "Ready", "status": status, "reason": reason, "message": "Why.", "observedGeneration": observed}
    other = {"type": "Available", "status": "True", "reason": "Serving", "message": "It answers."}
    return {"observedGeneration": observed, "conditions": [other, condition]}


@pytest.mark.parametrize(("obj", "wanted"), [
    (model(None), "Progressing"),
    (model({"observedGeneration": -1}), "Progressing"),
    (model({"observedGeneration": 2}), "Progressing"),
    (model(ready("True", "Serving", observed=1)), "Progressing"),
    (model(ready("True", "Serving")), "Healthy"),
    (model(ready("True", "ScaledToZero")), "Healthy"),
    (model(ready("Unknown", "Anything")), "Progressing"),
    (model(ready("False", "Building")), "Progressing"),
    (model(ready("False", "WaitingForPromotion")), "Suspended"),
    (model(ready("False", "Suspended"), suspend=True), "Suspended"),
    (model(ready("True", "Serving"), suspend=True), "Suspended"),
    (model(ready("False", "Building"), suspend=False), "Progressing"),
    (model(ready("False", "AccuracyNotReached")), "Degraded"),
    (model(ready("False", "DigestMismatch")), "Degraded"),
])
def test_every_stage(obj: dict[str, Any], wanted: str) -> None:
    assert health(obj)[0] == wanted


def test_the_message_is_the_conditions() -> None:
    assert health(model(ready("False", "Building")))[1] == "Building: Why."


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_was_thought_of(reason: Reason) -> None:
    """A new one belongs into the script where time or somebody's consent mends it, or into one of the sets above."""
    kinds = [reason in kind for kind in (PROGRESSING, SUSPENDED, DEGRADED, NEVER_OF_A_READY_THAT_IS_FALSE)]
    assert sum(kinds) == 1
    if reason not in NEVER_OF_A_READY_THAT_IS_FALSE:
        wanted = ("Progressing", "Suspended", "Degraded")[kinds.index(True)]
        assert health(model(ready("False", reason)))[0] == wanted


def test_the_script_names_only_reasons_that_exist() -> None:
    assert (PROGRESSING | SUSPENDED) - {str(reason) for reason in Reason} == set()


def _of_a_build() -> set[str]:
    """Reasons of the conditions ``SourceResolved`` and ``EngineBuilt``, and those that all conditions have."""
    section = re.compile(r"^### (?:The object|`SourceResolved|`EngineBuilt).*?(?=^##)", re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^\| `(\w+)` \|", "".join(section.findall(CONDITIONS)), re.MULTILINE)) | OF_ANOTHER_ALARM


@pytest.mark.parametrize("reason", sorted(_of_a_build()))
def test_the_alarm_of_a_failed_build_leaves_out_what_mends_itself(reason: str) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    (alarm,) = (rule for group in groups for rule in group["rules"] if rule.get("alert") == "EnginewrightBuildFails")
    left_out = re.search(r'reason!~"(.*?)"', alarm["expr"])
    assert left_out
    assert bool(re.fullmatch(left_out[1], reason)) == (reason in PROGRESSING | SUSPENDED | OF_ANOTHER_ALARM)


def kstatus(obj: dict[str, Any]) -> str:
    """What ``Compute`` of kubernetes-sigs/cli-utils (pkg/kstatus/status: generic.go, then the condition Ready) says of
    a custom resource that is not being deleted."""
    status = obj.get("status") or {}
    if status.get("observedGeneration", obj["metadata"]["generation"]) != obj["metadata"]["generation"]:
        return "InProgress"
    found = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    if found.get("Reconciling") == "True":
        return "InProgress"
    if found.get("Stalled") == "True":
        return "Failed"
    return "Current" if found.get("Ready", "True") == "True" else "InProgress"


@pytest.mark.parametrize(("obj", "wanted"), [
    (model({"observedGeneration": -1}), "InProgress"),
    (model(ready("True", "Serving", observed=1)), "InProgress"),
    (model(ready("True", "Serving")), "Current"),
    (model(ready("False", "Building")), "InProgress"),
    (model(ready("Unknown", "Anything")), "InProgress"),
])
def test_what_kstatus_makes_of_it(obj: dict[str, Any], wanted: str) -> None:
    assert kstatus(obj) == wanted


def test_an_object_that_nobody_has_seen_would_be_current_without_the_default() -> None:
    """Why the CRD gives status.observedGeneration one."""
    assert kstatus(model(None)) == "Current"


def test_flux_fails_for_the_same_reasons() -> None:
    """``healthCheckExprs`` wait for what the script calls Progressing or Suspended."""
    documents = list(yaml.safe_load_all(FLUX.read_text()))
    (check,) = documents[1]["spec"]["healthCheckExprs"]
    assert set(re.findall(r"'([A-Z]\w+)'", check["failed"])) - {"Ready", "False"} == PROGRESSING | SUSPENDED


def test_the_page_says_how_the_script_is_installed() -> None:
    assert f"examples/gitops/argo-cd/{SCRIPT.name}" in GITOPS
    assert "resource.customizations.health.enginewright.io_OptimisedModel" in GITOPS


@pytest.mark.parametrize("environment", ["staging", "production"])
def test_the_example_models_are_good(environment: str) -> None:
    """With their patch, which merges as Kustomize merges objects without lists of objects."""
    folder = ROOT / "examples" / "gitops" / "models"
    base = yaml.safe_load((folder / "base" / "minilm.yaml").read_text())
    (patch,) = yaml.safe_load((folder / environment / "kustomization.yaml").read_text())["patches"]
    spec = parse_spec({**base["spec"], **yaml.safe_load(patch["patch"])["spec"]})
    assert isinstance(spec, Spec), spec
