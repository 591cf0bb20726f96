"""KEDA's own CustomResourceDefinitions."""

from __future__ import annotations

from typing import Final

from enginewright.clients.resources import Resource
from support.definitions import Definitions

SCALED_OBJECT: Final = Resource("keda.sh/v1alpha1", "ScaledObject", "scaledobjects")
# All that its operator watches.
_KINDS: Final = (
    SCALED_OBJECT,
    Resource("keda.sh/v1alpha1", "ScaledJob", "scaledjobs"),
    Resource("keda.sh/v1alpha1", "TriggerAuthentication", "triggerauthentications"),
    Resource("keda.sh/v1alpha1", "ClusterTriggerAuthentication", "clustertriggerauthentications"),
    Resource("eventing.keda.sh/v1alpha1", "CloudEventSource", "cloudeventsources"),
    Resource("eventing.keda.sh/v1alpha1", "ClusterCloudEventSource", "clustercloudeventsources"),
)
_DEFINITIONS: Final = Definitions("keda", "github.com/kedacore/keda/v2", "config/crd/bases", _KINDS)
install, uninstall = _DEFINITIONS.install, _DEFINITIONS.uninstall
