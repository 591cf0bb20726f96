"""Children that have no owner any more: ``kubectl delete --cascade=orphan`` left them, or a user
took the owner away.

Pods of such a Deployment bear the labels that the model's Service selects, so that they would get requests for as long
as the Deployment stays, whatever the spec asks for. The object takes them back, as a ReplicaSet takes pods that match;
the next pass then keeps or stops them like any other child.
"""

from __future__ import annotations

from enginewright.core.manifests import Owner
from enginewright.core.observed import ObjectView, Observed, Orphan
from enginewright.core.plan import Action, Delete, Plan, ReleaseBuild, Replace

WHY = "it has no owner any more, and bears this object's labels"
# Events of what was taken back start the next pass; this one comes where no event does.
SOON = 1.0


def take_back(obj: ObjectView, observed: Observed) -> Plan:
    """Nothing else is decided before the children are known."""
    return Plan(status=obj.status, serving=tuple(_action(obj, orphan) for orphan in observed.orphans),
                requeue_after=SOON)


def _action(obj: ObjectView, orphan: Orphan) -> Action:
    if orphan.kind == "Job":
        # The operator may not change Jobs. What one has found is in status and in records; what is missing runs again.
        return Delete(api_version=orphan.api_version, kind=orphan.kind, name=orphan.name, why=WHY,
                      uid=orphan.version.uid, version=orphan.version.version)
    if orphan.kind == "Lease":
        # Its holder is gone, with the Job above. It would keep others waiting, and its engine from being collected.
        return ReleaseBuild(name=orphan.name, version=orphan.version.version, why=WHY)
    reference = Owner.of(obj).reference
    return Replace(manifest={"apiVersion": orphan.api_version, "kind": orphan.kind,
                             "metadata": {"name": orphan.name, "ownerReferences": [reference]}},
                   version=orphan.version.version, why=WHY)
