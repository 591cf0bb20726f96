"""KServe's own CustomResourceDefinitions, and the pod that its controller makes of what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from enginewright.clients.resources import Resource
from support.definitions import Definitions

SERVING_RUNTIME: Final = Resource("serving.kserve.io/v1alpha1", "ServingRuntime", "servingruntimes")
INFERENCE_SERVICE: Final = Resource("serving.kserve.io/v1beta1", "InferenceService", "inferenceservices")
KINDS: Final = (SERVING_RUNTIME, INFERENCE_SERVICE)
DEFINITIONS: Final = Definitions("kserve", "github.com/kserve/kserve", "config/crd/full", KINDS)
install, uninstall = DEFINITIONS.install, DEFINITIONS.uninstall
# Of a predictor, those that are no part of a pod.
EXTENSIONS: Final = ("model", "minReplicas", "maxReplicas", "deploymentStrategy", "labels", "annotations")


def pod_of(runtime: Mapping[str, Any], service: Mapping[str, Any]) -> dict[str, Any]:
    """The pod spec, as far as KServe's merge goes (pkg/controller/v1beta1/inferenceservice/utils: MergePodSpec)."""
    predictor = service["spec"]["predictor"]
    rest = {key: value for key, value in predictor.items() if key not in EXTENSIONS}
    assert not rest.keys() & {"containers", "volumes"}, "KServe would merge them by name"
    return {**rest, "containers": runtime["spec"]["containers"], "volumes": runtime["spec"]["volumes"]}
