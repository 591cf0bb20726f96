"""The PodDisruptionBudget of all serving pods."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.manifests.common import JSON, Owner, metadata, sealed


def pdb(owner: Owner) -> JSON:
    """Named as the object. One replica at a time may be evicted, also when only one is left: a budget that no drain
    can meet only makes an administrator delete it. Replicas that are not ready never hold up a drain."""
    return sealed({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(owner, owner.name, labels.COMPONENT_SERVER),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels.model_selector(owner.name)},
        },
    })
