"""The CustomResourceDefinition, made from the models of spec and status."""

from __future__ import annotations

from typing import Any

from enginewright import __version__
from enginewright.core import labels
from enginewright.core.internal import with_internal
from enginewright.core.spec.base import MAX_OBJECT_NAME
from enginewright.core.spec.model import Spec
from enginewright.core.spec.renames import with_old_names
from enginewright.core.spec.rules import RULES
from enginewright.core.spec.structural import Schema, structural
from enginewright.core.status import Status

NAME = f"{labels.PLURAL}.{labels.GROUP}"


def crd(*, old_names: bool = True) -> dict[str, Any]:
    """``old_names`` leaves in what the apiserver has to keep of older objects; users should write none of it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": {labels.PART_OF: labels.PRODUCT, labels.RELEASE: __version__}},
        "spec": {
            "group": labels.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": labels.KIND,
                "listKind": f"{labels.KIND}List",
                "plural": labels.PLURAL,
                "singular": labels.KIND.lower(),
                "shortNames": list(labels.SHORT_NAMES),
                # all: an OptimisedModel runs pods, and a list of what runs in a namespace should show it.
                "categories": ["all", labels.PRODUCT],
            },
            "versions": [_version(old_names)],
        },
    }


def _version(old_names: bool) -> dict[str, Any]:
    return {
        "name": labels.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(old_names)},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                      "labelSelectorPath": ".status.selector"},
        },
        "additionalPrinterColumns": _columns(),
    }


def _schema(old_names: bool) -> Schema:
    root: Schema = {
        "type": "object",
        "description": "OptimisedModel is a model and what it must achieve. Enginewright builds engines for it on "
                       "the hardware that will serve them, measures them, and serves the best one that passes.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": MAX_OBJECT_NAME}}},
            "spec": structural(Spec),
            # Until the operator has seen the object, tools that wait for a generation (kstatus) are to wait.
            # The operator alone writes it, and as a whole. Were each of its fields owned by itself, half of what the
            # apiserver reads and writes of an object would be a list of them.
            "status": {**structural(Status), "default": {"observedGeneration": -1}, "x-kubernetes-map-type": "atomic"},
        },
    }
    with_internal(root["properties"]["status"], old_places=old_names)
    if old_names:
        with_old_names(root["properties"]["spec"])
    for path, rules in RULES.items():
        node = root
        for step in filter(None, path.split(".")):
            node = node["properties"][step.removesuffix("[]")]
            node = node["items"] if step.endswith("[]") else node
        node["x-kubernetes-validations"] = [rule.as_json() for rule in rules]
    return root


def _columns() -> list[dict[str, Any]]:
    def column(name: str, path: str, description: str, kind: str = "string", wide: bool = False) -> dict[str, Any]:
        shown = {"name": name, "type": kind, "jsonPath": path, "description": description}
        return {**shown, "priority": 1} if wide else shown

    return [
        column("Ready", '.status.conditions[?(@.type=="Ready")].status',
               "Whether the engine of the current spec serves on all wanted replicas."),
        column("Engine", ".status.summary.engine", "Engine that is served."),
        column("Precision", ".status.summary.precision", "Precision of the engine."),
        column("Replicas", ".status.summary.replicas", "Ready and wanted replicas."),
        column("Queue", ".status.summary.queue", "Queued requests."),
        column("Build-P99", ".status.summary.p99", "99th percentile of the latency, as measured by the build; of a "
               "language model until the first token."),
        column("Live-P99", ".status.summary.liveP99",
               "99th percentile of the latency in the last minute, where servers export it.", wide=True),
        column("Age", ".metadata.creationTimestamp", "Time since creation.", kind="date"),
        column("Ships", ".status.summary.ships", "Candidate that serves, or those that do, each up to its batch.",
               wide=True),
        column("Accelerator", ".status.summary.accelerator", "Hardware that serves.", wide=True),
        column("Speedup", ".status.summary.speedup", "Throughput relative to the source model.", wide=True),
        column("Cost", ".status.summary.cost",
               "Price of a million inferences at the objective, or of a language model's tokens.", wide=True),
        column("Reason", ".status.summary.reason", "Why Ready is what it is.", wide=True),
    ]
