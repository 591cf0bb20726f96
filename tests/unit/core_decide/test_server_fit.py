"""What engines are built for, by what both images have; and what is refused before a build begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.config import Images, OperatorConfig
from enginewright.core.manifests import ask_key
from enginewright.core.observed import NodeView, ObjectView, Observed
from enginewright.core.server_image import as_before, driver_runs, runtime_of
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.status import RevisionStatus
from enginewright_builder.contract import Facts, ImageFacts, Outcome, ResolvedSource, RuntimeRequest
from support.cluster import IMAGE_FACTS, SPEC, Cluster

NUMPY, ORT, TORCH = {"NumPy": "2.4.1"}, {"ONNX Runtime": "1.27.0"}, {"PyTorch": "2.11.0"}
BINDINGS = {"TensorRT's Python bindings": "10.6.0.26", "CUDA's Python bindings": "13.1.0"}
GPU_IMAGE = ImageFacts(backends=("python",), libraries={"TensorRT": "10.6.0", **BINDINGS, **ORT, **TORCH, **NUMPY})
TRITON = ImageFacts(backends=("identity", "onnxruntime", "python", "tensorrt"), libraries={"TensorRT": "10.6.0"})
NATIVE_BUILDER = replace(GPU_IMAGE, backends=TRITON.backends)
GPU: dict[str, Any] = {**SPEC, "placement": {"accelerator": "gpu", "gpu": {"product": "NVIDIA-L4"}}}
TEXTS: dict[str, Any] = {**SPEC, "interface": {"inputs": [
    {"name": "text", "dtype": "string", "preprocess": {"fromSource": True}}]}}
STEPS: dict[str, Any] = {**SPEC, "interface": {
    "inputs": [{"name": "text", "dtype": "string", "shape": ["batch", 1]}],
    "pythonSteps": {"preprocess": "steps.py:tokens"}}}
# Nodes need not tell that their MIG layout is done.
CONFIG = OperatorConfig(require_mig_config_state=False)


def image(*backends: str, **versions: str) -> ImageFacts:
    return ImageFacts(backends=backends, libraries=versions)


@pytest.mark.parametrize(("server", "builder", "backends", "libraries"), [
    (IMAGE_FACTS, IMAGE_FACTS, ("python",), ("onnxruntime",)),
    (GPU_IMAGE, GPU_IMAGE, ("python",), ("onnxruntime", "tensorrt", "torch")),
    (TRITON, NATIVE_BUILDER, ("python", "onnxruntime", "tensorrt"), ()),
    (TRITON, GPU_IMAGE, ("python", "onnxruntime", "tensorrt"), ()),
    (replace(TRITON, libraries={**ORT, **NUMPY}), GPU_IMAGE,
     ("python", "onnxruntime", "tensorrt"), ("onnxruntime",)),
    (image("python", **{"ONNX Runtime": "1.27.0"}), GPU_IMAGE, ("python",), ()),  # without NumPy
    (image("onnxruntime", **GPU_IMAGE.libraries), NATIVE_BUILDER, ("onnxruntime",), ()),  # no Python backend
    (image(), GPU_IMAGE, (), ()),
    # TensorRT of another version than the builder's; its build number says nothing.
    (replace(GPU_IMAGE, libraries={**GPU_IMAGE.libraries, "TensorRT": "10.5.0",
                                   "TensorRT's Python bindings": "10.5.0.18"}), GPU_IMAGE,
     ("python",), ("onnxruntime", "torch")),
    (replace(TRITON, libraries={"TensorRT": "10.13.3"}), NATIVE_BUILDER, ("python", "onnxruntime"), ()),
    (replace(TRITON, libraries={"TensorRT": "10.6.0"}), NATIVE_BUILDER, ("python", "onnxruntime", "tensorrt"), ()),
    (GPU_IMAGE, IMAGE_FACTS, ("python",), ("onnxruntime", "tensorrt", "torch")),  # a builder without TensorRT
])
def test_what_engines_are_built_for(
    server: ImageFacts, builder: ImageFacts, backends: tuple[str, ...], libraries: tuple[str, ...]
) -> None:
    expected = RuntimeRequest(server_image="s:1", backends=backends, python_runtimes=libraries)
    assert runtime_of(Facts(server=server, builder=builder), "s:1") == expected


def test_the_same_in_another_order_stays_as_it_was() -> None:
    found = RuntimeRequest(server_image="s", backends=("python", "tensorrt"), python_runtimes=("onnxruntime", "torch"))
    before = replace(found, backends=("tensorrt", "python"), python_runtimes=("torch", "onnxruntime"))
    assert as_before(found, before) == before
    assert as_before(found, None) == found
    assert as_before(found, replace(before, python_runtimes=())) == found
    assert as_before(found, replace(before, server_image="t")) == found


@pytest.mark.parametrize(("least", "branches", "cuda", "driver", "runs"), [
    ("", (), "11.4", "470.57.02", True), ("12.6", (), "", "", True), ("12.6", (), "12.6", "560.35.05", True),
    ("12.6", (), "13.0", "580.95.05", True), ("12.6", (), "12.4", "550.54.15", False),
    ("12.6", ("535", "550"), "12.4", "550.54.15", True), ("12.6", ("535",), "12.4", "550.54.15", False),
    ("13.0", (), "12.10", "", False), ("12.6", (), "12.10", "", True),
])
def test_which_driver_runs_an_image(least: str, branches: tuple[str, ...], cuda: str, driver: str, runs: bool) -> None:
    assert driver_runs(least, branches, cuda, driver) is runs


def told(spec: dict[str, Any], server: ImageFacts, builder: ImageFacts = GPU_IMAGE) -> Cluster:
    cluster = Cluster(spec=spec, config=CONFIG, facts=Facts(server=server, builder=builder), unasked=True)
    cluster.operate()
    cluster.settle_jobs()
    cluster.operate()
    return cluster


OTHER = replace(GPU_IMAGE, libraries={**GPU_IMAGE.libraries, "TensorRT": "10.5.0",
                                      "TensorRT's Python bindings": "10.5.0.18"})


@pytest.mark.parametrize(("spec", "server", "reason", "says"), [
    (SPEC, image(), "ServerImageUnfit", ("any engine", "backends in it are none", "images.server")),
    (SPEC, image("identity", TensorRT="10.6.0"), "ServerImageUnfit",
     ("any engine", "TensorRT 10.6.0", "backends in it are identity")),
    ({**SPEC, "engine": {"backend": "torch"}}, IMAGE_FACTS, "ServerImageUnfit",
     ("spec.engine.backend torch", "ONNX Runtime 1.31.0", "or write onnxruntime in spec.engine.backend")),
    ({**SPEC, "serving": {"image": "triton:1"}}, image("python"), "ServerImageUnfit",
     ("triton:1", "spec.serving.image")),
    ({**GPU, "engine": {"backend": "tensorrt"}}, OTHER, "TensorRTVersionMismatch",
     ("10.6.0.26", "10.5.0, 10.5.0.18", "spec.engine.backend: auto")),
    ({**GPU, "engine": {"backend": "tensorrt"}}, IMAGE_FACTS, "ServerImageUnfit", ("spec.engine.backend tensorrt",)),
    (TEXTS, GPU_IMAGE, "ServerImageUnfit", ("no Python package tokenizers", "NumPy 2.4.1", "images.server")),
    (TEXTS, replace(IMAGE_FACTS, backends=("onnxruntime",)), "ServerImageUnfit", ("has no backend python",)),
    (TEXTS, replace(TRITON, libraries={"Tokenizers": "0.23.3"}), "ServerImageUnfit", ("any engine",)),  # native alone
    (STEPS, replace(IMAGE_FACTS, backends=("onnxruntime",)), "ServerImageUnfit",
     ("pythonSteps names functions", "its backends are onnxruntime", "images.server")),
    (STEPS, TRITON, "ServerImageUnfit", ("any engine",)),  # native alone
])
def test_no_build_that_could_not_be_served(
    spec: dict[str, Any], server: ImageFacts, reason: str, says: tuple[str, ...]
) -> None:
    cluster = told(spec, server)
    assert cluster.says("EngineBuilt") == f"False/{reason}"
    assert cluster.says("Ready") == f"False/{reason}"
    for words in says:
        assert words in cluster.condition("EngineBuilt")["message"]
    assert not cluster.running("build")
    cluster.wait(3600)
    cluster.operate()
    assert not cluster.running("build")
    assert f"Warning {reason}" in cluster.log


LANGUAGE: dict[str, Any] = {**SPEC, "task": "generate", "rollout": {},
                            "accuracy": {"evaluation": {"uri": "pvc://models/prompts.jsonl"}}}
WITH_VLLM = OperatorConfig(images=Images(server_vllm="vllm:1"))


def of_language_model(server: ImageFacts, checkpoints: Mapping[str, str] | None = None,
                      drafts: Mapping[str, str] | None = None, **spec: Any) -> Cluster:
    cluster = Cluster(spec={**LANGUAGE, **spec}, unasked=True, config=WITH_VLLM,
                      facts=Facts(server=server, builder=IMAGE_FACTS))
    cluster.operate()
    found = ResolvedSource(digest="sha256:" + "a" * 64, format="causal", size_bytes=1,
                           evaluation_digest="sha256:" + "e" * 64, checkpoint_digests=checkpoints or {},
                           draft_digests=drafts or {})
    cluster.finish(Outcome(kind="resolve", ok=True, source=found), of="-resolve-")
    cluster.settle_jobs()
    cluster.operate()
    return cluster


@pytest.mark.parametrize(("spec", "server", "says"), [
    ({}, IMAGE_FACTS, ("vllm:1 has no vLLM", "ONNX Runtime 1.31.0", "images.serverVllm")),
    ({"serving": {"image": "mine:1"}}, image(), ("mine:1 has no vLLM", "libraries are none", "spec.serving.image")),
])
def test_a_language_model_is_not_built_for_an_image_without_vllm(
        spec: dict[str, Any], server: ImageFacts, says: tuple[str, ...]) -> None:
    cluster = of_language_model(server, **spec)
    assert cluster.says("EngineBuilt") == "False/ServerImageUnfit"
    message = cluster.condition("EngineBuilt")["message"]
    assert all(part in message for part in says), message
    assert not cluster.running("build")


def test_a_language_model_is_built_for_an_image_with_vllm_alone() -> None:
    cluster = of_language_model(image(vLLM="0.32.0"))
    assert cluster.running("build")
    told = cluster.status["server"]
    assert (told["image"], told["libraries"]) == ("vllm:1", [{"name": "vLLM", "version": "0.32.0"}])
    assert not any(told["runtime"].values())
    cluster.operate()
    assert not cluster.running("-ask-")


def test_digests_of_checkpoints_are_found_once_and_built_from() -> None:
    listed = [{"name": name, "uri": f"pvc://models/{name}"} for name in ("gptq", "awq")]
    found = {"gptq": "sha256:" + "1" * 64, "awq": "sha256:" + "2" * 64}
    cluster = of_language_model(image(vLLM="0.32.0"), found, engine={"checkpoints": listed})
    assert cluster.status["source"]["checkpoints"] == [
        {"name": name, "digest": found[name]} for name in ("awq", "gptq")]
    (first,) = (job.fingerprint for job in cluster.running("build"))
    cluster.operate()
    assert not cluster.running("-resolve-")
    other = of_language_model(image(vLLM="0.32.0"), {**found, "awq": "sha256:" + "3" * 64},
                              engine={"checkpoints": listed})
    assert first != other.running("build")[0].fingerprint
    cluster.edit(engine={"checkpoints": listed[:1]})
    cluster.operate()
    assert cluster.running("-resolve-")


def test_digests_of_drafts_are_found_once_and_built_from() -> None:
    engine = {"drafts": [{"name": "small", "uri": "pvc://models/small"}]}
    one, other = (of_language_model(image(vLLM="0.32.0"), drafts={"small": "sha256:" + digit * 64}, engine=engine)
                  for digit in "12")
    assert one.status["source"]["drafts"] == [{"name": "small", "digest": "sha256:" + "1" * 64}]
    assert one.running("build")[0].fingerprint != other.running("build")[0].fingerprint
    one.operate()
    assert not one.running("-resolve-")
    one.edit(engine={})
    one.operate()
    assert one.running("-resolve-")


@pytest.mark.parametrize(("step", "container"), [("resolve", "build"), ("ladder", "prove"), ("sweep", "prove")])
def test_the_container_of_a_language_models_build_is_named(step: str, container: str) -> None:
    cluster = of_language_model(image(vLLM="0.32.0"))
    name = cluster.running("build")[0].name
    cluster.progress(step, 0.5)
    cluster.operate()
    assert f"logs -f job/{name} -c {container}" in cluster.condition("EngineBuilt")["message"]


def test_without_an_image_for_language_models_no_job_starts() -> None:
    cluster = Cluster(spec=LANGUAGE, unasked=True)
    plan = cluster.operate()
    assert not cluster.jobs
    assert not plan.actions
    assert cluster.says("Ready") == "False/InvalidSpec"
    message = cluster.condition("Ready")["message"]
    assert "spec.serving.image" in message
    assert "images.serverVllm" in message


def test_one_image_is_asked_for_each_task() -> None:
    both = replace(IMAGE_FACTS, libraries={**IMAGE_FACTS.libraries, "vLLM": "0.32.0"})
    found = Facts(server=both, builder=IMAGE_FACTS)
    assert runtime_of(found, "s:1").python_runtimes == ("onnxruntime",)
    assert runtime_of(found, "s:1", generates=True) == RuntimeRequest(server_image="s:1", backends=(),
                                                                      python_runtimes=())
    config = OperatorConfig(images=Images(server="s:1", server_vllm="s:1"))
    infer, generate = parse_spec({**LANGUAGE, "task": "infer"}), parse_spec(LANGUAGE)
    assert isinstance(infer, Spec)
    assert isinstance(generate, Spec)
    assert ask_key(infer, config) != ask_key(generate, config)


def test_texts_are_built_where_the_server_has_what_makes_tokens_of_them() -> None:
    assert told(TEXTS, IMAGE_FACTS).running("build")


def test_functions_need_the_python_backend() -> None:
    assert told(STEPS, IMAGE_FACTS).running("build")


def test_an_image_that_cannot_be_asked_starts_no_build() -> None:
    cluster = Cluster(unasked=True)
    cluster.operate()
    cluster.fail(of="-ask-", reason="PodFailurePolicy")
    cluster.settle_jobs()
    cluster.operate()
    assert cluster.says("SourceResolved") == "True/Resolved"
    assert cluster.says("EngineBuilt").startswith(("False/", "Unknown/"))
    assert not cluster.running("build")


def test_other_engines_go_on_where_only_plans_cannot_be_read() -> None:
    cluster = told(GPU, OTHER)
    assert cluster.running("build")
    message = cluster.condition("EngineBuilt")["message"]
    assert "TensorRT plans are left out" in message
    assert "10.5.0, 10.5.0.18" in message
    assert cluster.status["server"]["runtime"]["pythonRuntimes"] == ["onnxruntime", "torch"]


def test_what_serves_stays_while_a_new_image_is_refused() -> None:
    cluster = Cluster(unasked=True)
    cluster.settle()
    served = cluster.revision
    cluster.facts = Facts(server=image("python"), builder=IMAGE_FACTS)
    cluster.edit(serving={"image": "triton:1"})
    cluster.settle()
    assert cluster.says("EngineBuilt") == "False/ServerImageUnfit"
    assert cluster.revision == served
    assert cluster.says("Available") == "True/ServingPrevious"


class Site(Cluster):
    """With nodes that tell of their driver."""

    nodes: tuple[NodeView, ...] = ()

    def _observe(self, view: ObjectView) -> Observed:
        return replace(super()._observe(view), nodes=self.nodes)


def node(name: str, cuda: str, driver: str = "550.54.15", product: str = "NVIDIA-L4") -> NodeView:
    major, _, minor = cuda.partition(".")
    return NodeView(name=name, allocatable={"nvidia.com/gpu": "1"}, labels={
        "kubernetes.io/arch": "amd64", "nvidia.com/gpu.product": product,
        **({"nvidia.com/cuda.runtime.major": major, "nvidia.com/cuda.runtime.minor": minor} if cuda else {}),
        "nvidia.com/cuda.driver.major": driver.split(".")[0]})


@pytest.mark.parametrize(("nodes", "starts"), [
    ((node("a", "12.4"),), False),
    ((node("a", "12.4"), node("b", "12.2")), False),
    ((node("a", "12.4"), node("b", "12.6")), True),
    ((node("a", "12.4", "535.86.10"),), True),
    ((node("a", "12.4"), node("b", "")), True),
    ((node("a", "12.4"), node("other", "13.0", product="NVIDIA-H200")), False),
    ((node("other", "12.4", product="NVIDIA-H200"),), True),
    ((), True),
])
def test_a_driver_that_is_too_old_on_every_node_that_may_serve(nodes: tuple[NodeView, ...], starts: bool) -> None:
    server = replace(GPU_IMAGE, cuda="12.6", drivers=("535",))
    cluster = Site(spec=GPU, config=CONFIG, facts=Facts(server=server, builder=GPU_IMAGE))
    cluster.nodes = nodes
    cluster.operate()
    cluster.settle_jobs()
    plan = cluster.operate()
    assert bool(cluster.running("build")) is starts
    if not starts:
        assert cluster.says("EngineBuilt") == "False/DriverTooOld"
        assert "a (CUDA 12.4)" in cluster.condition("EngineBuilt")["message"]
        assert plan.requeue_after
        cluster.nodes = (*nodes, node("new", "12.8"))
        cluster.operate()
        assert cluster.running("build")


LEGACY = (("python",), ("onnxruntime",)), (("tensorrt", "python"), ("torch", "onnxruntime", "tensorrt"))


@pytest.mark.parametrize(("backends", "libraries"), LEGACY)
def test_an_upgrade_builds_nothing_where_the_image_has_what_the_settings_said(
    backends: tuple[str, ...], libraries: tuple[str, ...]
) -> None:
    """An operator that was told by settings left no status.server, and its user's order in the fingerprint."""
    has = dict(zip(("onnxruntime", "tensorrt", "torch"), ((*ORT,), (*BINDINGS,), (*TORCH,)), strict=True))
    versions = {**ORT, **BINDINGS, **TORCH}
    server = image(*backends, **NUMPY, **{name: versions[name] for one in libraries for name in has[one]})
    cluster = Cluster(facts=Facts(server=server, builder=replace(GPU_IMAGE, backends=backends)))
    cluster.view = with_settings(cluster, backends, libraries)  # type: ignore[method-assign]
    cluster.settle()
    before, built = cluster.revision, {name for name in cluster.jobs if "-build-" in name}
    del cluster.view  # the operator is upgraded
    cluster.unasked = True
    cluster.status = {key: value for key, value in cluster.status.items() if key != "server"}
    for _ in range(3):
        cluster.operate()
        assert cluster.says("Ready") == "True/Serving", "while the image is asked"
    cluster.settle()
    assert cluster.status["server"]["runtime"] == {"backends": list(backends), "pythonRuntimes": list(libraries)}
    assert cluster.revision == before
    assert {name for name in cluster.jobs if "-build-" in name} == built


def with_settings(cluster: Cluster, backends: tuple[str, ...], libraries: tuple[str, ...]) -> Any:
    """As if the image had been asked, and had answered in the order of the settings."""
    def view() -> Any:
        seen = Cluster.view(cluster)
        told = {**seen.status["server"], "runtime": {"backends": list(backends), "pythonRuntimes": list(libraries)}}
        return replace(seen, status={**seen.status, "server": told})

    return view


def test_an_upgrade_builds_where_the_image_has_more_than_the_settings_said() -> None:
    cluster = Cluster()
    cluster.settle()
    before = cluster.revision
    cluster.unasked = True
    cluster.status = {key: value for key, value in cluster.status.items() if key != "server"}
    cluster.facts = Facts(server=replace(IMAGE_FACTS, libraries={**IMAGE_FACTS.libraries, **TORCH}),
                          builder=IMAGE_FACTS)
    cluster.settle()
    assert cluster.revision != before
    revisions = [RevisionStatus.model_validate(one) for one in cluster.status["revisions"]]
    assert [one.target.backends for one in revisions if one.target] == [
        "python, onnxruntime, torch", "python, onnxruntime"]
