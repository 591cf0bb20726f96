"""The kinds that the operator watches, and what it asks the apiserver to filter by."""

from __future__ import annotations

from typing import Final

from enginewright.clients.resources import (
    CLAIM,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    JOB,
    LEASE,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
)
from enginewright.core import labels

WATCHED: Final = (
    OPTIMISED_MODEL, JOB, POD, DEPLOYMENT, SERVICE, CONFIG_MAP, CLAIM, ENDPOINT_SLICE, DISRUPTION_BUDGET, LEASE,
)
# The apiserver filters: other people's pods never reach the operator.
SELECTORS: Final = {
    JOB: labels.MODEL,
    POD: labels.MODEL,
    DEPLOYMENT: labels.MODEL,
    SERVICE: labels.MODEL,
    ENDPOINT_SLICE: labels.MODEL,
    DISRUPTION_BUDGET: labels.MODEL,
    CONFIG_MAP: f"{labels.MANAGED_BY}={labels.PRODUCT}",
    LEASE: f"{labels.BUILDS}=true",
}
