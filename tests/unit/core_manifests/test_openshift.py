"""OpenShift's restricted-v2 refuses users and groups that are not those of the namespace, and gives a pod that names
none of them."""

from __future__ import annotations

from typing import Any

from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import gc_job
from support.children import children_of

OPENSHIFT = OperatorConfig(openshift=True)
IDS = {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"}
EVERY_POD = {
    "source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H200"}},
    "quality": {}, "autoscaling": {"minReplicas": 0, "maxReplicas": 2},
    "serving": {"podTemplate": {"spec": {"containers": [{"name": "sidecar", "image": "proxy:1"}]}}},
}


def test_no_pod_names_a_user_or_group() -> None:
    children = children_of("m", EVERY_POD, OPENSHIFT).all()
    removal = gc_job("models", "pvc://engines", "claim-uid", ["e" * 64], OPENSHIFT)
    for kind in ("resolve_job", "build_job", "deployment", "activator"):
        _is_left_to_the_platform(children[kind]["spec"]["template"]["spec"], kind)
    _is_left_to_the_platform(removal["spec"]["template"]["spec"], "gc_job")


def _is_left_to_the_platform(pod: dict[str, Any], kind: str) -> None:
    context = pod["securityContext"]
    assert not IDS & context.keys(), kind
    assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"}), kind
    # Of the group that the platform gives: a large store is not gone through at every start.
    assert context["fsGroupChangePolicy"] == "OnRootMismatch", kind
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        assert not IDS & container["securityContext"].keys(), (kind, container["name"])


def test_it_makes_no_new_revision() -> None:
    assert children_of("m", EVERY_POD, OPENSHIFT).revision == children_of("m", EVERY_POD).revision
