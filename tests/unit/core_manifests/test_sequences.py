"""What state that the server keeps changes in a serving pod."""

from __future__ import annotations

from typing import Any

from enginewright.core.config import OperatorConfig
from enginewright.core.labels import CONTAINER_SERVER
from enginewright.core.manifests import Owner, deployment
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement, place
from enginewright.core.spec import Spec, parse_spec
from support.cluster import SPEC, built

OWNER = Owner(name="voice", namespace="prod", uid="u-1")
KEPT = {"sequenceBatching": {"state": [{"inputName": "h", "outputName": "hn"}], "maxCandidateSequences": 7}}
AGE = "--grpc-max-connection-age=3000"


def spec(**more: Any) -> Spec:
    found = parse_spec({**SPEC, **more})
    assert isinstance(found, Spec)
    return found


def pod(of: Spec) -> dict[str, Any]:
    placed = place(of, 1 << 20, OperatorConfig())
    assert isinstance(placed, Placement)
    record = EngineRecord(fingerprint="f" * 64, store_claim="enginewright-store", store_uri=of.store.uri,
                          outcome=built("f" * 64))
    return dict(deployment(OWNER, of, record, placed, OperatorConfig(server_args=(AGE, "--log-verbose=1")))
                ["spec"]["template"]["spec"])


def arguments(of: Spec) -> list[str]:
    (server,) = (one for one in pod(of)["containers"] if one["name"] == CONTAINER_SERVER)
    return list(server["args"])


def test_connections_are_not_renewed_as_a_sequence_stays_with_its_replica() -> None:
    plain, kept = arguments(spec()), arguments(spec(interface=KEPT))
    assert AGE in plain
    assert kept == [one for one in plain if one != AGE]
    assert "--log-verbose=1" in kept
