"""One OptimisedModel on a real node: built, served, found in the cache again, deleted without orphans."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import onnxruntime
import tritonclient.http as triton

from demo.inference import forwarded
from enginewright.core.conditions import parse_timestamp
from support.bench import Bench
from support.models import mlp, rows


def test_a_model_is_built_proven_served_and_right(bench: Bench) -> None:
    bench.apply("tiny")
    model = bench.wait("tiny", "condition=Ready")
    assert model["status"]["engine"]["cacheHit"] is False
    inputs = rows(4, seed=9)
    expected = onnxruntime.InferenceSession(mlp().SerializeToString()).run(None, {"x": inputs})[0]
    served = infer(bench, "tiny", inputs)
    cosine = (served * expected).sum(1) / (np.linalg.norm(served, axis=1) * np.linalg.norm(expected, axis=1))
    assert cosine.min() > 0.95
    pod = bench.get("pod", "app.kubernetes.io/component=server")[0]
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    built = {job["metadata"]["name"] for job in bench.get("job", "app.kubernetes.io/component=build")}
    [built_in] = bench.get("pod", "app.kubernetes.io/component=build")
    ended = {one["name"]: one["state"]["terminated"] for one in [*built_in["status"]["initContainerStatuses"],
                                                                 *built_in["status"]["containerStatuses"]]}
    assert (set(ended), ended["build"]["exitCode"], ended["prove"]["exitCode"]) == ({"build", "server", "prove"}, 0, 0)
    assert {one["name"]: one["image"] for one in built_in["spec"]["initContainers"]}["server"] == bench.images["server"]
    summary = model["status"]["engine"]
    assert summary["memoryBytes"] > 30 << 20
    assert 0 < summary["loadSeconds"] < lasted(built_in)  # seconds, however many a busy machine takes
    bench.apply("again")
    again = bench.wait("again", "condition=Ready")["status"]
    assert (again["fingerprint"], again["engine"]["cacheHit"]) == (model["status"]["fingerprint"], True)
    assert {job["metadata"]["name"] for job in bench.get("job", "app.kubernetes.io/component=build")} == built


def test_what_a_store_has_is_a_cache_hit_and_deletion_leaves_no_orphan(stocked_bench: Bench) -> None:
    bench = stocked_bench
    bench.apply("first")
    model = bench.wait("first", "condition=Ready")
    fingerprint = model["status"]["fingerprint"]
    assert model["status"]["engine"]["cacheHit"] is True
    bench.kube("delete", "om", "first", "-n", bench.namespace)
    bench.kube("wait", "--for=delete", "deployment,service,poddisruptionbudget,job,pod,configmap", "-n",
               bench.namespace, "-l", "enginewright.io/model=first", "--timeout=240s")
    bench.apply("first")
    model = bench.wait("first", "condition=Ready")
    assert (model["status"]["fingerprint"], model["status"]["engine"]["cacheHit"]) == (fingerprint, True)
    bench.apply("second")
    model = bench.wait("second", "condition=Ready")
    assert (model["status"]["fingerprint"], model["status"]["engine"]["cacheHit"]) == (fingerprint, True)
    assert bench.get("job", "app.kubernetes.io/component=build") == []
    inputs = rows(4, seed=9)
    np.testing.assert_allclose(infer(bench, "first", inputs), infer(bench, "second", inputs), rtol=1e-5)


def lasted(pod: dict[str, Any]) -> float:
    """Seconds from the start of ``pod`` to the end of its last container, of which the apiserver keeps whole ones."""
    ends = [parse_timestamp(one["state"]["terminated"]["finishedAt"]) for one in pod["status"]["containerStatuses"]]
    began = parse_timestamp(pod["status"]["startTime"])
    assert began
    return max((end - began).total_seconds() for end in ends if end) + 1


def infer(bench: Bench, name: str, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    tensor = triton.InferInput("x", list(inputs.shape), "FP32")
    tensor.set_data_from_numpy(inputs)
    with (forwarded(bench.kube, bench.namespace, f"service/{name}", 8000) as address,
          contextlib.closing(triton.InferenceServerClient(address)) as client):
        answer = client.infer(name, [tensor]).as_numpy("y")
    return np.asarray(answer)
