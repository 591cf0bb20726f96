"""The operator with the chart's own permissions and no others: the whole way, and never a refused call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.clients.resources import OPTIMISED_MODEL
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.fleets import H100
from support.kubectl import Kubectl
from support.operators import embedded

ACCOUNT = "operator"


@pytest.fixture
def granted(objects: Callable[[dict[str, Any]], dict[str, list[dict[str, Any]]]], control_plane: Path, namespace: str,
            tmp_path: Path) -> Path:
    """The kubeconfig of a service account that is given the chart's Role in ``namespace``, and nothing besides."""
    kubectl = Kubectl(control_plane, namespace)
    kubectl("create", "serviceaccount", ACCOUNT)
    found = objects({"watchNamespaces": [namespace]})
    assert "ClusterRole" not in found
    # Not the Role for the Lease, which is in the operator's own namespace.
    role, binding = (next(one for one in found[kind] if one["metadata"]["namespace"] == namespace)
                     for kind in ("Role", "RoleBinding"))
    binding["subjects"] = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
    for item in (role, binding):
        kubectl("apply", "-f", "-", stdin=item)
    config = yaml.safe_load(control_plane.read_text())
    config["users"][0]["user"] = {"token": kubectl("create", "token", ACCOUNT).strip()}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.fixture
async def limited(granted: Path, namespace: str) -> Path:
    """The same, once it has the Role: the apiserver hears of Roles and bindings a moment later."""
    kubectl = Kubectl(granted, namespace)

    async def taken_in() -> bool:
        return kubectl.run("auth", "can-i", "list", "pods").stdout.strip() == "yes"

    await eventually(taken_in)
    return granted


async def test_the_whole_way_needs_nothing_else(
    limited: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    async with embedded(limited, namespace) as operator:
        await models.create(model(autoscaling={"maxReplicas": 2}))
        await models.wait("Ready", "True")
        await models.delete()
        await models.gone(OPTIMISED_MODEL, "minilm")
        calls = operator.metrics.api_seconds.collect()
        codes = {sample.labels["code"] for metric in calls for sample in metric.samples}
    assert "200" in codes
    assert "403" not in codes


async def test_a_namespace_that_is_gone_does_not_take_the_others_along(
    limited: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """With it went its Role, so that everything there is refused."""
    async with embedded(limited, namespace, others=[f"{namespace}-gone"]) as operator:
        await models.create(model())
        await models.wait("Ready", "True")

        async def ready() -> bool:
            return not operator.health.unready()

        await eventually(ready)
        assert await operator.housekeeper._reader.read()


async def test_without_nodes_the_scheduler_has_the_last_word(
    limited: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """Even where it was told to look at nodes, which a Role cannot allow."""
    kubelet.script.server = "unschedulable"
    placement = {"accelerator": "gpu", "gpu": {"product": H100}, "mig": {"profile": "3g.40gb"}}
    async with embedded(limited, namespace) as operator:
        await models.create(model(placement=placement))
        said = (await models.wait("RolloutComplete", "False", "Unschedulable"))["message"]
        assert said.endswith("check with: kubectl describe nodes.")
        kubelet.script.server = "succeed"
        await models.wait("Ready", "True", "Serving")
        refused = {sample.labels["resource"] for metric in operator.metrics.api_seconds.collect()
                   for sample in metric.samples if sample.labels["code"] == "403"}
    assert refused == {"nodes"}


def test_it_may_not_do_more(limited: Path, namespace: str) -> None:
    kubectl = Kubectl(limited, namespace)
    models, roles = "optimisedmodels.enginewright.io", "roles.rbac.authorization.k8s.io"
    refused = (("get", "secrets"), ("list", "secrets"), ("patch", "secrets"), ("delete", "secrets"),
               ("create", "pods"), ("create", "pods/exec"), ("update", models),
               ("deletecollection", models), ("create", roles))
    for verb, resource in refused:
        assert kubectl.run("auth", "can-i", verb, resource).stdout.strip() == "no", f"{verb} {resource}"
    assert kubectl.run("auth", "can-i", "list", "pods").stdout.strip() == "yes"
    assert kubectl.run("auth", "can-i", "list", "pods", "-n", "default").stdout.strip() == "no"
    assert kubectl.run("auth", "can-i", "list", "nodes").stdout.strip() == "no"
