"""Lets a build go on with the trace of the pass that made its Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.plan import Manifest

# Containers that run the builder, wherever they stand in the pod.
OURS = (labels.CONTAINER_RESOLVE, labels.CONTAINER_BUILD, labels.CONTAINER_PROVE)
KINDS = ("initContainers", "containers")


def traced(manifest: Manifest, environment: Mapping[str, str]) -> Manifest:
    """A resolve or build Job with ``environment`` in its containers; anything else, and all where that is empty, as it
    is. Only what is created goes through here: a Job is made once and never applied, so that a trace, which no two
    passes share, makes nothing differ, and fingerprint and manifest hash know nothing of it."""
    kind, step = manifest["kind"], manifest["metadata"].get("labels", {}).get(labels.STEP)
    if not environment or kind != "Job" or step not in (labels.COMPONENT_RESOLVE, labels.COMPONENT_BUILD):
        return manifest
    template = manifest["spec"]["template"]
    pod = {**template["spec"], **{kind: [_with(one, environment) if one["name"] in OURS else one for one in containers]
                                  for kind, containers in template["spec"].items() if kind in KINDS}}
    return {**manifest, "spec": {**manifest["spec"], "template": {**template, "spec": pod}}}


def _with(container: Mapping[str, Any], environment: Mapping[str, str]) -> Manifest:
    """A variable that the user or the installation gives, such as another receiver of traces, stays."""
    given = container.get("env", ())
    names = {variable["name"] for variable in given}
    more = [{"name": name, "value": value} for name, value in sorted(environment.items()) if name not in names]
    return {**container, "env": [*given, *more]}
