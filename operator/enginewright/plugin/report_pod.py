"""The pod that prints a report from the store.

The plugin makes it with its caller's rights, which may be an administrator's, from a Deployment that others may have
changed. So the pod takes from the Deployment which image, store and engine its replicas use, and where they run. Its
security settings are written here, and of volumes it has the store's claim and the certificates' ConfigMap alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.access import SECRET, account_of, store_variables
from enginewright.core.commands import kubectl
from enginewright.core.manifests import proven_digest
from enginewright.core.manifests.common import JSON, claim_volume, container_security, module, restricted_pod
from enginewright.core.manifests.deployment import STORE_VOLUME, engine_source
from enginewright.core.manifests.trusted_ca import VARIABLES
from enginewright.core.request import STORE_PATH
from enginewright.core.spec.base import in_bucket
from enginewright.plugin.wishes import WishError

DEADLINE_SECONDS = 90.0
PRINT = module("show")
PLACE = ("tolerations", "nodeSelector", "affinity")
Object = Mapping[str, Any]


def reader(name: str, deployment: Object, file: str) -> JSON:
    """The pod. Raises :class:`WishError` where the Deployment is none of ours, was changed, or was made by an earlier
    release."""
    template, called = deployment["spec"]["template"]["spec"], deployment["metadata"]["name"]
    verify = next((one for one in template.get("initContainers", ()) if one["name"] == labels.CONTAINER_VERIFY), None)
    if verify is None:
        raise WishError(f"Deployment {called} has no container {labels.CONTAINER_VERIFY}")
    source = engine_source(template)
    if not source:
        raise WishError(f"Deployment {called} was made by an earlier release, whose reports cannot be checked; the "
                        "next revision's can")
    volumes, mounts = _store(deployment, source)
    command = [*PRINT, source, fingerprint_of(deployment), proven_digest(template), file]
    own_ids = "runAsUser" in (template.get("securityContext") or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{name}-report-", "labels": {labels.MANAGED_BY: "kubectl-optimisedmodel"}},
        "spec": {
            **(account_of(template.get("serviceAccountName", "")) if in_bucket(source) else {}),
            **{key: template[key] for key in PLACE if key in template},
            "imagePullSecrets": [{"name": one["name"]} for one in template.get("imagePullSecrets") or ()],
            "securityContext": restricted_pod(own_ids=own_ids),
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(DEADLINE_SECONDS),
            "containers": [_container(verify, command, mounts)],
            "volumes": volumes,
        },
    }


def _container(verify: Object, command: list[str], mounts: list[JSON]) -> JSON:
    resources = verify.get("resources") or {}
    return {
        "name": "report",
        "image": verify["image"],
        "imagePullPolicy": verify.get("imagePullPolicy", "IfNotPresent"),
        "command": command,
        **_variables(verify),
        "resources": {key: resources[key] for key in ("requests", "limits") if key in resources},
        "securityContext": container_security(),
        "volumeMounts": mounts,
    }


def fingerprint_of(deployment: Object) -> str:
    """Of the engine that its replicas check; empty where they check none."""
    for one in deployment["spec"]["template"]["spec"].get("initContainers") or ():
        if one["name"] == labels.CONTAINER_VERIFY and one.get("args"):
            return str(one["args"][0]).rpartition("/")[2]
    return ""


def _variables(verify: Object) -> JSON:
    """Paths of certificates, and the Secret with a bucket's credentials."""
    found: JSON = {
        "env": [{"name": one["name"], "value": one["value"]} for one in verify.get("env") or ()
                if one["name"] in VARIABLES and "value" in one],
        "envFrom": [given for one in verify.get("envFrom") or ()
                    for given in store_variables({SECRET: (one.get("secretRef") or {}).get("name", "")})],
    }
    return {key: value for key, value in found.items() if value}


def _store(deployment: Object, source: str) -> tuple[list[JSON], list[JSON]]:
    """Volumes and their mounts. Raises :class:`WishError` for a volume of another kind than the operator makes."""
    given = {one["name"]: one for one in deployment["spec"]["template"]["spec"].get("volumes") or ()}
    if not in_bucket(source):
        claim = (given.get(STORE_VOLUME, {}).get("persistentVolumeClaim") or {}).get("claimName")
        if not claim:
            raise _changed(deployment, STORE_VOLUME, "claim")
        return ([claim_volume(STORE_VOLUME, claim)],
                [{"name": STORE_VOLUME, "mountPath": STORE_PATH, "readOnly": True}])
    if labels.VOLUME_TRUSTED not in given:
        return [], []
    trusted = given[labels.VOLUME_TRUSTED].get("configMap")
    if not trusted:
        raise _changed(deployment, labels.VOLUME_TRUSTED, "ConfigMap")
    return ([{"name": labels.VOLUME_TRUSTED, "configMap": trusted}],
            [{"name": labels.VOLUME_TRUSTED, "mountPath": labels.TRUSTED_PATH, "readOnly": True}])


def _changed(deployment: Object, volume: str, kind: str) -> WishError:
    meta = deployment["metadata"]
    who = kubectl(f"get deployment {meta['name']} --show-managed-fields -o yaml", meta.get("namespace") or "")
    return WishError(f"volume {volume} of Deployment {meta['name']} is no {kind}, which the operator makes it: another "
                     f"writer has changed the Deployment, and no report is read by it; {who} shows who")
