"""The Job that asks the server's image what it has: Triton's backends, libraries with versions; no accelerator.

Its pod has nothing of the model, no credentials, no token, and with the chart's network policies no network: of the
three containers one runs an image of the user's choice, and what it says is all that it can do.
"""

from __future__ import annotations

from functools import lru_cache

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import (
    JSON,
    Owner,
    container_security,
    metadata,
    module,
    no_devices,
    pod_security,
    pull_secrets,
    resources,
    sealed,
    short_hash,
)
from enginewright.core.manifests.job_defaults import with_defaults
from enginewright.core.manifests.pod_template import merge
from enginewright.core.placement import ARCH_LABEL, Placement, place
from enginewright.core.request import server_image
from enginewright.core.same import Same
from enginewright.core.spec import JobPodTemplateSpec, Spec
from enginewright.core.spec.tasks import GENERATE, generates

PROGRAM_PATH, FACTS_PATH = "/program", "/facts"
FACTS_FILE = f"{FACTS_PATH}/facts.json"
# In memory, so that what fills it gets no further than this.
FACTS_SIZE = "1Mi"
SHARED = "server-image"


def ask_key(spec: Spec, config: OperatorConfig, digest: str = "") -> str:
    """8 hex digits over what is asked, and what decides on the answer: the images, the ``digest`` that a replica's
    image turned out to have, and whether it is to serve a language model."""
    task = [GENERATE] if generates(spec) else []
    return short_hash([server_image(spec, config), config.images.builder, *([digest] if digest else []), *task], 8)


def ask_job_name(owner_name: str, key: str) -> str:
    """Of the Job that an object has for itself, where the shared one is of no use to it."""
    return f"{owner_name}-ask-{key}"


def shared_ask_job_name(spec: Spec, config: OperatorConfig, key: str) -> str:
    """Of the Job that all objects of a namespace share whose Jobs would run the same pod: it belongs to the one that
    came first."""
    return ask_job_name(SHARED, key + _hash_of_pod(Same(spec), Same(config)))


@lru_cache(maxsize=256)  # every pass asks for it, and a spec seldom changes
def _hash_of_pod(spec: Same[Spec], config: Same[OperatorConfig]) -> str:
    return short_hash(_template({}, spec.value, config.value), 8)


def ask_job(owner: Owner, spec: Spec, config: OperatorConfig, name: str) -> JSON:
    """On any node of the architecture that serves."""
    own = {**labels.common(owner.name, labels.COMPONENT_ASK), labels.STEP: labels.COMPONENT_ASK}
    template = with_defaults(_template(own, spec, config), config)
    marks = template["metadata"]
    return sealed({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(owner, name, labels.COMPONENT_ASK, extra=marks["labels"],
                             annotations=marks["annotations"]),
        "spec": {
            "backoffLimit": config.job_backoff_limit,
            "activeDeadlineSeconds": config.resolve_deadline * (config.job_backoff_limit + 1)
            + config.job_pending_limit,
            "ttlSecondsAfterFinished": config.job_ttl,
            "podFailurePolicy": {"rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                # An image that cannot say what it has cannot say it the next time, unless it was killed (137, 143).
                {"action": "FailJob", "onExitCodes": {"containerName": labels.CONTAINER_EXAMINE, "operator": "NotIn",
                                                      "values": [137, 143]}},
                {"action": "FailJob", "onExitCodes": {"containerName": labels.CONTAINER_ASK, "operator": "In",
                                                      "values": [2]}},
            ]},
            "template": template,
        },
    })


def _template(own: dict[str, str], spec: Spec, config: OperatorConfig) -> JSON:
    return merge({"metadata": {"labels": own, "annotations": {}}, "spec": _pod(spec, config)}, _additions(spec))


def _additions(spec: Spec) -> JobPodTemplateSpec:
    """What the object's other Jobs have, but for volumes and what mounts them: those are for sources. The server's
    image may need pull secrets of its own."""
    given, serving = spec.engine.pod_template, spec.serving.pod_template.spec.get("imagePullSecrets", [])
    kept = {key: value for key, value in given.spec.items() if key not in ("containers", "volumes")}
    own = kept.get("imagePullSecrets", [])
    secrets = [*own, *(secret for secret in serving if secret not in own)]
    return given.model_copy(update={"spec": {**kept, **({"imagePullSecrets": secrets} if secrets else {})}})


def _pod(spec: Spec, config: OperatorConfig) -> JSON:
    placement = place(spec, 0, config)
    architecture = placement.device.architecture if isinstance(placement, Placement) else "amd64"
    return {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": config.resolve_deadline,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": pod_security(config),
        **pull_secrets(config),
        "nodeSelector": {ARCH_LABEL: architecture},
        "initContainers": [_leave(config), _examine(spec, config)],
        "containers": [_report(config)],
        "volumes": [{"name": "program", "emptyDir": {"sizeLimit": "1Mi"}},
                    {"name": "facts", "emptyDir": {"medium": "Memory", "sizeLimit": FACTS_SIZE}},
                    {"name": "tmp", "emptyDir": {}}],
    }


def _leave(config: OperatorConfig) -> JSON:
    return {**_builder(labels.CONTAINER_LEAVE, ["--leave", PROGRAM_PATH], config),
            "volumeMounts": [{"name": "program", "mountPath": PROGRAM_PATH}]}


def _examine(spec: Spec, config: OperatorConfig) -> JSON:
    """Without a shell, which not every image has. It writes no bytecode: its root is read-only."""
    return {
        "name": labels.CONTAINER_EXAMINE,
        "image": server_image(spec, config),
        "imagePullPolicy": config.pull_policy,
        "command": ["python3", "-m", "enginewright_builder.examine"],
        "args": [FACTS_FILE],
        "env": [{"name": "PYTHONPATH", "value": PROGRAM_PATH}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
                no_devices()],
        "resources": resources(config.resolve_resources),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "program", "mountPath": PROGRAM_PATH, "readOnly": True},
                         {"name": "facts", "mountPath": FACTS_PATH}],
    }


def _report(config: OperatorConfig) -> JSON:
    return {**_builder(labels.CONTAINER_ASK, ["--facts", FACTS_FILE], config),
            "volumeMounts": [{"name": "facts", "mountPath": FACTS_PATH, "readOnly": True},
                             {"name": "tmp", "mountPath": "/tmp"}]}  # noqa: S108  (in the pod)


def _builder(name: str, arguments: list[str], config: OperatorConfig) -> JSON:
    return {
        "name": name,
        "image": config.images.builder,
        "imagePullPolicy": config.pull_policy,
        "command": module("ask"),
        "args": arguments,
        "resources": resources(config.resolve_resources),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
