"""A model from an object store, one from a hub and one from a registry: fetched by real Jobs with the credentials of a
Secret."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from support import fake_hub, object_store, oci_registry
from support.artifacts import oras
from support.bench import Bench
from support.fake_hub import REPOSITORY, TOKEN, FakeHub
from support.within_reach import make_secret, node_address

COMMIT = fake_hub.commit_of("one")


def spec(uri: str, data: str, secret: str) -> dict[str, Any]:
    return {"source": {"uri": uri, "secretRef": {"name": secret}},
            "accuracy": {"metric": "cosine", "maxLoss": 0.05, "evaluation": {"uri": data}}}


def test_the_same_model_from_a_bucket_and_from_a_hub_has_the_same_engine(stocked_bench: Bench, model_files: Path,
                                                                        tmp_path: Path) -> None:
    """The content counts, wherever it lies: the store has its engine, which was built from a volume."""
    bench, address = stocked_bench, node_address(stocked_bench)
    content = {name: (model_files / name).read_bytes() for name in ("tiny.onnx", "evaluation.npz")}
    hub = FakeHub(revisions={COMMIT: content}, branches={"main": COMMIT}, private=True)
    with object_store.running(tmp_path, address) as store, fake_hub.serving(hub, address):
        store.put("models", {f"team/{name}": data for name, data in content.items()})
        make_secret(bench, "bucket", store.environment)
        make_secret(bench, "stranger", {**store.environment, "AWS_SECRET_ACCESS_KEY": "wrong"})
        make_secret(bench, "hub", {"HF_TOKEN": TOKEN, "HF_ENDPOINT": hub.endpoint})
        bench.apply("from-bucket", **spec("s3://models/team/tiny.onnx", "s3://models/team/evaluation.npz", "bucket"))
        bench.apply("from-hub", **spec(f"hf://{REPOSITORY}@main/tiny.onnx", f"hf://{REPOSITORY}@main/evaluation.npz",
                                       "hub"))
        bench.apply("refused", **spec("s3://models/team/tiny.onnx", "s3://models/team/evaluation.npz", "stranger"))
        told = bench.wait_reason("refused", "SourceResolved", "SourceAccessDenied")
        assert "spec.source.secretRef" in told["message"]
        for name in ("from-bucket", "from-hub"):
            model = bench.wait(name, "condition=Ready")
            assert model["status"]["engine"]["cacheHit"]


def docker_config(address: str, password: str = oci_registry.PASSWORD) -> str:
    """As ``kubectl create secret docker-registry`` writes it."""
    user = oci_registry.USER
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    return json.dumps({"auths": {address: {"username": user, "password": password, "auth": auth}}})


def test_the_same_model_from_a_registry_has_the_same_engine(stocked_bench: Bench, model_files: Path,
                                                            tmp_path: Path) -> None:
    """With the Secret that image pulls have, whose one entry's name has a dot, and with one in plain words."""
    bench, address = stocked_bench, node_address(stocked_bench)
    content = {name: (model_files / name).read_bytes() for name in ("tiny.onnx", "evaluation.npz")}
    with oci_registry.running(tmp_path, address) as registry:
        registry.push("team/tiny", "1.0", oras(content))
        plain = {"REGISTRY_PLAIN_HTTP": registry.address}
        pulls, wrong = docker_config(registry.address), docker_config(registry.address, "wrong")
        make_secret(bench, "pulls", {".dockerconfigjson": pulls, **plain}, "kubernetes.io/dockerconfigjson")
        make_secret(bench, "stranger", {".dockerconfigjson": wrong, **plain}, "kubernetes.io/dockerconfigjson")
        make_secret(bench, "words", registry.environment)
        model, samples = (f"oci://{registry.address}/team/tiny:1.0/{name}" for name in content)
        for name, secret in (("pulled", "pulls"), ("in-words", "words"), ("refused", "stranger")):
            bench.apply(name, **spec(model, samples, secret))
        told = bench.wait_reason("refused", "SourceResolved", "SourceAccessDenied")
        assert "kubernetes.io/dockerconfigjson" in told["message"]
        for name in ("pulled", "in-words"):
            assert bench.wait(name, "condition=Ready")["status"]["engine"]["cacheHit"]
