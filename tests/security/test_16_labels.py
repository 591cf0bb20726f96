"""The policy of the chart goes by one label, so all that the operator makes has it: objects and their pods."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests import Owner, gc_job
from enginewright.core.manifests.fleet import fleet_service, member
from enginewright.core.manifests.service import mirror_service, revision_service
from support.children import children_of
from support.specs import Raw, valid_specs

JSON = dict[str, Any]
OWNER = Owner(name="m", namespace="team-a", uid="u")
# Of the installation, which may not take it away.
CONFIG = OperatorConfig(job_labels={labels.MANAGED_BY: "Helm", "team": "platform"})
OTHERS: tuple[JSON, ...] = (
    gc_job("team-a", "pvc://engines", "uid", ("f" * 64,), CONFIG), gc_job("team-a", "s3://engines/a", "", (), CONFIG),
    fleet_service(OWNER), member(OWNER, "cpu", {}, {}), mirror_service(OWNER, "0" * 8),
    revision_service(OWNER, "0" * 8),
)


def labelled(manifest: JSON) -> bool:
    pods = [manifest["spec"]["template"]] if manifest["kind"] in ("Job", "Deployment") else []
    return all(part["metadata"]["labels"].get(labels.MANAGED_BY) == "enginewright" for part in (manifest, *pods))


def test_what_no_object_owns_and_what_a_fleet_has() -> None:
    for manifest in OTHERS:
        assert labelled(manifest), manifest["metadata"]["name"]


@given(valid_specs())
def test_all_children_of_any_object(raw: Raw) -> None:
    for kind, manifest in children_of("m", raw, CONFIG).all().items():
        assert labelled(manifest), kind
