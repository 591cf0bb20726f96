"""What resolve and build Jobs have in common: one pod of the builder image, run to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from enginewright.core import labels
from enginewright.core.access import ACCOUNT, account_of, source_variables, store_access, store_variables
from enginewright.core.config import OperatorConfig, Resources
from enginewright.core.manifests.common import (
    JSON,
    Owner,
    claim_volume,
    container_security,
    device_claims,
    metadata,
    no_devices,
    node_placement,
    pod_security,
    pull_secrets,
    resources,
    scratch_mounts,
    scratch_volumes,
    sealed,
)
from enginewright.core.manifests.job_defaults import with_defaults
from enginewright.core.manifests.pod_template import merge
from enginewright.core.manifests.request_configmap import REQUEST_FILE
from enginewright.core.placement import Placement
from enginewright.core.request import SOURCES_PATH, STORE_PATH, source_claims, store_claim
from enginewright.core.spec import ResourcesSpec, Spec
from enginewright_builder.contract import EXIT_USER

REQUEST_PATH = "/request"
SHARED_MEMORY = "2Gi"  # a server and its load generator run side by side in a build


@dataclass(frozen=True, kw_only=True)
class Step:
    """``deadline`` in seconds, of a pod that runs. ``kind`` is also the name of the container. ``volumes`` and
    ``mounts`` are beside those that every step has. ``arrange`` makes another pod of the finished one, whose containers
    ``ends`` refuse bad input, the one of the step as well."""

    kind: str
    name: str
    deadline: int
    default_resources: Resources
    resources: ResourcesSpec | None = None
    placement: Placement = field(default_factory=Placement)
    queue: str = ""
    extra_labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    volumes: tuple[JSON, ...] = ()
    mounts: tuple[JSON, ...] = ()
    arrange: Callable[[JSON], JSON] | None = None
    ends: tuple[str, ...] = ()


def job(owner: Owner, spec: Spec, step: Step, config: OperatorConfig) -> JSON:
    own = {**labels.common(owner.name, step.kind), labels.STEP: step.kind, **step.extra_labels}
    template = merge({"metadata": {"labels": own, "annotations": dict(step.annotations)},
                      "spec": _pod(owner, spec, step, config)}, spec.engine.pod_template)
    template = with_defaults(template, config)
    if step.arrange:
        template = {**template, "spec": step.arrange(template["spec"])}
    queue = {labels.KUEUE_QUEUE: step.queue} if step.queue else {}
    # Labels and annotations on the Job as well: there Kueue looks for a priority, and who sums up costs for a team.
    marks = template["metadata"]
    return sealed({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(owner, step.name, step.kind, extra={**marks["labels"], **queue},
                             annotations=marks["annotations"]),
        "spec": {
            **({"suspend": True} if step.queue else {}),  # Kueue lets it run when its turn has come
            "backoffLimit": config.job_backoff_limit,
            # The pod's own deadline is what stops a hang; this one, which counts the wait for a device as well, only
            # ends what nothing waits for any more.
            "activeDeadlineSeconds": step.deadline * (config.job_backoff_limit + 1) + config.job_pending_limit,
            "ttlSecondsAfterFinished": config.job_ttl,
            "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                *({"action": "FailJob",
                   "onExitCodes": {"containerName": name, "operator": "In", "values": [EXIT_USER]}}
                  for name in (step.kind, *step.ends)),
            ]},
            "template": template,
        },
    })


def begun_under(manifest: Mapping[str, Any], retry: str) -> Mapping[str, Any]:
    """The Job with the retry annotation of its object that it was made under: a failure counts for that one, and a user
    who has set another by the time that the operator sees it is answered. The hash stays: it is no other Job."""
    if not retry:
        return manifest
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "annotations": {**meta["annotations"], labels.RETRY: retry}}}


def _pod(owner: Owner, spec: Spec, step: Step, config: OperatorConfig) -> JSON:
    claims = source_claims(spec)
    volumes = [{"name": "request", "configMap": {"name": step.name}},
               *(claim_volume(labels.source_volume(index), claim) for index, claim in enumerate(claims)),
               _store_volume(spec), *step.volumes,
               *scratch_volumes(SHARED_MEMORY)]
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": step.deadline,
        **account_of(spec.source.service_account_name or store_access(spec).get(ACCOUNT, "")),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": pod_security(config),
        **pull_secrets(config),
        **node_placement(step.placement),
        **device_claims(owner.name, step.placement),
        "containers": [_container(spec, step, config)],
        "volumes": volumes,
    }


def _store_volume(spec: Spec) -> JSON:
    """An engine for a bucket is put together in a folder of the pod's own."""
    claim = store_claim(spec)
    return claim_volume("store", claim) if claim else {"name": "store", "emptyDir": {}}


def _container(spec: Spec, step: Step, config: OperatorConfig) -> JSON:
    mounts = [{"name": "request", "mountPath": REQUEST_PATH, "readOnly": True},
              *({"name": labels.source_volume(index), "mountPath": f"{SOURCES_PATH}/{claim}", "readOnly": True}
                for index, claim in enumerate(source_claims(spec))),
              {"name": "store", "mountPath": STORE_PATH}, *step.mounts,
              *scratch_mounts()]
    variables = [*source_variables(spec), *store_variables(store_access(spec))]
    return {
        "name": step.kind,
        "image": config.images.builder,
        "imagePullPolicy": config.pull_policy,
        "command": ["enginewright-build"],
        "args": [step.kind, "--request", f"{REQUEST_PATH}/{REQUEST_FILE}"],
        **({} if step.placement.has_device else {"env": [no_devices()]}),
        **({"envFrom": variables} if variables else {}),
        "resources": resources(step.default_resources, step.resources, step.placement),
        "securityContext": container_security(),
        # Where a step dies before it can say why, the end of its log has to do.
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
