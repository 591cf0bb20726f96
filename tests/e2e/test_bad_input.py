"""Each bad input, applied to a real cluster: refused with the field, the value and the remedy, and no device spent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.__main__ import SYSTEM_NAMESPACE, registry_to_push_to
from demo.inference import forwarded
from demo.shell import CLUSTER, IMAGES, ROOT, StepError, run
from enginewright.core.decide.jobs import SERVER_RESTARTS
from support.apiserver import eventually
from support.bench import Bench
from support.other_entry_point import with_entry_point
from support.prometheus import running

RULES = ROOT / "charts" / "enginewright" / "files" / "rules.yaml"
DIGEST = "sha256:" + "0" * 64
# What the linker says where an image lacks a library.
LACKS = "tritonserver: error while loading shared libraries: libdcgm.so.3: cannot open shared object file"


@dataclass(frozen=True)
class Bad:
    """A spec and what must be said about it. ``says`` are fragments of the condition's message."""

    name: str
    condition: str
    reason: str
    says: tuple[str, ...]
    spec: dict[str, Any] = field(default_factory=dict)


def _source(uri: str, **more: str) -> dict[str, Any]:
    return {"source": {"uri": uri, **more}}


def _evaluation(uri: str) -> dict[str, Any]:
    return {"accuracy": {"metric": "cosine", "maxLoss": 0.05, "evaluation": {"uri": uri}}}


SPENDS_NO_BUILD = (
    Bad("missing-source", "SourceResolved", "SourceNotFound", ("spec.source.uri", "nothing-here"),
        _source("pvc://models/nothing-here")),
    Bad("missing-claim", "SourceResolved", "VolumeMissing", ("no-such-claim",), _source("pvc://no-such-claim/m.onnx")),
    Bad("digest", "SourceResolved", "DigestMismatch", ("spec.source.digest", DIGEST[:20]),
        _source("pvc://models/tiny.onnx", digest=DIGEST)),
    Bad("pickle", "SourceResolved", "PickleRefused", ("pickled.pt", "safetensors"), _source("pvc://models/pickled.pt")),
    Bad("cut-onnx", "SourceResolved", "SourceCorrupt", ("truncated.onnx",), _source("pvc://models/truncated.onnx")),
    Bad("cut-weights", "SourceResolved", "SourceCorrupt", ("model.safetensors",),
        _source("pvc://models/truncated-safetensors")),
    Bad("unknown-op", "SourceResolved", "UnsupportedOperator", ("Transmogrify",),
        _source("pvc://models/unknown-operator.onnx")),
    Bad("no-samples", "SourceResolved", "EvaluationDataInvalid", ("spec.accuracy.evaluation", "empty.npz"),
        _evaluation("pvc://models/empty.npz")),
    Bad("wrong-shape", "SourceResolved", "EvaluationDataInvalid", ("64", "10"),
        _evaluation("pvc://models/wrong-shape.npz")),
    Bad("same-data", "SourceResolved", "CalibrationEqualsEvaluation", ("calibration",),
        {"engine": {"calibration": {"uri": "pvc://models/evaluation-copy.npz"}, "buildBudgetSeconds": 15}}),
    Bad("no-store", "EngineBuilt", "StoreMissing", ("spec.store.uri", "no-such-store"),
        {"store": {"uri": "pvc://no-such-store"}}),
)


@pytest.fixture(scope="module")
def bench(furnished: Callable[[], AbstractContextManager[Bench]]) -> Iterator[Bench]:
    """One namespace for all of this file: each test has objects of its own."""
    with furnished() as bench:
        yield bench


def of(*names: str) -> str:
    return f"enginewright.io/model in ({','.join(names)})"


def test_what_can_be_known_before_is_refused_before_a_build(bench: Bench) -> None:
    for bad in SPENDS_NO_BUILD:
        bench.apply(bad.name, **bad.spec)
    wrong = []
    for bad in SPENDS_NO_BUILD:
        found = bench.wait_reason(bad.name, bad.condition, bad.reason)
        if found["status"] != "False" or any(part not in found["message"] for part in bad.says):
            wrong.append(f"{bad.name}: {found['status']} {found['message']}")
    assert not wrong
    theirs = of(*(bad.name for bad in SPENDS_NO_BUILD))
    assert bench.get("job", theirs) != []
    assert bench.get("job", f"app.kubernetes.io/component=build,{theirs}") == []
    assert bench.get("deployment", theirs) == []


def test_a_server_image_that_serves_nothing_is_refused_before_a_build(bench: Bench) -> None:
    """The operator's image has Python and no Triton."""
    bench.apply("no-triton", serving={"image": bench.images["operator"]})
    told = bench.wait_reason("no-triton", "EngineBuilt", "ServerImageUnfit")
    assert "Triton's backends in it are none" in told["message"]
    assert "spec.serving.image" in told["message"]
    server = bench.model("no-triton")["status"]["server"]
    assert (server["image"], server["backends"]) == (bench.images["operator"], [])
    assert server["imageID"].startswith("sha256:")
    assert server["python"].startswith("3.")
    assert bench.get("job", f"app.kubernetes.io/component=build,{of('no-triton')}") == []


@pytest.mark.parametrize(("spec", "says"), [
    ({"colour": "red"}, "unknown field"),
    ({"engine": {"precision": "fp8"}}, "fp8"),
    ({"engine": {"maxBatchSize": -1}}, "maxBatchSize"),
    ({"autoscaling": {"minReplicas": 5, "maxReplicas": 2}}, "minReplicas"),
    ({"source": {"uri": "ftp://host/model"}}, "pvc://"),
    ({"source": {"uri": "models/tiny"}}, "pvc://"),
    ({"replicas": 2, "autoscaling": {"minReplicas": 1, "maxReplicas": 2}}, "replicas"),
    ({"accuracy": {"maxLoss": -0.5}}, "maxLoss"),
])
def test_the_apiserver_itself_refuses(bench: Bench, spec: dict[str, Any], says: str) -> None:
    with pytest.raises(StepError, match=says):
        bench.apply("refused", **spec)


async def test_accuracy_out_of_reach_is_not_served_but_offered_and_raises_an_alarm(bench: Bench, tmp_path: Path
                                                                                   ) -> None:
    """256 samples prove 1.2 % only of an engine that loses next to nothing; INT8 loses more. The chart's rules are
    loaded by a real Prometheus, which scrapes the operator."""
    evaluation = {"uri": "pvc://models/evaluation.npz"}
    bench.apply(
        "strict",
        accuracy={"metric": "relative-error", "maxLoss": 0.012, "evaluation": evaluation},
        # More than any machine takes: what is not tried in time might have passed, and the reason is another one.
        engine={"precision": "int8", "buildBudgetSeconds": 900, "calibration": {"uri": "pvc://models/calibration.npz"}},
    )
    bench.wait_reason("strict", "AccuracyVerified", "AccuracyNotReached")
    candidates = bench.model("strict")["status"]["candidates"]
    assert [c["precision"] for c in candidates if c["verdict"] == "Offered"] == ["fp32"]
    assert bench.get("deployment", of("strict")) == []
    about = {"alertname": "EnginewrightAccuracyRefused", "severity": "warning", "namespace": bench.namespace,
             "optimisedmodel": "strict", "type": "AccuracyVerified", "status": "False", "reason": "AccuracyNotReached"}
    with forwarded(bench.kube, SYSTEM_NAMESPACE, "service/enginewright-metrics", 8080) as address:
        async with running(tmp_path, [{"targets": [address]}], [RULES]) as prometheus, httpx.AsyncClient() as http:

            async def it_fires() -> bool:
                answer = (await http.get(f"{prometheus}/api/v1/alerts")).json()["data"]["alerts"]
                return about in [alert["labels"] for alert in answer if alert["state"] == "firing"]

            await eventually(it_fires, 600)


def test_an_image_that_cannot_be_pulled_is_named(bench: Bench) -> None:
    """By the Job that asks it what it has, before a build."""
    bench.apply("no-image", serving={"image": "localhost/no/such/triton:1"})
    built = bench.wait_reason("no-image", "EngineBuilt", "ImagePullFailed")
    assert "localhost/no/such/triton:1" in built["message"]


def test_a_builder_out_of_memory_is_tried_again_and_said(bench: Bench) -> None:
    bench.apply("starved", engine={"buildBudgetSeconds": 15, "resources": {"limits": {"memory": "64Mi"}}})
    message = bench.wait_reason("starved", "EngineBuilt", "BuildRetrying")["message"]
    assert "ran out of memory" in message
    assert "spec.engine.resources.limits.memory" in message


@pytest.fixture
def lacking(bench: Bench, tmp_path: Path) -> str:
    """The server image with an entry point that fails: it has all that an engine needs, by its own word, and does not
    start."""
    if registry_to_push_to():
        pytest.skip("the image is given to a local node; an existing cluster pulls its images")
    archive = json.loads(run(IMAGES, "build", "--json", "server"))["server"]["archive"]
    reference = f"{bench.images['server'].partition(':')[0]}-lacking:{bench.namespace}"
    with_entry_point(Path(archive), ["/bin/sh", "-c", f"echo '{LACKS}' >&2; exit 127"], reference,
                     tmp_path / "lacking.tar")
    run(CLUSTER, "load-image", tmp_path / "lacking.tar")
    return reference


def test_a_server_image_that_does_not_start_ends_the_build_and_says_why(bench: Bench, lacking: str) -> None:
    """It answers what it has, so that a build begins; the server that is to prove the engine never stays up."""
    bench.apply("lacking", serving={"image": lacking})
    told = bench.wait_reason("lacking", "EngineBuilt", "ServerDidNotStart")
    assert told["status"] == "False"
    for part in ("spec.serving.image: the server that proves the engine in pod", "use an image with",
                 f"The server's last line: {LACKS}"):
        assert part in told["message"]
    starts = re.search(r"ends as soon as it is started \((\d+) times\)", told["message"])
    assert starts
    assert int(starts[1]) > SERVER_RESTARTS, "a busy operator may look after the kubelet's next try"
    status = bench.model("lacking")["status"]
    assert status["server"]["runtime"]["backends"] == ["python"], "by its own word it runs engines"
    assert "engine" not in status
    assert bench.get("deployment", of("lacking")) == []
