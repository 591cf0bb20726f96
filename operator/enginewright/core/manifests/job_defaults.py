"""What the installation adds to every Job: what an object says of its own Jobs comes before it."""

from __future__ import annotations

from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON
from enginewright.core.manifests.trusted_ca import trusted_mounts, trusted_variables, trusted_volumes


def with_defaults(template: JSON, config: OperatorConfig) -> JSON:
    meta, pod = template["metadata"], template["spec"]
    priority = {"priorityClassName": config.job_priority_class_name} if config.job_priority_class_name else {}
    volumes = [*pod.get("volumes", []), *trusted_volumes(config)]
    return {
        "metadata": {"labels": {**config.job_labels, **meta["labels"]},
                     "annotations": {**config.job_annotations, **meta["annotations"]}},
        "spec": {**priority, **pod, **({"volumes": volumes} if volumes else {}),
                 "containers": [_with_mounts(_with_env(one, config), config) for one in pod["containers"]]},
    }


def _with_env(container: JSON, config: OperatorConfig) -> JSON:
    given = container.get("env", [])
    names = {variable["name"] for variable in given}
    added = {**trusted_variables(config), **config.job_env}
    env = [{"name": name, "value": value} for name, value in sorted(added.items()) if name not in names]
    return {**container, "env": [*env, *given]} if env else container


def _with_mounts(container: JSON, config: OperatorConfig) -> JSON:
    mounts = trusted_mounts(config)
    return {**container, "volumeMounts": [*container.get("volumeMounts", []), *mounts]} if mounts else container
