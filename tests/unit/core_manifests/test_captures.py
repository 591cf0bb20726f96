"""Whose captures a serving pod keeps: a class of a fleet keeps the fleet's, so that captured://FLEET has the requests
of all classes."""

from __future__ import annotations

import pytest

from enginewright.core import labels
from enginewright.core.config import DefaultStore, OperatorConfig
from enginewright.core.manifests import Owner, deployment
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement, place
from enginewright.core.spec import Spec, parse_spec
from enginewright.observe.references import serving, wish
from support.cluster import SPEC, built

CAPTURING = {**SPEC, "store": {"uri": "pvc://engines"}, "quality": {"capture": {}}}


@pytest.mark.parametrize("fleet", ["", "encoders"])
def test_monitor_and_collector_mean_one_place(fleet: str) -> None:
    spec = parse_spec(CAPTURING)
    assert isinstance(spec, Spec)
    placed = place(spec, 1 << 20, OperatorConfig())
    assert isinstance(placed, Placement)
    record = EngineRecord(fingerprint="f" * 64, store_claim="enginewright-store", store_uri=spec.store.uri,
                          outcome=built("f" * 64))
    owner = Owner(name="encoders-cpu", namespace="prod", uid="u-1", fleet=fleet)
    made = deployment(owner, spec, record, placed, OperatorConfig())
    [monitor] = [one for one in made["spec"]["template"]["spec"]["containers"]
                 if one["name"] == labels.CONTAINER_QUALITY]
    name = fleet or "encoders-cpu"
    assert f"--capture-of=prod/{name}" in monitor["args"]
    assert [mount["subPath"].rpartition("captures/")[2] for mount in monitor["volumeMounts"]
            if mount["mountPath"] == labels.CAPTURES_PATH] == [f"prod/{name}"]
    owners = [{"kind": labels.KIND, "name": fleet}] if fleet else []
    asked = {"metadata": {"name": "encoders-cpu", "ownerReferences": owners}, "spec": CAPTURING}
    assert serving(made).captures == wish(asked, DefaultStore()).captures == (name, spec.store.uri)
