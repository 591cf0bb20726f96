"""What objects and the installation add to Jobs and their pods."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.config import SPOT_LABELS, OperatorConfig, TrustedCA
from enginewright.core.manifests import gc_job
from enginewright.core.manifests.common import no_devices
from enginewright.core.spec.pod_template_rules import JOBS
from support.children import children_of

JSON = dict[str, Any]
BASE: JSON = {"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"}}
STEPS = ("resolve", "build")
SITE = OperatorConfig(
    job_labels={"team": "platform", "cost-centre": "42"}, job_annotations={"note": "site"},
    job_env={"NO_PROXY": ".svc", "HTTPS_PROXY": "http://site:3128"}, job_priority_class_name="batch",
)


def jobs(template: JSON | None = None, config: OperatorConfig | None = None, **spec: Any) -> dict[str, JSON]:
    children = children_of("m", {**BASE, "engine": {"podTemplate": template or {}}, **spec}, config).all()
    return {step: children[f"{step}_job"] for step in STEPS}


def first(job: JSON) -> JSON:
    """The container of the step; of a build it comes before those that prove."""
    pod = job["spec"]["template"]["spec"]
    found: JSON = [*pod.get("initContainers", []), *pod["containers"]][0]
    return found


def env(job: JSON) -> dict[str, str]:
    """Beside the one that hides devices."""
    return {variable["name"]: variable["value"] for variable in first(job)["env"] if variable != no_devices()}


@pytest.mark.parametrize("step", STEPS)
def test_labels_and_annotations_are_on_job_and_pod_beside_the_operators(step: str) -> None:
    job = jobs({"metadata": {"labels": {"team": "search"}, "annotations": {"note": "hello"}}})[step]
    plain = jobs()[step]
    for meta, before in ((job["metadata"], plain["metadata"]),
                         (job["spec"]["template"]["metadata"], plain["spec"]["template"]["metadata"])):
        assert meta["labels"] == {**before["labels"], "team": "search"}
        assert meta["annotations"]["note"] == "hello"
        assert set(meta["annotations"]) == {*before["annotations"], "note"}


def test_a_container_gets_what_is_said_of_it_alone() -> None:
    template = {"spec": {
        "volumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "containers": [{"name": "build", "env": [{"name": "TZ", "value": "UTC"}],
                        "volumeMounts": [{"name": "ca", "mountPath": "/ca"}]}]}}
    made = jobs(template)
    assert (env(made["build"]), env(made["resolve"])) == ({"TZ": "UTC"}, {})
    for step in STEPS:
        pod = made[step]["spec"]["template"]["spec"]
        assert first(made[step])["name"] == step
        assert "ca" in {volume["name"] for volume in pod["volumes"]}
        mounts = [mount["name"] for mount in first(made[step])["volumeMounts"]]
        assert ("ca" in mounts) == (step == "build")


def test_a_pod_goes_where_both_the_spec_and_the_user_want_it() -> None:
    zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": zone}}
    placement = {"gpu": {"product": "NVIDIA-H200"}, "spot": {"builds": "Require"}}
    job = jobs({"spec": {"affinity": affinity}}, placement=placement)["build"]
    node = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [[one["key"] for one in term["matchExpressions"]] for term in terms] == [
        ["zone", label] for label in sorted(SPOT_LABELS)]


@pytest.mark.parametrize("step", STEPS)
def test_what_the_installation_adds_gives_way_to_the_object(step: str) -> None:
    template = {"metadata": {"labels": {"team": "search"}, "annotations": {"note": "mine"}},
                "spec": {"priorityClassName": "urgent",
                         "containers": [{"name": step, "env": [{"name": "HTTPS_PROXY", "value": "http://mine"}]}]}}
    job = jobs(template, SITE)[step]
    pod = job["spec"]["template"]
    for meta in (job["metadata"], pod["metadata"]):
        assert {key: meta["labels"][key] for key in SITE.job_labels} == {"team": "search", "cost-centre": "42"}
        assert meta["annotations"]["note"] == "mine"
    assert pod["spec"]["priorityClassName"] == "urgent"
    assert env(job) == {"NO_PROXY": ".svc", "HTTPS_PROXY": "http://mine"}


@pytest.mark.parametrize("store", ["pvc://engines", "s3://engines/a"])
def test_the_collector_has_what_the_installation_adds(store: str) -> None:
    job = gc_job("team-a", store, "uid", ("f" * 64,), SITE)
    pod = job["spec"]["template"]
    for meta in (job["metadata"], pod["metadata"]):
        assert SITE.job_labels.items() <= meta["labels"].items()
        assert meta["annotations"]["note"] == "site"
    assert pod["spec"]["priorityClassName"] == "batch"
    assert env(job) == dict(SITE.job_env)


def test_nothing_of_the_operators_can_be_taken_away() -> None:
    """By the installation, whose labels are checked when the operator starts."""
    plain, wild = jobs()["build"], OperatorConfig(job_labels={"app.kubernetes.io/name": "x"})
    made = jobs(config=wild)["build"]
    assert made["metadata"]["labels"] == plain["metadata"]["labels"]


def test_every_volume_and_path_of_these_pods_is_reserved() -> None:
    data = {"uri": "pvc://data/x.npz"}
    spec: JSON = {"source": {**BASE["source"], "signature": {"configMapKeyRef": {"name": "keys", "key": "models.pub"}}},
            "engine": {"calibration": {"uri": "pvc://calibration/x.npz"}}, "accuracy": {"evaluation": data}}
    volumes, paths = set(), set()
    config = OperatorConfig(trusted_ca=TrustedCA(config_map="company-ca"))
    captured = {"accuracy": {"evaluation": {"uri": "captured://m"}}}
    stepped = {"interface": {"pythonSteps": {"postprocess": "steps.py:labels"},
                             "outputs": [{"name": "label", "dtype": "string", "shape": ["batch", 1]}]}}
    listed: JSON = {"checkpoints": [{"name": f"c{index}", "uri": f"pvc://checkpoint-{index}/x"} for index in range(8)],
                    "drafts": [{"name": f"d{index}", "uri": f"pvc://draft-{index}/x"} for index in range(4)]}
    language = {"task": "generate", "accuracy": {"evaluation": {"uri": "pvc://prompts/x.jsonl"}}, "engine": listed}
    for job in (one for more in (spec, captured, stepped, language) for one in jobs(None, config, **more).values()):
        pod = job["spec"]["template"]["spec"]
        volumes |= {volume["name"] for volume in pod["volumes"]}
        paths |= {mount["mountPath"] for container in [*pod.get("initContainers", ()), *pod["containers"]]
                  if container["name"] != labels.CONTAINER_SERVER  # to which no object adds anything
                  for mount in container["volumeMounts"]}
    sources = {f"source-{index}" for index in range(2 + 8 + 4)}
    assert sources <= volumes
    assert volumes - sources == set(JOBS.reserved_volumes) - {labels.SOURCE_VOLUMES}
    assert all(JOBS.reserves(name) for name in volumes)
    assert not any(JOBS.reserves(name) for name in ("source-code", "source-", "my-source-1", "stores"))
    assert {"/" + path.split("/")[1] if path != "/dev/shm" else path for path in paths} == set(JOBS.reserved_paths)
