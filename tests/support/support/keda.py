"""KEDA's own CustomResourceDefinitions."""

from __future__ import annotations

from typing import Final

from enginewright.clients.resources import Resource
from support.definitions import Definitions

SCALED_OBJECT: Final = Resource("keda.sh/v1alpha1", "ScaledObject", "scaledobjects")
_DEFINITIONS: Final = Definitions("keda", "github.com/kedacore/keda/v2", "config/crd/bases", (SCALED_OBJECT,))
install, uninstall = _DEFINITIONS.install, _DEFINITIONS.uninstall
