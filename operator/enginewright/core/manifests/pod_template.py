"""Adds what the user puts into a pod template; ``core.spec.pod_template_rules`` says what may stand there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core.manifests.common import JSON, container_security, no_devices
from enginewright.core.spec import JobPodTemplateSpec, PodTemplateSpec
from enginewright.core.spec.pod_template_rules import JOBS, SERVING

REPLACED = ("dnsConfig", "hostAliases", "priorityClassName", "schedulerName", "topologySpreadConstraints")


def merge(template: JSON, additions: PodTemplateSpec | JobPodTemplateSpec) -> JSON:
    """``template`` with ``additions``: the operator's labels, containers and volumes stand, the user's come after."""
    given, pod = additions.spec, template["spec"]
    meta = template["metadata"]
    rules = SERVING if isinstance(additions, PodTemplateSpec) else JOBS
    merged = {
        **pod,
        **{key: given[key] for key in REPLACED if key in given},
        "containers": _containers(pod["containers"], given.get("containers", []), rules.own),
        "volumes": [*pod["volumes"], *given.get("volumes", [])],
    }
    if secrets := [*pod.get("imagePullSecrets", []), *given.get("imagePullSecrets", [])]:
        merged["imagePullSecrets"] = secrets
    if affinity := _affinity(pod.get("affinity", {}), given.get("affinity", {})):
        merged["affinity"] = affinity
    return {
        "metadata": {"labels": {**additions.metadata.labels, **meta["labels"]},
                     "annotations": {**additions.metadata.annotations, **meta["annotations"]}},
        "spec": merged,
    }


def _containers(own: list[JSON], given: list[Mapping[str, Any]], addable: tuple[str, ...]) -> list[JSON]:
    added = {container["name"]: container for container in given if container["name"] in addable}
    sidecars = [{**container, "env": [*container.get("env", []), no_devices()],
                 "securityContext": container_security(read_only_root=False)}
                for container in given if container["name"] not in addable]
    return [*(_with(container, added.get(container["name"], {})) for container in own), *sidecars]


def _with(container: JSON, added: Mapping[str, Any]) -> JSON:
    """A variable that the user gives is the user's."""
    if env := added.get("env"):
        names = {variable.get("name") for variable in env}
        kept = [variable for variable in container.get("env", []) if variable["name"] not in names]
        container = {**container, "env": [*kept, *env]}
    if mounts := added.get("volumeMounts"):
        container = {**container, "volumeMounts": [*container["volumeMounts"], *mounts]}
    return container


def _affinity(own: Mapping[str, Any], given: Mapping[str, Any]) -> JSON:
    """The user's affinity, with the operator's required node terms added to each of the user's: terms are alternatives,
    so that both only hold when they stand in one. Where the user prefers nodes, the operator prefers none."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if not own:
        return dict(given)
    node = {**own["nodeAffinity"], **(given.get("nodeAffinity") or {})}
    if required in own["nodeAffinity"]:
        own_terms = own["nodeAffinity"][required]["nodeSelectorTerms"]
        given_terms = ((given.get("nodeAffinity") or {}).get(required) or {}).get("nodeSelectorTerms") or [{}]
        terms = [{**term, "matchExpressions": [*term.get("matchExpressions", []), *own_term["matchExpressions"]]}
                 for term in given_terms for own_term in own_terms]
        node[required] = {"nodeSelectorTerms": terms}
    return {**given, "nodeAffinity": node}
