"""What the installation adds to every Job: what an object says of its own Jobs comes before it."""

from __future__ import annotations

from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON


def with_defaults(template: JSON, config: OperatorConfig) -> JSON:
    meta, pod = template["metadata"], template["spec"]
    priority = {"priorityClassName": config.job_priority_class_name} if config.job_priority_class_name else {}
    return {
        "metadata": {"labels": {**config.job_labels, **meta["labels"]},
                     "annotations": {**config.job_annotations, **meta["annotations"]}},
        "spec": {**priority, **pod, "containers": [_with_env(one, config) for one in pod["containers"]]},
    }


def _with_env(container: JSON, config: OperatorConfig) -> JSON:
    given = container.get("env", [])
    names = {variable["name"] for variable in given}
    env = [{"name": name, "value": value} for name, value in sorted(config.job_env.items()) if name not in names]
    return {**container, "env": [*env, *given]} if env else container
