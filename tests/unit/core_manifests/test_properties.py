"""What holds for the children of any good spec."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings

from enginewright.core import labels
from enginewright.core.manifests import proven_digest, read_record
from enginewright.core.manifests.activator import activator_name, backend_name
from enginewright.core.manifests.common import UID
from enginewright.core.manifests.service import mirror_name, revision_service_name
from enginewright.core.spec.base import MAX_OBJECT_NAME
from support.children import Children, children_of
from support.specs import Raw, object_names, valid_specs

JSON = dict[str, Any]
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
EVERY = settings(max_examples=settings().max_examples // 2)


def pods(children: Children) -> Iterator[tuple[str, JSON, JSON]]:
    """Kind, template and owner of each pod template."""
    for kind, manifest in children.all().items():
        if "template" in manifest["spec"] if "spec" in manifest else False:
            yield kind, manifest["spec"]["template"], manifest


@given(object_names, valid_specs())
@EVERY
def test_names_and_labels_are_what_kubernetes_takes(name: str, raw: Raw) -> None:
    for kind, manifest in children_of(name, raw).all().items():
        meta = manifest["metadata"]
        assert DNS_LABEL.fullmatch(meta["name"]), kind
        assert len(meta["name"]) <= (57 if kind.endswith("_job") else 63), f"{kind}: its pods need a suffix"
        for value in meta["labels"].values():
            assert LABEL_VALUE.fullmatch(value), kind
        assert {labels.NAME, labels.COMPONENT, labels.PART_OF, labels.MANAGED_BY} <= meta["labels"].keys()
        if kind != "build_lease":  # its times change while it is held
            assert meta["annotations"][labels.MANIFEST_HASH]
        json.dumps(manifest, allow_nan=False)


@given(object_names)
def test_no_other_service_of_any_object_has_the_name_that_leads_to_a_candidate(name: str) -> None:
    """Not that of an object that is called NAME-mirror: all others are shorter, whatever their object is called."""
    longest = "m" * MAX_OBJECT_NAME
    others = (longest, backend_name(longest), activator_name(longest), revision_service_name(longest, "c0ffee00"))
    assert DNS_LABEL.fullmatch(mirror_name(name))
    assert max(map(len, others)) < len(mirror_name(name))
    assert mirror_name(name).startswith(f"{name}-mirror-")
    assert mirror_name(name) != mirror_name(f"{name}-mirror")


@given(object_names, valid_specs())
@EVERY
def test_all_but_the_engine_record_belong_to_the_object(name: str, raw: Raw) -> None:
    children = children_of(name, raw)
    for kind, manifest in children.all().items():
        (owner,) = manifest["metadata"]["ownerReferences"]
        if kind == "engine_record":
            assert owner["kind"] == "PersistentVolumeClaim"
            assert labels.MODEL not in manifest["metadata"]["labels"]
            assert children.owner.uid not in json.dumps(manifest)
        else:
            assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (children.owner.uid, True, True)


@given(valid_specs())
@EVERY
def test_the_record_is_read_back(raw: Raw) -> None:
    children = children_of("m", raw)
    assert read_record(children.all()["engine_record"]) == children.record


@given(valid_specs())
@EVERY
def test_selectors_select_the_serving_pods(raw: Raw) -> None:
    children = children_of("m", raw)
    found = children.all()
    serving = found["deployment"]["spec"]["template"]["metadata"]["labels"].items()
    for selector in (found["deployment"]["spec"]["selector"]["matchLabels"], found["service"]["spec"]["selector"],
                     found["pdb"]["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= serving
        for job in ("resolve_job", "build_job"):
            assert not selector.items() <= found[job]["spec"]["template"]["metadata"]["labels"].items()


@given(valid_specs())
@EVERY
def test_pods_check_the_engine_that_was_proven(raw: Raw) -> None:
    children = children_of("m", raw)
    pod = children.all()["deployment"]["spec"]["template"]["spec"]
    assert proven_digest(pod) == children.record.outcome.manifest_digest
    assert proven_digest({"containers": pod["containers"]}) == ""


@given(valid_specs())
@EVERY
def test_only_the_scaler_writes_replicas(raw: Raw) -> None:
    assert "replicas" not in children_of("m", raw).all()["deployment"]["spec"]


@given(valid_specs())
@EVERY
def test_every_container_is_restricted(raw: Raw) -> None:
    for kind, template, _ in pods(children_of("m", raw)):
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, kind
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == UID
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & pod.keys()
        assert not any("hostPath" in volume for volume in pod["volumes"])
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in context
            if container["name"] in (labels.CONTAINER_SERVER, labels.CONTAINER_VERIFY, labels.CONTAINER_FITS, "build",
                                     "resolve"):
                assert context["readOnlyRootFilesystem"] is True


@given(valid_specs())
@EVERY
def test_mounts_name_volumes_that_exist_and_engines_are_read_only(raw: Raw) -> None:
    for kind, template, _ in pods(children_of("m", raw)):
        pod = template["spec"]
        names = [volume["name"] for volume in pod["volumes"]]
        assert len(names) == len(set(names))
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            mounts = container.get("volumeMounts", [])
            assert {mount["name"] for mount in mounts} <= set(names)
            assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
            writable = {mount["name"] for mount in mounts if not mount.get("readOnly")}
            assert ("engine" in writable) == (container["name"] == labels.CONTAINER_VERIFY)
            # But for a monitor that captures requests, which has the model's own folder of captures.
            own = [mount.get("subPath", "") for mount in mounts
                   if mount["name"] == "engine-store" and not mount.get("readOnly")]
            assert all(path.endswith("captures/models/m") for path in own)
            assert not own or container["name"] == labels.CONTAINER_QUALITY
            assert ("engine-store" in {mount["name"] for mount in mounts}) <= (
                container["name"] == labels.CONTAINER_VERIFY or bool(own))
            # A server that a build proves on sees neither keys nor store.
            builds = kind == "build_job" and container["name"] != labels.CONTAINER_SERVER
            assert ("signing-keys" in {mount["name"] for mount in mounts}) == builds
            assert not any(name.startswith("source-") for name in writable)
            assert ("store" in writable) == (builds or kind == "resolve_job")


@given(valid_specs())
@EVERY
def test_only_builds_and_servers_hold_devices(raw: Raw) -> None:
    children = children_of("m", raw)
    for kind, template, _ in pods(children):
        pod = template["spec"]
        held = [(container["name"], {**container["resources"].get("limits", {})}, container["resources"].get("claims"))
                for container in [*pod.get("initContainers", []), *pod["containers"]] if "resources" in container]
        with_device = {name for name, limits, claims in held
                       if claims or any(key.startswith("nvidia.com/") for key in limits)}
        builds = {"server"} if raw.get("task") == "generate" else {"build", "server"}  # one after the other
        wanted = {"build_job": builds, "deployment": {"server", "fits"}}.get(kind, set())
        assert with_device == (wanted if children.placement.device.accelerator == "gpu" else set())


@given(valid_specs())
@EVERY
def test_manifests_are_a_function_of_the_spec(raw: Raw) -> None:
    assert children_of("m", raw).all() == children_of("m", raw).all()
