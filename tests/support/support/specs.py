"""Hypothesis strategies of specs that are good: every field in its bounds, every rule between fields kept."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from enginewright.core import mig

Raw = dict[str, Any]

_NAME = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
_KEY = st.from_regex(r"[a-z]{1,8}\.example/[a-z]{1,8}", fullmatch=True)
_DIGEST = st.just("") | st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)
_PATH = st.from_regex(r"[a-z0-9]{1,8}(/[a-z0-9_-]{1,8}){0,2}", fullmatch=True)
_PRODUCTS = ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A30", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200",
             "NVIDIA-B200", "NVIDIA-GB200")

object_names = st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)


# The least energy needs a latency and whole GPUs.
_SAVES = st.fixed_dictionaries({"minimise": st.just("energy"), "latency": st.just({"milliseconds": 20})})
_SAVES_UNLESS = {False: _SAVES, True: st.just({"minimise": "cost"})}


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Raw]:
    return st.fixed_dictionaries({}, optional=fields)


def _uris(prefix: str) -> st.SearchStrategy[str]:
    """``prefix`` keeps calibration and evaluation data apart."""
    return st.builds(lambda claim, path: f"pvc://{claim}/{prefix}/{path}", _NAME, _PATH)


def _data(prefix: str) -> st.SearchStrategy[Raw]:
    return st.fixed_dictionaries({"uri": _uris(prefix)}, optional={"samples": st.integers(0, 10_000)})


_resources = _optional(requests=_optional(cpu=st.sampled_from(["100m", "1", 2]),
                                          memory=st.sampled_from(["64Mi", "1Gi"])),
                       limits=_optional(cpu=st.sampled_from(["2", 8, "4000m"]), memory=st.sampled_from(["2Gi", "16G"])))
_tensor: st.SearchStrategy[Raw] = st.fixed_dictionaries(
    {"name": _NAME, "dtype": st.sampled_from(["int64", "float32", "string"])},
    optional={"shape": st.lists(st.integers(1, 4096) | st.sampled_from(["batch", "1..512"]), max_size=4)})
_tensors = st.lists(_tensor, max_size=3, unique_by=lambda tensor: str(tensor["name"]))
_BYTES: Raw = {"name": "image", "dtype": "uint8", "shape": ["batch", 224, 224, 3],
               "normalise": {"mean": [0.485, 0.456, 0.406], "std": [0.5], "channels": "last"}}
_IMAGES: list[Raw] = [
    _BYTES,
    {"name": "image", "dtype": "uint8", "shape": ["batch", "224..1024", 300, 3], "preprocess": {"fromSource": True}},
    {**_BYTES, "preprocess": {"size": {"height": 128, "width": 96}, "resample": "bicubic"}},
    # As the apiserver stored it while bilinear was a default.
    {"name": "image", "dtype": "uint8", "shape": ["batch", "224..1024", "224..1024", 3],
     "preprocess": {"fromSource": True, "resample": "bilinear"}},
    {**_BYTES, "preprocess": {"size": {"shortestEdge": 99}, "cropSize": {"height": 99, "width": 64}}}]
_TEXTS: list[list[Raw]] = [[{"name": "text", "dtype": "string", "preprocess": {"fromSource": True}, **shape}]
                           for shape in ({}, {"shape": ["batch", 1]}, {"shape": ["batch", 2]})]
_steps: st.SearchStrategy[Raw] = st.sampled_from([
    {"output": "scores", "function": "softmax"}, {"output": "tokens", "function": "meanPooling"},
    {"output": "tokens", "function": "meanPooling", "mask": "mask"}, {"output": "tokens", "function": "l2Normalise"},
    {"output": "scores", "function": "argMax"}, {"output": "map", "function": "argMax", "axis": 1},
    {"output": "classes", "function": "topK", "k": 5},
    {"output": "found", "function": "objectDetection", "k": 9,
     "detection": {"boxUnit": "pixels", "threshold": 0.1, "nmsThreshold": 0.5}}])
_toleration = st.sampled_from([{"operator": "Exists"}, {"key": "spot", "value": "yes", "effect": "NoSchedule"},
                               {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}])
_PADDED: Raw = {"padding": {"values": [{"input": "input_ids", "value": 1}]}}
_pod_template = _optional(
    metadata=_optional(labels=st.dictionaries(_KEY, _NAME, max_size=2),
                       annotations=st.dictionaries(_KEY, _NAME, max_size=2)),
    spec=_optional(
        priorityClassName=_NAME,
        volumes=st.just([{"name": "extra", "emptyDir": {}}]),
        containers=st.just([{"name": "server", "env": [{"name": "TZ", "value": "UTC"}]},
                            {"name": "sidecar", "image": "example/sidecar:1"}]),
        affinity=st.just({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}})))
_job_template = _optional(
    metadata=_optional(labels=st.just({"team": "search"}), annotations=st.just({"example.com/note": "a"})),
    spec=_optional(
        priorityClassName=_NAME,
        volumes=st.just([{"name": "extra", "emptyDir": {}}]),
        containers=st.just([{"name": "build", "env": [{"name": "TZ", "value": "UTC"}]}])))
_queue_policy = {"maxQueueSize": st.integers(1, 1000), "defaultTimeoutMicroseconds": st.integers(1, 10**6),
                 "timeoutAction": st.just("reject")}
_queue = _optional(**_queue_policy) | st.fixed_dictionaries({"priorityLevels": st.integers(3, 5)}, optional={
    "defaultPriorityLevel": st.integers(1, 3), "priorityQueuePolicy": st.lists(
        st.fixed_dictionaries({"level": st.integers(1, 3)}, optional=_queue_policy), max_size=3,
        unique_by=lambda one: one["level"]), **_queue_policy})
_serving = _optional(resources=_resources, podTemplate=_pod_template, image=st.just("example/triton:1"), queue=_queue,
                     responseCache=st.fixed_dictionaries({"sizeMebibytes": st.integers(1, 2000)}))


@st.composite
def _placements(draw: st.DrawFn) -> Raw:
    common = draw(_optional(nodeSelector=st.dictionaries(_KEY, _NAME, max_size=2),
                            tolerations=st.lists(_toleration, max_size=2)))
    if draw(st.booleans()):
        return {"accelerator": "cpu", **common}
    if draw(st.booleans()):
        product = draw(st.sampled_from(["", *_PRODUCTS]))
        return {"accelerator": "gpu", "gpu": {"product": product, "count": draw(st.integers(1, 8))}, **common}
    product = draw(st.sampled_from(_PRODUCTS))
    profile = draw(st.sampled_from(["auto", *(profile.name for profile in mig.profiles(product))]))
    how: Raw = draw(st.sampled_from([{}, {"strategy": "single"}, {"strategy": "mixed"}, {"dra": {}}]))
    return {"accelerator": "gpu", "gpu": {"product": product}, "mig": {"profile": profile, **how}, **common}


_gateway = st.fixed_dictionaries(
    {"parentRefs": st.lists(st.fixed_dictionaries({"name": _NAME}, optional={"namespace": _NAME, "sectionName": _NAME}),
                            min_size=1, max_size=3),
     "hostnames": st.lists(st.sampled_from(["a.example", "*.models.example", "x-1.b.c"]), min_size=1, max_size=3)},
    optional={"grpcHostnames": st.lists(st.sampled_from(["grpc.example", "*.grpc.example"]), max_size=2)})


_checkpoints = st.lists(
    st.fixed_dictionaries({"name": _NAME, "uri": _uris("checkpoint")}, optional={"digest": _DIGEST}),
    max_size=3, unique_by=lambda one: str(one["name"]))
_drafts = st.lists(
    st.fixed_dictionaries({"name": _NAME, "uri": _uris("draft")}, optional={"digest": _DIGEST}),
    max_size=2, unique_by=lambda one: str(one["name"]))
_tokens = st.fixed_dictionaries({"ttftMilliseconds": st.floats(1, 1000)}, optional={
    "tpotMilliseconds": st.floats(1, 1000), "percentile": st.floats(50, 99.9)})


@st.composite
def language_models(draw: st.DrawFn) -> Raw:
    """Of task generate."""
    spec: Raw = {"task": "generate", "source": draw(st.fixed_dictionaries({"uri": _uris("model")})),
                 "accuracy": draw(st.fixed_dictionaries({"evaluation": _data("evaluation")}, optional={
                     "metric": st.just("agreement"), "maxLoss": st.floats(0.0001, 0.25)})),
                 "placement": draw(_placements())}
    return spec | draw(_optional(
        engine=_optional(contextTokens=st.integers(16, 100_000), buildBudgetSeconds=st.integers(10, 7200),
                         checkpoints=_checkpoints, drafts=_drafts, resources=_resources, podTemplate=_job_template),
        objective=_optional(tokens=_tokens),
        serving=_optional(resources=_resources, podTemplate=_pod_template, image=st.just("example/vllm:1")),
        rollout=_optional(strategy=st.sampled_from(["Canary", "BlueGreen", "Recreate"]), maxSurge=st.integers(1, 4),
                          analysis=_optional(seconds=st.integers(0, 600), maxSlowdown=st.floats(0.05, 10),
                                             minRequests=st.integers(10, 1000),
                                             compareOutputs=st.sampled_from(["auto", "always", "never"]))),
    )) | draw(st.sampled_from([
        {}, {"replicas": 3}, {"autoscaling": {"minReplicas": 0, "maxReplicas": 4, "prefer": "cost"}},
        {"autoscaling": {"maxReplicas": 2, "algorithm": "queue", "targetQueueDepth": 2.5}}]))


def valid_specs() -> st.SearchStrategy[Raw]:
    """The raw ``spec`` of an object that the apiserver and the operator take, of any task."""
    return tensor_specs() | language_models()


@st.composite
def tensor_specs(draw: st.DrawFn) -> Raw:
    """Of task infer."""
    placement = draw(_placements())
    on_cpu = placement["accelerator"] == "cpu"
    engine: Raw = draw(_optional(
        backend=st.sampled_from(["auto", "onnxruntime", "torch"] if on_cpu else ["auto", "tensorrt", "onnxruntime"]),
        maxBatchSize=st.integers(1, 128), buildBudgetSeconds=st.integers(10, 7200), queueName=_NAME,
        resources=_resources, calibration=_data("calibration"), podTemplate=_job_template))
    precisions = ["auto", "fp32", "int8"] if on_cpu else ["auto", "fp32", "tf32", "fp16", "bf16", "int8", "fp8"]
    if not on_cpu and "calibration" not in engine:
        precisions = precisions[:5]
    engine["precision"] = draw(st.sampled_from(precisions))
    spec: Raw = {
        "source": draw(st.fixed_dictionaries({"uri": _uris("model")}, optional={"digest": _DIGEST})),
        "engine": engine, "placement": placement,
    }
    spec |= draw(_optional(
        interface=_optional(inputs=_tensors | st.sampled_from(_IMAGES).map(lambda one: [one]) | st.sampled_from(_TEXTS),
                              outputs=_tensors,
                              postprocess=st.lists(_steps, max_size=2, unique_by=str)) | st.just(_PADDED),
        accuracy=_optional(metric=st.sampled_from(["cosine", "top1", "spearman", "relative-error"]),
                           maxLoss=st.floats(0.0001, 0.25), evaluation=_data("evaluation")),
        objective=_optional(latency=st.fixed_dictionaries({"milliseconds": st.floats(0.05, 1000)}),
                            throughput=st.integers(0, 10_000), minimise=st.just("cost"))
        | _SAVES_UNLESS[on_cpu or "mig" in placement],
        batching=st.sampled_from([{}, {"maxQueueDelayMicroseconds": 0}, {"preferredBatchSizes": [1]}]),
        instances=st.sampled_from([{}, {"count": 2}]),
        serving=_serving,
        rollout=_optional(strategy=st.sampled_from(["Canary", "BlueGreen", "Recreate"]), maxSurge=st.integers(1, 4),
                          gateway=_gateway),
        # A window that shows the tightest tolerance.
        quality=st.fixed_dictionaries({"window": st.just(100_000)}, optional={
            "sampleShare": st.floats(0.001, 1), "maxSamplesPerMinute": st.integers(1, 600), "rollback": st.booleans(),
            "resources": _resources}) | st.builds(
                lambda interval, times: {"window": 100_000, "capture": {
                    "maxSamples": 500, "maxMebibytes": 16, "intervalSeconds": interval,
                    "retentionSeconds": times * interval}},
                st.integers(900, 86_400), st.integers(1, 100)),
        store=st.builds(lambda uri: {"uri": uri}, st.sampled_from(["pvc://store", "pvc://store/a/b"])),
        suspend=st.booleans()))
    least = 1 if "gateway" in spec.get("rollout", {}) else 0
    spec |= draw(st.sampled_from([{}, {"replicas": 3},
                                  {"autoscaling": {"minReplicas": least, "maxReplicas": 4, "prefer": "latency"}},
                                  {"autoscaling": {"maxReplicas": 2, "source": "prometheus",
                                                   "prometheus": {"url": "http://prometheus:9090"}}}]))
    return spec
