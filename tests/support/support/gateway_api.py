"""The Gateway API's own CustomResourceDefinitions, of the standard channel."""

from __future__ import annotations

from typing import Final

from enginewright.clients.resources import GRPC_ROUTE, HTTP_ROUTE
from support.definitions import Definitions

KINDS: Final = (HTTP_ROUTE, GRPC_ROUTE)
_DEFINITIONS: Final = Definitions("gateway-api", "sigs.k8s.io/gateway-api", "config/crd/standard", KINDS)
install, uninstall = _DEFINITIONS.install, _DEFINITIONS.uninstall
