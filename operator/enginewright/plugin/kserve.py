"""A revision's replicas as KServe runs them: a ServingRuntime and an InferenceService for the same engine. Pure.

Both are made of the revision's Deployment in the cluster, so that images, arguments, resources, volumes and the check
of the engine are those of its replicas. The server is a ServingRuntime's container and not the predictor's own: KServe
fills in that one's resources with limits of its own (KServe 0.20, setResourceRequirementDefaults). The runtime is named
as the revision, so that none is called as one of KServe's, whose arguments KServe changes by name. The container that
fetches the engine and checks it has the name of KServe's own that does this: KServe adds none where there is one, and
shows how it ended. An InferenceService without a storageUri is to KServe one of many models, whose agent it adds to the
pod (IsMMSPredictor).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from enginewright.core import labels
from enginewright.core.manifests.deployment import STORE_VOLUME, engine_source
from enginewright.core.request import STORE_PATH
from enginewright.core.spec.base import in_bucket
from enginewright.core.spec.pod_template_rules import RESERVED_KEYS
from enginewright.plugin.wishes import WishError
from enginewright_builder.contract import printable

GROUP: Final = "serving.kserve.io"
# By KServe's rules: the containers that serve, that it takes for a transformer, and that fetch models.
SERVES, TRANSFORMS, FETCHES = "kserve-container", "transformer-container", "storage-initializer"
FORMAT: Final = "triton"
# Volumes that the quality monitor alone mounts.
OF_MONITOR: Final = (labels.VOLUME_CAPTURE_KEYS, labels.VOLUME_QUALITY_TMP)
# Parts of a pod that the runtime holds; the InferenceService holds all others.
OF_RUNTIME: Final = ("containers", "volumes")
Object = Mapping[str, Any]
JSON = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    """Quotes more than YAML 1.1 asks for: what kubectl's parser takes for a number or a truth value."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$|0o[0-7]+$"),
                              list("-+0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"[yYnN]$"), list("yYnN"))


def service_name(name: str) -> str:
    """Of the InferenceService of the model ``name``: KServe names routes after it, the operator after the model."""
    return f"{name}-kserve"


def exported(deployment: Object) -> str:
    """YAML for ``kubectl apply``, with what KServe will not do as comments. Raises :class:`WishError` for a Deployment
    that is not of a revision, and for parts of its pods that KServe cannot carry."""
    documents = manifests(deployment)
    comments = "\n".join(f"# {printable(line)}".rstrip() for line in _comments(deployment))
    return comments + "\n" + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True,
                                           explicit_start=True)


def manifests(deployment: Object) -> tuple[JSON, JSON]:
    """ServingRuntime and InferenceService. Raises as :func:`exported`."""
    pod = deployment["spec"]["template"]["spec"]
    _check(deployment)
    runtime = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": _metadata(deployment, deployment["metadata"]["name"]),
        "spec": {
            "supportedModelFormats": [{"name": FORMAT, "autoSelect": False}],  # of this engine alone
            "protocolVersions": ["v2", "grpc-v2"],
            "containers": _containers(pod["containers"]),
            "volumes": [one for one in pod["volumes"] if one["name"] not in OF_MONITOR],
        },
    }
    return runtime, _inference_service(deployment, pod)


def _inference_service(deployment: Object, pod: Object) -> JSON:
    name = service_name(_model(deployment))
    spec, template = deployment["spec"], deployment["spec"]["template"]["metadata"]
    rest = {key: value for key, value in pod.items() if key not in OF_RUNTIME}
    rest["initContainers"] = [{**one, "name": FETCHES} if one["name"] == labels.CONTAINER_VERIFY else one
                              for one in pod["initContainers"]]
    if spreads := pod.get("topologySpreadConstraints"):
        rest["topologySpreadConstraints"] = [_of_service(one, deployment, name) for one in spreads]
    kept = {kind: found for kind in ("labels", "annotations") if (found := _of_user(template.get(kind) or {}))}
    replicas = max(1, spec.get("replicas") or 1)
    metadata = _metadata(deployment, name)
    # Plain Deployments, as Knative takes no such pod, and no HorizontalPodAutoscaler.
    metadata["annotations"] |= {f"{GROUP}/deploymentMode": "Standard", f"{GROUP}/autoscalerClass": "none"}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": {"predictor": {
            "model": {"modelFormat": {"name": FORMAT}, "runtime": deployment["metadata"]["name"],
                      "protocolVersion": "v2", "storageUri": _engine_uri(deployment)},
            "minReplicas": replicas,
            "maxReplicas": replicas,
            "deploymentStrategy": spec["strategy"],
            **kept,
            **rest,
        }},
    }


def _engine_uri(deployment: Object) -> str:
    """Where the engine lies: in a bucket, or on the volume of a claim. Raises :class:`WishError`."""
    pod, meta = deployment["spec"]["template"]["spec"], deployment["metadata"]
    source = engine_source(pod)
    if not source:
        raise WishError(f"Deployment {meta['name']} was made by an earlier release and does not say where its engine "
                        "lies; export the next revision")
    if in_bucket(source):
        return f"{source.rstrip('/')}/{meta['annotations'][labels.FINGERPRINT_FULL]}"
    (volume,) = (one for one in pod["volumes"] if one["name"] == STORE_VOLUME)
    return f"pvc://{volume['persistentVolumeClaim']['claimName']}{source.removeprefix(STORE_PATH)}"


def _metadata(deployment: Object, name: str) -> JSON:
    """Without the operator's labels, by which its Services and scalers would take KServe's pods for theirs."""
    meta = deployment["metadata"]
    fingerprint = meta["annotations"][labels.FINGERPRINT_FULL]
    return {"name": name, "namespace": meta["namespace"], "annotations": {labels.FINGERPRINT_FULL: fingerprint}}


def _containers(own: list[JSON]) -> list[JSON]:
    """The server first. KServe reads it as a Go template; a ``{{`` in it is one of the user's, and stays."""
    found: list[JSON] = []
    for container in own:
        if container["name"] == labels.CONTAINER_SERVER:
            text = json.dumps({**container, "name": SERVES}).replace("{{", "{{`{{`}}")
            found.insert(0, json.loads(text))
        elif container["name"] != labels.CONTAINER_QUALITY:
            found.append(container)
    return found


def _of_service(constraint: Object, deployment: Object, name: str) -> JSON:
    """The operator's own spreads the replicas of the revision; KServe's pods have another label."""
    if (constraint.get("labelSelector") or {}) != deployment["spec"]["selector"]:
        return dict(constraint)
    return {**constraint, "labelSelector": {"matchLabels": {f"{GROUP}/inferenceservice": name}}}


def _check(deployment: Object) -> None:
    """Raises :class:`WishError`."""
    name, pod = deployment["metadata"]["name"], deployment["spec"]["template"]["spec"]
    names = {one["name"] for one in (*(pod.get("initContainers") or ()), *pod["containers"])}
    if missing := {labels.CONTAINER_VERIFY, labels.CONTAINER_SERVER} - names:
        raise WishError(f"Deployment {name} has no container {', '.join(sorted(missing))}")
    if taken := names & {SERVES, TRANSFORMS, FETCHES}:
        raise WishError(f"spec.serving.podTemplate.spec.containers: {', '.join(sorted(taken))} is a name that KServe "
                        "gives a meaning of its own; give the container another one")
    own = deployment["spec"]["selector"]
    spreads = [one for one in pod.get("topologySpreadConstraints") or () if one.get("labelSelector") != own]
    affinity = {key: value for key, value in (pod.get("affinity") or {}).items() if key != "nodeAffinity"}
    for field, value in (("topologySpreadConstraints", spreads), ("affinity", affinity)):
        if keys := sorted(key for key in _selected(value) if key.startswith(RESERVED_KEYS)):
            raise WishError(f"spec.serving.podTemplate.spec.{field} selects pods by {', '.join(keys)}, which KServe's "
                            "pods do not have; select by a label of yours in podTemplate.metadata.labels")


def _selected(value: Any) -> Iterator[str]:
    """Keys of labels in all selectors in ``value``."""
    if isinstance(value, Mapping):
        yield from value.get("matchLabels") or ()
        yield from (one["key"] for one in value.get("matchExpressions") or ())
        yield from value.get("matchLabelKeys") or ()
    if isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _selected(part)


def _of_user(found: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if not key.startswith(RESERVED_KEYS)}


def _model(deployment: Object) -> str:
    return str(deployment["metadata"]["labels"][labels.MODEL])


def _comments(deployment: Object) -> Iterator[str]:
    meta, pod = deployment["metadata"], deployment["spec"]["template"]["spec"]
    name, service = _model(deployment), service_name(_model(deployment))
    served_as = meta["labels"].get(labels.FLEET, name)
    yield f"Model {name}, revision {meta['labels'][labels.REVISION]}, for KServe 0.16 or newer."
    yield "The pods are those of the revision: the same images, arguments, resources and engine, which they check"
    yield "against its manifest before the server starts."
    yield (f"Clients find them at Service {service}-predictor, port 80 (HTTP) and {labels.GRPC_PORT} (gRPC), as model "
           f"{served_as}.")
    yield ""
    yield "What KServe does not do, and the operator does:"
    yield "- It judges no new revision by live errors, latency and answers, and does not go back by itself. Export"
    yield "  again after a rollout."
    yield "- It does not scale by queue depth, and not to zero: minReplicas is what serves now. Change it by hand."
    yield "- It does not watch the objective, live answers, cost or energy; the operator's alarms and status do not"
    yield "  see these pods."
    yield "- It does not keep the engine. The operator removes an engine from the store some time after the last"
    yield f"  OptimisedModel that refers to it has gone: keep {name} as it is, or switch off config.collectEngines."
    yield "- It makes no PodDisruptionBudget, and the NetworkPolicies of the operator's chart do not select these pods."
    yield from _of_this_one(pod, name)


def _of_this_one(pod: Object, name: str) -> Iterator[str]:
    if any(one["name"] == labels.CONTAINER_QUALITY for one in pod["containers"]):
        yield f"- Container {labels.CONTAINER_QUALITY}, which compares live answers for the operator, is left out."
    for claim in pod.get("resourceClaims") or ():
        yield f"- ResourceClaimTemplate {claim.get('resourceClaimTemplateName')} goes when {name} goes."
