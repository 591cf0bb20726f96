"""The Job that removes engines which nobody uses from a store."""

from __future__ import annotations

from collections.abc import Sequence

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import (
    JSON,
    claim_volume,
    container_security,
    pod_security,
    pull_secrets,
    resources,
    sealed,
    short_hash,
)
from enginewright.core.request import STORE_PATH


def gc_job(namespace: str, store_uri: str, claim_uid: str, engines: Sequence[str], config: OperatorConfig) -> JSON:
    """``engines`` are fingerprints. Owned by the store's claim, as its records are: no object asked for it."""
    claim, _, folder = store_uri.removeprefix("pvc://").partition("/")
    common = {labels.NAME: labels.PRODUCT, labels.COMPONENT: labels.COMPONENT_GC, labels.PART_OF: labels.PRODUCT,
              labels.MANAGED_BY: labels.PRODUCT, labels.STEP: labels.COMPONENT_GC}
    return sealed({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"engines-gc-{short_hash([store_uri, *engines], 8)}",
            "namespace": namespace,
            "labels": common,
            "annotations": {labels.STORE_URI: store_uri, labels.ENGINES: ",".join(engines)},
            "ownerReferences": [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim,
                                 "uid": claim_uid}],
        },
        "spec": {
            "backoffLimit": config.job_backoff_limit,
            "activeDeadlineSeconds": config.resolve_deadline,
            "ttlSecondsAfterFinished": config.job_ttl,
            "template": {"metadata": {"labels": dict(common)}, "spec": _pod(claim, folder.strip("/"), engines, config)},
        },
    })


def _pod(claim: str, folder: str, engines: Sequence[str], config: OperatorConfig) -> JSON:
    store = "/".join(filter(None, (STORE_PATH, folder)))
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        **pull_secrets(config),
        "containers": [{
            "name": labels.COMPONENT_GC,
            "image": config.images.builder,
            "imagePullPolicy": config.pull_policy,
            "command": ["enginewright-build"],
            "args": ["gc", "--store", store, "--grace", str(config.engine_grace), "--remove", *engines],
            "resources": resources(config.resolve_resources),
            "securityContext": container_security(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": "store", "mountPath": STORE_PATH}, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (in the pod)
        }],
        "volumes": [claim_volume("store", claim), {"name": "tmp", "emptyDir": {}}],
    }
