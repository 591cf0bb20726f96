"""The Job that removes unused engines from a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginewright.core import labels
from enginewright.core.access import ACCOUNT, account_of, store_variables
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
from enginewright.core.manifests.job_defaults import with_defaults
from enginewright.core.manifests.record import claim_owner
from enginewright.core.request import STORE_PATH, claim_of, folder_of


def gc_job(namespace: str, store_uri: str, claim_uid: str, engines: Sequence[str], config: OperatorConfig,
           access: Mapping[str, str] | None = None) -> JSON:
    """``engines`` are fingerprints. Owned by the store's claim, as its records are: no object asked for it. One for a
    bucket has no owner; ``access`` says as whom it works."""
    claim = claim_of(store_uri)
    common = {labels.NAME: labels.PRODUCT, labels.COMPONENT: labels.COMPONENT_GC, labels.PART_OF: labels.PRODUCT,
              labels.MANAGED_BY: labels.PRODUCT, labels.STEP: labels.COMPONENT_GC}
    pod = _pod(store_uri, claim, engines, config, access or {})
    template = with_defaults({"metadata": {"labels": common, "annotations": {}}, "spec": pod}, config)
    marks = template["metadata"]
    return sealed({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"engines-gc-{short_hash([store_uri, *engines], 8)}",
            "namespace": namespace,
            "labels": dict(marks["labels"]),
            "annotations": {**marks["annotations"], labels.STORE_URI: store_uri, labels.ENGINES: ",".join(engines)},
            **({"ownerReferences": [claim_owner(claim, claim_uid)]} if claim else {}),
        },
        "spec": {
            "backoffLimit": config.job_backoff_limit,
            "activeDeadlineSeconds": config.resolve_deadline,
            "ttlSecondsAfterFinished": config.job_ttl,
            "template": template,
        },
    })


def _pod(store_uri: str, claim: str | None, engines: Sequence[str], config: OperatorConfig,
         access: Mapping[str, str]) -> JSON:
    store = "/".join(filter(None, (STORE_PATH, folder_of(store_uri)))) if claim else store_uri
    variables = store_variables(access)
    return {
        "restartPolicy": "Never",
        **account_of(access.get(ACCOUNT, "")),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(config),
        **pull_secrets(config),
        "containers": [{
            "name": labels.COMPONENT_GC,
            "image": config.images.builder,
            "imagePullPolicy": config.pull_policy,
            "command": ["enginewright-build"],
            "args": ["gc", "--store", store, "--grace", str(config.engine_grace), "--remove", *engines],
            **({"envFrom": variables} if variables else {}),
            "resources": resources(config.resolve_resources),
            "securityContext": container_security(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [*([{"name": "store", "mountPath": STORE_PATH}] if claim else []),
                             {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (in the pod)
        }],
        "volumes": [*([claim_volume("store", claim)] if claim else []), {"name": "tmp", "emptyDir": {}}],
    }
