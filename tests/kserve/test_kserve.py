"""KServe's own manager serves what the plugin exports, on a real node: its pods check the engine, become ready, and
answer as the operator's replicas do, also when those have gone.

    make test-kserve      # builds KServe's manager first, some minutes
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from demo.inference import forwarded
from demo.shell import run
from support.bench import Bench
from support.kserve_manager import managing
from support.models import rows

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
SERVICE = "tiny-kserve"
OURS = "app.kubernetes.io/component=server,enginewright.io/model=tiny"
THEIRS = f"serving.kserve.io/inferenceservice={SERVICE}"


def test_kserve_serves_what_is_exported(stocked_bench: Bench, tmp_path: Path) -> None:
    bench, inputs = stocked_bench, rows(4, seed=9)
    bench.apply("tiny", replicas=1)
    bench.wait("tiny", "condition=Ready")
    expected = infer(bench, "tiny", 8000, inputs)
    with managing(bench.kube, tmp_path):
        bench.kube("apply", "--validate=strict", "-f", "-", stdin=exported(bench))
        bench.kube("wait", f"inferenceservice/{SERVICE}", "-n", bench.namespace, "--for=condition=Ready",
                   "--timeout=300s", timeout=330)
        (pod,) = bench.get("pod", THEIRS)
        checks_its_engine(pod, bench)
        np.testing.assert_allclose(infer(bench, f"{SERVICE}-predictor", 80, inputs), expected, rtol=1e-5)
        bench.kube("scale", "om/tiny", "-n", bench.namespace, "--replicas=0")
        bench.kube("wait", "pod", "-n", bench.namespace, "-l", OURS, "--for=delete", "--timeout=240s")
        assert bench.wait_reason("tiny", "Ready", "NoReplica")["status"] == "False"
        np.testing.assert_allclose(infer(bench, f"{SERVICE}-predictor", 80, inputs), expected, rtol=1e-5)


def exported(bench: Bench) -> str:
    return run(sys.executable, "-m", "enginewright.plugin", "export", "tiny", "--as", "kserve", "-n", bench.namespace,
               f"--kubeconfig={bench.kube.kubeconfig}")


def checks_its_engine(pod: dict[str, Any], bench: Bench) -> None:
    """The pod that KServe made is the operator's, with nothing added."""
    (ours,) = bench.get("pod", OURS)
    assert pod["metadata"]["ownerReferences"][0]["name"].startswith(f"{SERVICE}-predictor-")
    ended = {one["name"]: one["state"]["terminated"]["exitCode"] for one in pod["status"]["initContainerStatuses"]}
    assert ended == {"storage-initializer": 0}
    assert [one["name"] for one in pod["spec"]["containers"]] == ["kserve-container"]
    theirs, server = pod["spec"]["containers"][0], ours["spec"]["containers"][0]
    for field in ("image", "args", "resources", "securityContext"):
        assert theirs.get(field) == server.get(field), field


def infer(bench: Bench, service: str, port: int, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    tensor = triton.InferInput("x", list(inputs.shape), "FP32")
    tensor.set_data_from_numpy(inputs)
    with (forwarded(bench.kube, bench.namespace, f"service/{service}", port) as address,
          contextlib.closing(triton.InferenceServerClient(address)) as client):
        return np.asarray(client.infer("tiny", [tensor]).as_numpy("y"))
