"""KEDA's own CustomResourceDefinitions."""

from __future__ import annotations

from typing import Final

from enginewright.clients.resources import Resource
from support.definitions import Definitions

SCALED_OBJECT: Final = Resource("keda.sh/v1alpha1", "ScaledObject", "scaledobjects")
# What else its operator watches.
_WATCHED: Final = (
    Resource("keda.sh/v1alpha1", "ScaledJob", "scaledjobs"),
    Resource("keda.sh/v1alpha1", "TriggerAuthentication", "triggerauthentications"),
    Resource("keda.sh/v1alpha1", "ClusterTriggerAuthentication", "clustertriggerauthentications"),
    Resource("eventing.keda.sh/v1alpha1", "CloudEventSource", "cloudeventsources"),
    Resource("eventing.keda.sh/v1alpha1", "ClusterCloudEventSource", "clustercloudeventsources"),
)


def definitions(*kinds: Resource) -> Definitions:
    return Definitions("keda", "github.com/kedacore/keda/v2", "config/crd/bases", kinds)


OF_SCALED_OBJECTS: Final = definitions(SCALED_OBJECT)
ALL: Final = definitions(SCALED_OBJECT, *_WATCHED)
