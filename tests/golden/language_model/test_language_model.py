"""What serves a language model. Read a difference before accepting it: it is what a cluster will be given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginewright.core.config import Images, OperatorConfig
from enginewright.core.manifests import deployment, revision_service, service
from enginewright.core.manifests.routes import routes
from enginewright.core.servers.vllm import VLLM
from enginewright.core.spec.gateway import GatewaySpec
from support.children import Children, children_of
from support.goldens import check_golden
from support.published_language_model import built_language_model

HERE = Path(__file__).parent
CONFIG = OperatorConfig(images=Images(builder="registry.example/builder@sha256:b", server="registry.example/server:1",
                                      operator="registry.example/operator:1"),
                        server_args=("--log-verbose=1",))
SPECS: dict[str, dict[str, Any]] = {
    "cpu": {"source": {"uri": "pvc://models/smollm2"}, "placement": {"accelerator": "cpu"},
            "serving": {"image": "registry.example/server-vllm:1", "resources": {"limits": {"memory": "8Gi"}}}},
    "gpu": {"source": {"uri": "hf://example/model"}, "store": {"uri": "s3://engines/team-a"},
            "placement": {"gpu": {"product": "NVIDIA-H100-80GB-HBM3", "count": 2}},
            "serving": {"image": "registry.example/server-vllm-gpu:1"}},
    "mig": {"source": {"uri": "hf://example/model"},
            "placement": {"gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "1g.20gb"}},
            "serving": {"image": "registry.example/server-vllm-gpu:1"}},
}
NAMES = {"cpu": "smollm2", "gpu": "chat", "mig": "slice"}


def served(kind: str) -> tuple[Children, dict[str, Any]]:
    children = children_of(NAMES[kind], SPECS[kind], CONFIG)
    outcome = replace(built_language_model(), fingerprint=children.fingerprint,
                      manifest_digest="sha256:" + "d" * 64)
    record = replace(children.record, outcome=outcome)
    return children, deployment(children.owner, children.spec, record, children.placement, CONFIG)


@pytest.mark.parametrize("kind", SPECS)
def test_deployment(kind: str) -> None:
    _, made = served(kind)
    check_golden(HERE / f"deployment_{kind}.yaml", made)


def test_services() -> None:
    children, _ = served("cpu")
    check_golden(HERE / "service.yaml", service(children.owner, children.revision, VLLM))
    check_golden(HERE / "revision_service.yaml", revision_service(children.owner, children.revision, VLLM))


def test_routes_lead_to_its_api() -> None:
    children, _ = served("cpu")
    gateway = GatewaySpec.model_validate({"parentRefs": [{"name": "edge"}], "hostnames": ["chat.example"]})
    (route,) = routes(children.owner, gateway, {children.revision: 100}, VLLM)
    assert route["spec"]["rules"][0]["matches"] == [{"path": {"type": "PathPrefix", "value": "/v1"}}]


def test_no_golden_is_left_over() -> None:
    wanted = {*(f"deployment_{kind}.yaml" for kind in SPECS), "service.yaml", "revision_service.yaml"}
    assert {path.name for path in HERE.glob("*.yaml")} == wanted
