"""The Jobs that remove unused engines, and captured requests, from a store."""

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
from enginewright.core.observed import CaptureMark
from enginewright.core.request import STORE_PATH, claim_of, folder_of


def gc_job(namespace: str, store_uri: str, claim_uid: str, engines: Sequence[str], config: OperatorConfig,
           access: Mapping[str, str] | None = None) -> JSON:
    """``engines`` are fingerprints. Owned by the store's claim, as its records are: no object asked for it. One for a
    bucket has no owner; ``access`` says as whom it works."""
    arguments = ["gc", "--store", _store(store_uri), "--grace", str(config.engine_grace), "--remove", *engines]
    name, marks = f"engines-gc-{short_hash([store_uri, *engines], 8)}", {labels.ENGINES: ",".join(engines)}
    return _job(name, namespace, store_uri, claim_uid, arguments, config, labels.COMPONENT_GC, marks, access or {})


def captures_job(namespace: str, record: CaptureMark, config: OperatorConfig, *, everything: bool) -> JSON:
    """Removes the captures of a model that have expired; with ``everything`` all."""
    arguments = ["captures", "--store", _store(record.store_uri), *(["--all"] if everything else []),
                 "--of", f"{namespace}/{record.model}"]
    marks = {labels.CAPTURES_OF: record.model, **({labels.CAPTURES_GO: "true"} if everything else {})}
    name, component = f"{record.name}-{'all' if everything else 'expired'}", labels.COMPONENT_CAPTURES
    return _job(name, namespace, record.store_uri, record.claim_uid, arguments, config, component, marks, {})


def _job(name: str, namespace: str, store_uri: str, claim_uid: str, arguments: Sequence[str], config: OperatorConfig,
         component: str, marks: Mapping[str, str], access: Mapping[str, str]) -> JSON:
    claim = claim_of(store_uri)
    common = {labels.NAME: labels.PRODUCT, labels.COMPONENT: component, labels.PART_OF: labels.PRODUCT,
              labels.MANAGED_BY: labels.PRODUCT, labels.STEP: component}
    pod = _pod(component, claim, arguments, config, access)
    template = with_defaults({"metadata": {"labels": common, "annotations": {}}, "spec": pod}, config)
    metadata = template["metadata"]
    return sealed({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(metadata["labels"]),
            "annotations": {**metadata["annotations"], labels.STORE_URI: store_uri, **marks},
            **({"ownerReferences": [claim_owner(claim, claim_uid)]} if claim else {}),
        },
        "spec": {
            "backoffLimit": config.job_backoff_limit,
            "activeDeadlineSeconds": config.resolve_deadline,
            "ttlSecondsAfterFinished": config.job_ttl,
            "template": template,
        },
    })


def _store(store_uri: str) -> str:
    return "/".join(filter(None, (STORE_PATH, folder_of(store_uri)))) if claim_of(store_uri) else store_uri


def _pod(component: str, claim: str | None, arguments: Sequence[str], config: OperatorConfig,
         access: Mapping[str, str]) -> JSON:
    variables = store_variables(access)
    return {
        "restartPolicy": "Never",
        **account_of(access.get(ACCOUNT, "")),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(config),
        **pull_secrets(config),
        "containers": [{
            "name": component,
            "image": config.images.builder,
            "imagePullPolicy": config.pull_policy,
            "command": ["enginewright-build"],
            "args": list(arguments),
            **({"envFrom": variables} if variables else {}),
            "resources": resources(config.resolve_resources),
            "securityContext": container_security(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [*([{"name": "store", "mountPath": STORE_PATH}] if claim else []),
                             {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (in the pod)
        }],
        "volumes": [*([claim_volume("store", claim)] if claim else []), {"name": "tmp", "emptyDir": {}}],
    }
