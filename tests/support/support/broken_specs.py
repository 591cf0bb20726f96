"""Specs of which every field is good and one rule between fields is broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SOURCE: dict[str, Any] = {"source": {"uri": "pvc://models/a"}}
CPU = {"accelerator": "cpu"}
H100 = "NVIDIA-H100-80GB-HBM3"
_SAVES = {"objective": {"minimise": "energy", "latency": {"milliseconds": 20}}}
MINE = [{"name": "mine", "emptyDir": {}}]


@dataclass(frozen=True)
class Broken:
    """``field``, ``value`` and ``remedy`` are what the operator says; ``cel`` a part of what the apiserver says, empty
    when it does not know the rule."""

    name: str
    spec: dict[str, Any]
    field: str
    value: str
    remedy: str
    cel: str = ""


def _fleet(*classes: dict[str, Any], placement: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Of a CPU and a GPU class, or ``classes``."""
    two = [{"name": "cpu", **CPU}, {"name": "h100", "gpu": {"product": H100}}]
    return {**SOURCE, **spec, "placement": {**(placement or {}), "classes": list(classes) or two}}


def _pod(**spec: Any) -> dict[str, Any]:
    return {**SOURCE, "serving": {"podTemplate": {"spec": spec}}}


def _queue(**policy: Any) -> dict[str, Any]:
    return {**SOURCE, "serving": {"queue": policy}}


def _job(**spec: Any) -> dict[str, Any]:
    return {**SOURCE, "engine": {"podTemplate": {"spec": spec}}}


def _labelled(**task: Any) -> dict[str, Any]:
    return {**SOURCE, "accuracy": {"evaluation": {"uri": "pvc://models/evaluation.jsonl"}, "task": task}}


def _language(**changed: Any) -> dict[str, Any]:
    return {**SOURCE, "task": "generate", "accuracy": {"evaluation": {"uri": "pvc://models/prompts.jsonl"}}, **changed}


def _listing(*checkpoints: dict[str, Any]) -> dict[str, Any]:
    return _language(engine={"checkpoints": list(checkpoints)})


def _drafting(*drafts: dict[str, Any]) -> dict[str, Any]:
    return _language(engine={"drafts": list(drafts)})


def _prompted(**accuracy: Any) -> dict[str, Any]:
    return _language(accuracy={"evaluation": {"uri": "pvc://models/prompts.jsonl"}, **accuracy})


def _resized(**changed: Any) -> dict[str, Any]:
    given = {"name": "image", "dtype": "uint8", "shape": ["batch", "8..90", "8..90", 3],
             "normalise": {"channels": "last"}, "preprocess": {"size": {"height": 8, "width": 8}}, **changed}
    return {**SOURCE, "interface": {"inputs": [{name: value for name, value in given.items() if value is not None}]}}


def _picked(*steps: dict[str, Any], classes: list[int] | None = None) -> dict[str, Any]:
    """Of the output ``logits``, whose shape behind the batch may be stated."""
    stated = {"outputs": [{"name": "logits", "dtype": "float32", "shape": ["batch", *classes]}]} if classes else {}
    return {**SOURCE, "interface": {**stated, "postprocess": [{"output": "logits", **step} for step in steps]}}


def _boxes(**detection: Any) -> dict[str, Any]:
    return _picked({"function": "objectDetection", "detection": detection})


def _texts(*others: dict[str, Any], **changed: Any) -> dict[str, Any]:
    given = {"name": "text", "dtype": "string", "preprocess": {"fromSource": True}, **changed}
    return {**SOURCE, "interface": {"inputs": [given, *others]}}


def _padded(**changed: Any) -> dict[str, Any]:
    inputs = [{"name": name, "dtype": "int64", "shape": ["batch", "1..512"]} for name in ("ids", "kept")]
    return {**SOURCE, "interface": {"inputs": inputs, "padding": {"mask": "kept", **changed}}}


_KEPT = [{"inputName": "h", "outputName": "hn"}]


def _stateful(*, interface: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {**SOURCE, **spec, "interface": {"sequenceBatching": {"state": _KEPT}, **(interface or {})}}


def _stated(*inputs: str, outputs: tuple[str, ...] = ("y", "hn"), state: list[dict[str, str]] | None = None
            ) -> dict[str, Any]:
    named = {side: [{"name": name, "dtype": "float32", "shape": [1, 16]} for name in names]
             for side, names in (("inputs", inputs), ("outputs", outputs))}
    return _stateful(interface={**named, "sequenceBatching": {"state": state or _KEPT}})


def _constant(*value: float, beside: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    return {**SOURCE, "interface": {"inputs": [{"name": "sr", "dtype": "int64", "value": list(value), **changed}],
                                    **(beside or {})}}


def _normalised(**changed: Any) -> dict[str, Any]:
    given = {"name": "image", "dtype": "uint8", "shape": ["batch", 3, 8, 8], "normalise": {}, **changed}
    return {**SOURCE, "interface": {"inputs": [given]}}


def _scheduled(**changed: Any) -> dict[str, Any]:
    given = {"name": "office", "start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "minReplicas": 2, **changed}
    schedule = {name: value for name, value in given.items() if value is not None}
    return {**SOURCE, "autoscaling": {"maxReplicas": 4, "schedules": [schedule]}}


# Of each field that says nothing of a task, a spec that has it.
_OF_A_TASK = (
    Broken("a language model's format", _language(source={"uri": "pvc://models/a", "format": "onnx"}),
           "spec.source.format", "onnx", "write auto", "spec.source.format onnx applies to models for tensors"),
    Broken("tensors of a language model", _language(interface={}),
           "spec.interface", "inputs", "remove it", "spec.interface describes tensors"),
    Broken("batch sizes of a language model", _language(batching={"preferredBatchSizes": [8]}),
           "spec.batching.preferredBatchSizes", "[8]", "remove it", "preferredBatchSizes applies to Triton's"),
    Broken("a queue delay of a language model", _language(batching={"maxQueueDelayMicroseconds": 0}),
           "spec.batching.maxQueueDelayMicroseconds", "0", "remove it",
           "spec.batching.maxQueueDelayMicroseconds applies to Triton's"),
    Broken("instances of a language model", _language(instances={"count": 2}),
           "spec.instances.count", "2", "remove it", "spec.instances.count applies to Triton's"),
    Broken("a language model that is calibrated", _language(engine={"calibration": {"uri": "pvc://models/c"}}),
           "spec.engine.calibration", "pvc://models/c", "remove it", "spec.engine.calibration applies to engines"),
    Broken("a backend of a language model", _language(engine={"backend": "torch"}),
           "spec.engine.backend", "torch", "write auto", "spec.engine.backend torch applies to engines"),
    Broken("a precision of a language model", _language(engine={"precision": "bf16"}),
           "spec.engine.precision", "bf16", "write auto", "spec.engine.precision bf16 applies to engines"),
    Broken("a largest batch of a language model", _language(engine={"maxBatchSize": 8}),
           "spec.engine.maxBatchSize", "8", "write 32", "spec.engine.maxBatchSize applies to Triton's batches"),
    Broken("stopWhen: objectiveMet with task: generate", _language(engine={"stopWhen": "objectiveMet"}),
           "spec.engine.stopWhen", "objectiveMet", "add spec.objective.tokens",
           "needs spec.objective.latency, or of a"),
    Broken("a language model that falls back", _language(engine={"fallback": "source"}),
           "spec.engine.fallback", "source", "write none", "spec.engine.fallback source applies to engines"),
    Broken("a language model that is profiled", _language(engine={"profile": True}),
           "spec.engine.profile", "true", "remove it", "spec.engine.profile traces the layers of engines"),
    Broken("a latency of a language model", _language(objective={"latency": {"milliseconds": 20}}),
           "spec.objective.latency", "20.0", "write spec.objective.tokens", "spec.objective.latency measures whole"),
    Broken("a throughput of a language model", _language(objective={"throughput": 7.5}),
           "spec.objective.throughput", "7.5", "remove it", "spec.objective.throughput measures whole answers"),
    Broken("a language model of the least energy", _language(objective={"minimise": "energy"}),
           "spec.objective.minimise", "energy", "write cost", "objective.minimise energy needs a latency of whole"),
    Broken("a metric of tensors of a language model", _prompted(metric="top1"),
           "spec.accuracy.metric", "top1", "write agreement", "spec.accuracy.metric top1 compares tensors"),
    Broken("labels of a language model", _prompted(task={"metric": "accuracy"}),
           "spec.accuracy.task", "accuracy", "remove it", "spec.accuracy.task needs labelled samples"),
    Broken("groups of a language model", _prompted(groupBy="country"),
           "spec.accuracy.groupBy", "country", "remove it", "spec.accuracy.groupBy country needs labelled samples"),
    Broken("a language model without prompts", _language(accuracy={}),
           "spec.accuracy.evaluation", "null", "a .jsonl of prompts", "evaluation is required with task generate"),
    Broken("a language model proven with captured tensors", _prompted(evaluation={
        "uri": "captured://net"}),
           "spec.accuracy.evaluation.uri", "captured://net", "a .jsonl of prompts",
           "evaluation names captured tensors"),
    Broken("a queue of a language model", _language(serving={"queue": {"maxQueueSize": 8}}),
           "spec.serving.queue", "8", "remove it", "spec.serving.queue applies to Triton's queue"),
    Broken("a response cache of a language model", _language(serving={"responseCache": {"sizeMebibytes": 64}}),
           "spec.serving.responseCache", "64", "remove it", "spec.serving.responseCache keeps answers in tensors"),
    Broken("a response cache that leaves no memory", {**SOURCE, "serving": {
        "responseCache": {"sizeMebibytes": 2048}, "resources": {"limits": {"memory": "2Gi"}}}},
           "spec.serving.responseCache.sizeMebibytes", "2048", "raise that by the size of the cache"),
    Broken("a language model that captures", _language(quality={"capture": {}}),
           "spec.quality.capture", "{", "remove it", "spec.quality.capture keeps tensors of live requests"),
    Broken("a fleet of a language model", _fleet(task="generate", accuracy={"evaluation": {"uri": "pvc://m/e"}}),
           "spec.placement.classes", "h100", "an object for each class", "classes does not work for language models"),
    Broken("a language model that is mirrored", _language(rollout={"analysis": {"mirror": True}}),
           "spec.rollout.analysis.mirror", "true", "remove it", "spec.rollout.analysis.mirror sends tensors on"),
    Broken("a language model that must meet a latency", _language(rollout={"requireObjective": True}),
           "spec.rollout.requireObjective", "true", "remove it", "requireObjective applies to spec.objective.latency"),
    Broken("gRPC of a language model", _language(rollout={"gateway": {
        "parentRefs": [{"name": "public"}], "hostnames": ["a.example"], "grpcHostnames": ["grpc.example"]}}),
           "spec.rollout.gateway.grpcHostnames", "grpc.example", "use hostnames", "grpcHostnames applies to gRPC"),
    Broken("an objective of no time", _language(objective={"tokens": {}}),
           "spec.objective.tokens", "{", "ttftMilliseconds, such as 500", "tokens needs a time"),
    Broken("times of tokens without a task", {**SOURCE, "objective": {"tokens": {"ttftMilliseconds": 500}}},
           "spec.objective.tokens", "500", "or task generate", "spec.objective.tokens applies to language models"),
    Broken("a context without a task", {**SOURCE, "engine": {"contextTokens": 4096}},
           "spec.engine.contextTokens", "4096", "write task generate", "contextTokens applies to language models"),
    Broken("checkpoints without a task", {**SOURCE, "engine": {"checkpoints": [
        {"name": "awq", "uri": "pvc://models/awq"}]}},
           "spec.engine.checkpoints", "awq", "write task generate", "engine.checkpoints applies to language models"),
    Broken("checkpoints of one name", _listing({"name": "awq", "uri": "pvc://models/awq"},
                                               {"name": "awq", "uri": "pvc://models/awq-2"}),
           "spec.engine.checkpoints", "awq", "its own name", "Duplicate value"),
    Broken("a checkpoint that is the source", _listing({"name": "awq", "uri": SOURCE["source"]["uri"] + "/"}),
           "spec.engine.checkpoints[0].uri", SOURCE["source"]["uri"], "other weights", ""),
    Broken("a checkpoint outside of its volume", _listing({"name": "awq", "uri": "pvc://models/../awq"}),
           "spec.engine.checkpoints[0].uri", "..", "without . and ..", ""),
    Broken("a checkpoint that cannot be signed", {
        **_listing({"name": "awq", "uri": "hf://org/awq@main"}),
        "source": {**SOURCE["source"], "signature": {"configMapKeyRef": {"name": "keys", "key": "a.pub"}}}},
           "spec.engine.checkpoints[0].uri", "hf://org/awq", "copy it and its signature", ""),
    Broken("drafts without a task", {**SOURCE, "engine": {"drafts": [{"name": "small", "uri": "pvc://models/small"}]}},
           "spec.engine.drafts", "small", "write task generate", "engine.drafts applies to language models"),
    Broken("drafts of one name", _drafting({"name": "small", "uri": "pvc://models/small"},
                                           {"name": "small", "uri": "pvc://models/small-2"}),
           "spec.engine.drafts", "small", "its own name", "Duplicate value"),
    Broken("a draft that is the source", _drafting({"name": "small", "uri": SOURCE["source"]["uri"] + "/"}),
           "spec.engine.drafts[0].uri", SOURCE["source"]["uri"], "a smaller model", ""),
    Broken("a draft outside of its volume", _drafting({"name": "small", "uri": "pvc://models/../small"}),
           "spec.engine.drafts[0].uri", "..", "without . and ..", ""),
    Broken("a draft that cannot be signed", {
        **_drafting({"name": "small", "uri": "hf://org/small@main"}),
        "source": {**SOURCE["source"], "signature": {"configMapKeyRef": {"name": "keys", "key": "a.pub"}}}},
           "spec.engine.drafts[0].uri", "hf://org/small", "copy it and its signature", ""),
    Broken("agreement of tensors", {**SOURCE, "accuracy": {"metric": "agreement"}},
           "spec.accuracy.metric", "agreement", "write cosine or another metric", "agreement compares next tokens"),
)

_OF_SEQUENCES = (
    Broken("state of a source that is not ONNX", _stateful(source={"uri": "pvc://models/a", "format": "torchscript"}),
           "spec.source.format", "torchscript", "export the model to ONNX", "source.format torchscript names a format"),
    Broken("state in TensorRT", _stateful(engine={"backend": "tensorrt"}),
           "spec.engine.backend", "tensorrt", "write auto or onnxruntime",
           "spec.engine.backend tensorrt cannot run single steps"),
    Broken("sequences of a data set", _stateful(batch={"input": {"uri": "pvc://data/rows.npz"},
                                                       "output": {"uri": "pvc://data/answers"}}),
           "spec.batch", "pvc://data/rows.npz", "remove it", "spec.batch needs rows that do not depend"),
    Broken("a queue of sequences", _stateful(serving={"queue": {"maxQueueSize": 8}}),
           "spec.serving.queue", "8", "remove it", "spec.serving.queue applies to Triton's dynamic batcher"),
    Broken("a response cache of sequences", _stateful(serving={"responseCache": {"sizeMebibytes": 64}}),
           "spec.serving.responseCache", "64", "remove it", "spec.serving.responseCache needs stateless requests"),
    Broken("a quality monitor of sequences", _stateful(quality={"window": 2000}),
           "spec.quality", "2000", "remove it", "spec.quality needs stateless requests"),
    Broken("more steps in a run than sequences",
           _stateful(interface={"sequenceBatching": {"state": _KEPT, "maxCandidateSequences": 4}},
                     batching={"preferredBatchSizes": [2, 8]}),
           "spec.batching.preferredBatchSizes", "[8]", "lower these"),
    Broken("labels of sequences", _stateful(accuracy={"evaluation": {"uri": "pvc://models/evaluation.npz"},
                                                      "task": {"metric": "accuracy"}}),
           "spec.accuracy.task", "accuracy", "remove it", "spec.accuracy.task needs a label for each answer"),
    Broken("outputs of sequences that are processed",
           _stateful(interface={"postprocess": [{"output": "y", "function": "softmax"}]}),
           "spec.interface.postprocess", "softmax", "let the source or clients",
           "spec.interface.postprocess is not done"),
    Broken("padding of sequences", _stateful(interface={"padding": {}}),
           "spec.interface.padding", "attention_mask", "remove it", "spec.interface.padding is not done for sequences"),
    Broken("sequences through a Gateway", _stateful(rollout={"gateway": {
        "parentRefs": [{"name": "public"}], "hostnames": ["models.example"]}}),
           "spec.rollout.gateway", "public", "keep a connection", "spec.rollout.gateway may send each request"),
    Broken("sequences over classes of devices",
           _stateful(placement={"classes": [{"name": "cpu", **CPU}, {"name": "h100", "gpu": {"product": H100}}]}),
           "spec.placement.classes", "cpu", "an object for each class", "spec.placement.classes is not done"),
    Broken("sequences that sleep", _stateful(autoscaling={"minReplicas": 0, "maxReplicas": 2}),
           "spec.autoscaling.minReplicas", "0", "write 1 or more", "minReplicas 0 would end sequences"),
    Broken("state that is no input", _stated("x", "state"), "spec.interface.sequenceBatching.state[0].inputName", "h",
           "write one of x, state"),
    Broken("state that is no output", _stated("x", "h", outputs=("y",)),
           "spec.interface.sequenceBatching.state[0].outputName", "hn", "write one of y"),
    Broken("one state twice", _stated("x", "h", "c", outputs=("y", "hn", "cn"),
                                         state=[*_KEPT, {"inputName": "h", "outputName": "cn"}]),
           "spec.interface.sequenceBatching.state[1].inputName", "h", "one state for each input"),
    Broken("nothing but state", _stated("h"), "spec.interface.sequenceBatching.state", "h",
           "leave out what clients send"),
    Broken("bytes beside state", _stateful(interface={"inputs": [
        {"name": "image", "dtype": "uint8", "shape": ["batch", 3, 8, 8], "normalise": {}},
        {"name": "h", "dtype": "float32", "shape": [1, 16]}]}),
           "spec.interface.inputs[0]", "image", "what the source takes"),
)

_TEXT: dict[str, Any] = {"name": "text", "dtype": "string", "shape": ["batch", 1]}


def _stepped(*inputs: dict[str, Any], quality: dict[str, Any] | None = None, padding: dict[str, Any] | None = None,
             **steps: Any) -> dict[str, Any]:
    beside = {**({} if padding is None else {"padding": padding}), **({"inputs": list(inputs)} if inputs else {})}
    return {**SOURCE, **({} if quality is None else {"quality": quality}),
            "interface": {**beside, "pythonSteps": steps}}


_OF_PYTHON_STEPS = (
    Broken("no function of one's own", _stepped(files=["vocabulary.txt"]), "spec.interface.pythonSteps",
           "vocabulary.txt", "such as steps.py:tokens", "pythonSteps names no function"),
    Broken("a function without inputs", _stepped(preprocess="steps.py:tokens"), "spec.interface.inputs", "[]",
           "list name, dtype and shape", "inputs does not say what clients send"),
    Broken("a function without outputs", _stepped(postprocess="steps.py:labels"), "spec.interface.outputs", "[]",
           "list name, dtype and shape", "outputs does not say what clients get"),
    Broken("texts that are prepared twice", _stepped({**_TEXT, "preprocess": {"fromSource": True}},
                                                     preprocess="steps.py:tokens"),
           "spec.interface.inputs[0]", "text", "let the function do that", "an input is prepared twice"),
    Broken("padding beside a function", _stepped(_TEXT, preprocess="steps.py:tokens", padding={"mask": "text"}),
           "spec.interface.padding", "text", "remove it, or pythonSteps", "padding is not done beside pythonSteps"),
    Broken("a quality monitor beside a function", _stepped(_TEXT, preprocess="steps.py:tokens",
                                                           quality={"window": 2000}),
           "spec.quality", "2000", "remove it, or pythonSteps", "spec.quality compares live answers without"),
    Broken("sequences before a function", _stateful(interface={"pythonSteps": {"preprocess": "steps.py:tokens"},
                                                               "inputs": [_TEXT]}),
           "spec.interface.pythonSteps", "steps.py:tokens", "remove it",
           "spec.interface.pythonSteps is not done for sequences"),
)

BROKEN = (
    *_OF_A_TASK, *_OF_SEQUENCES, *_OF_PYTHON_STEPS,
    Broken("replicas and autoscaling", {**SOURCE, "replicas": 2, "autoscaling": {"maxReplicas": 3}},
           "spec.replicas", "2", "remove it", "spec.replicas and spec.autoscaling exclude each other"),
    Broken("min above max", {**SOURCE, "autoscaling": {"minReplicas": 4, "maxReplicas": 2}},
           "spec.autoscaling.minReplicas", "4", "raise maxReplicas", "minReplicas is greater than maxReplicas"),
    Broken("a signature of one file that is fetched", {"source": {"uri": "https://host.example/m.onnx", "signature": {
        "configMapKeyRef": {"name": "keys", "key": "a.pub"}}}},
           "spec.source.signature", "keys", "copy the model and its signature"),
    Broken("a signature of a part of a repository", {"source": {"uri": "hf://org/name@main", "signature": {
        "configMapKeyRef": {"name": "keys", "key": "a.pub"}}}},
           "spec.source.signature", "keys", "copy the model and its signature"),
    Broken("a signature elsewhere", {"source": {"uri": "pvc://models/a", "signature": {
        "configMapKeyRef": {"name": "keys", "key": "a.pub"}, "path": "a/../../b.sig"}}},
           "spec.source.signature.path", "a/../../b.sig", "without . and .."),
    Broken("a signature without a key", {"source": {"uri": "pvc://models/a", "signature": {}}},
           "spec.source.signature", "[]", "configMapKeyRef or secretKeyRef", "needs the key from one place"),
    Broken("a signature with two keys", {"source": {"uri": "pvc://models/a", "signature": {
        "configMapKeyRef": {"name": "keys", "key": "a.pub"}, "secretKeyRef": {"name": "more", "key": "b.pub"}}}},
           "spec.source.signature", "more", "configMapKeyRef or secretKeyRef", "needs the key from one place"),
    Broken("labels without data", {**SOURCE, "accuracy": {"task": {"metric": "accuracy"}}},
           "spec.accuracy.task", "accuracy", "add spec.accuracy.evaluation.uri", "add spec.accuracy.evaluation.uri"),
    Broken("groups without data", {**SOURCE, "accuracy": {"groupBy": "country"}},
           "spec.accuracy.groupBy", "country", "add spec.accuracy.evaluation.uri", "add spec.accuracy.evaluation.uri"),
    Broken("queries of a metric that ranks nothing", _labelled(metric="accuracy", queries="query"),
           "spec.accuracy.task.queries", "query", "write metric ndcg", "write metric ndcg"),
    Broken("a threshold of a metric that has none", _labelled(metric="rmse", threshold=0.5),
           "spec.accuracy.task.threshold", "0.5", "remove it", "threshold is for metrics of classes alone"),
    Broken("labels that are queries, too", _labelled(metric="ndcg", labels="a", queries="a"),
           "spec.accuracy.task.queries", "a", "name the array or field"),
    Broken("labels that are the model's text", _labelled(metric="accuracy", labels="text"),
           "spec.accuracy.task.labels", "text", "such as label"),
    Broken("a volume with credentials", {**SOURCE, "store": {"uri": "pvc://engines", "secretRef": {"name": "a"}}},
           "spec.store.secretRef", '"a"', "s3://BUCKET/prefix"),
    Broken("a volume with an identity", {**SOURCE, "store": {"uri": "pvc://engines", "serviceAccountName": "a"}},
           "spec.store.serviceAccountName", '"a"', "s3://BUCKET/prefix"),
    Broken("a store that leaves its prefix", {**SOURCE, "store": {"uri": "s3://engines/../others"}},
           "spec.store.uri", "s3://engines/../others", "without . and .."),
    Broken("two identities for one pod", {"source": {"uri": "s3://models/a", "serviceAccountName": "reader"},
                                          "store": {"uri": "s3://engines", "serviceAccountName": "writer"}},
           "spec.store.serviceAccountName", "writer", "with the rights of both"),
    Broken("a window too short for the tolerance", {**SOURCE, "quality": {"window": 200}},
           "spec.quality.window", "200", "write at least 1376"),
    Broken("a sidecar of the monitor's name", _pod(containers=[{"name": "quality", "image": "a"}]),
           "spec.serving.podTemplate.spec.containers[0].name", "quality", "choose another"),
    Broken("a volume of the monitor's name", _pod(volumes=[{"name": "traces", "emptyDir": {}}]),
           "spec.serving.podTemplate.spec.volumes[0].name", "traces", "choose another"),
    Broken("something else where traces lie", _pod(volumes=MINE, containers=[{"name": "server", "volumeMounts": [
        {"name": "mine", "mountPath": "/traces/"}]}]),
           "spec.serving.podTemplate.spec.containers[0].volumeMounts", "/traces", "choose another"),
    Broken("a sidecar on the monitor's port",
           _pod(containers=[{"name": "mine", "image": "a", "ports": [{"containerPort": 8003}]}]),
           "spec.serving.podTemplate.spec.containers[0].ports", "8003", "choose another"),
    Broken("a monitor that asks for more than its limit", {**SOURCE, "quality": {
        "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}},
           "spec.quality.resources.requests.cpu", "2", "raise the limit"),
    Broken("less memory than any monitor needs", {**SOURCE, "quality": {"resources": {"limits": {"memory": "255Mi"}}}},
           "spec.quality.resources.limits.memory", "255Mi", "write at least 256Mi"),
    Broken("live requests that no monitor samples", {**SOURCE, "rollout": {"analysis": {"mirror": True}}},
           "spec.rollout.analysis.mirror", "true", "add spec.quality, or remove it", "whose monitor samples live"),
    Broken("captures in a bucket", {**SOURCE, "store": {"uri": "s3://engines"}, "quality": {"capture": {}}},
           "spec.quality.capture", "s3://engines", "write pvc://CLAIM into spec.store.uri",
           "needs a store on a volume"),
    Broken("captures that are kept for less than they collect", {**SOURCE, "quality": {"capture": {
        "retentionSeconds": 3600}}},
           "spec.quality.capture.retentionSeconds", "3600", "or another intervalSeconds", "100 times intervalSeconds"),
    Broken("more captures than a store is to hold", {**SOURCE, "quality": {"capture": {"intervalSeconds": 900}}},
           "spec.quality.capture.retentionSeconds", "604800", "or another intervalSeconds",
           "100 times intervalSeconds"),
    Broken("captures larger than the monitor's memory", {**SOURCE, "quality": {
        "capture": {"maxMebibytes": 64}, "resources": {"limits": {"memory": "300Mi"}}}},
           "spec.quality.capture.maxMebibytes", "64", "raise the limit"),
    Broken("labels of captured requests", {**SOURCE, "accuracy": {
        "evaluation": {"uri": "captured://net"}, "task": {"metric": "accuracy"}}},
           "spec.accuracy.task", "accuracy", "name evaluation data that have them",
           "captured requests have inputs alone"),
    Broken("groups of captured requests", {**SOURCE, "accuracy": {
        "evaluation": {"uri": "captured://net"}, "groupBy": "country"}},
           "spec.accuracy.groupBy", "country", "name evaluation data that have them",
           "captured requests have inputs alone"),
    Broken("captures for a store in a bucket", {**SOURCE, "store": {"uri": "gs://engines"}, "accuracy": {
        "evaluation": {"uri": "captured://net"}}},
           "spec.accuracy.evaluation.uri", "captured://net", "write pvc://CLAIM into spec.store.uri"),
    Broken("a fleet that goes back by itself", _fleet(quality={"rollback": True}),
           "spec.quality.rollback", "true", "set it to false"),
    Broken("prometheus without address", {**SOURCE, "autoscaling": {"maxReplicas": 2, "source": "prometheus"}},
           "spec.autoscaling.source", "prometheus", "add prometheus.url", "add prometheus.url"),
    Broken("another namespace's queue", {**SOURCE, "autoscaling": {
        "maxReplicas": 2, "source": "prometheus", "prometheus": {
            "url": "http://p:9090", "labels": 'a="b", namespace="other"'}}},
           "spec.autoscaling.prometheus.labels", "other", "labels other than", "a label that the operator sets"),
    Broken("none by what Prometheus tells", {**SOURCE, "autoscaling": {
        "minReplicas": 0, "maxReplicas": 2, "source": "prometheus", "prometheus": {"url": "http://p:9090"}}},
           "spec.autoscaling.minReplicas", "0", "set source to direct", "minReplicas 0 needs source direct"),
    Broken("a lean without an objective", {**SOURCE, "autoscaling": {
        "maxReplicas": 2, "algorithm": "queue", "prefer": "cost"}},
           "spec.autoscaling.prefer", "cost", "leave prefer out", "needs algorithm measured and source direct"),
    Broken("a lean by what Prometheus tells", {**SOURCE, "autoscaling": {
        "maxReplicas": 2, "prefer": "latency", "source": "prometheus", "prometheus": {"url": "http://p:9090"}}},
           "spec.autoscaling.prefer", "latency", "source to direct", "needs algorithm measured and source direct"),
    Broken("none behind routes", {**SOURCE, "autoscaling": {"minReplicas": 0, "maxReplicas": 2}, "rollout": {
        "gateway": {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}}},
           "spec.autoscaling.minReplicas", "0", "remove gateway", "minReplicas 0 and spec.rollout.gateway exclude"),
    Broken("a schedule that is no time", _scheduled(start="0 25 * * *"),
           "spec.autoscaling.schedules[0].start", "0 25 * * *", "minute, hour"),
    Broken("a schedule of a day that never comes", _scheduled(end="0 8 31 2 *"),
           "spec.autoscaling.schedules[0].end", "31 2", "minute, hour"),
    Broken("a schedule that ends when it starts", _scheduled(end="0 8 * * 1-5"),
           "spec.autoscaling.schedules[0].end", "0 8 * * 1-5", "write another time"),
    Broken("a schedule that ends when it starts, in other words", _scheduled(end="00 08 * * MON-FRI"),
           "spec.autoscaling.schedules[0].end", "00 08 * * MON-FRI", "write another time"),
    Broken("a schedule that starts at random", _scheduled(start="0 R(6-9) * * 1-5"),
           "spec.autoscaling.schedules[0].start", "0 R(6-9) * * 1-5", "write numbers"),
    Broken("a schedule that ends at random", _scheduled(end="0,r/5 18 * * 1-5"),
           "spec.autoscaling.schedules[0].end", "0,r/5 18 * * 1-5", "write numbers"),
    Broken("a schedule that starts at a hashed time", _scheduled(start="H H * * 1-5"),
           "spec.autoscaling.schedules[0].start", "H H * * 1-5", "write numbers"),
    Broken("two schedules of one name",
           {**SOURCE, "autoscaling": {"maxReplicas": 4, "schedules": [
               {"name": "day", "start": "0 8 * * *", "end": "0 12 * * *", "minReplicas": 2},
               {"name": "day", "start": "0 13 * * *", "end": "0 18 * * *", "minReplicas": 2}]}},
           "spec.autoscaling.schedules", "day", "its own name"),
    Broken("a schedule of no time zone", _scheduled(timeZone="Europe/Atlantis"),
           "spec.autoscaling.schedules[0].timeZone", "Europe/Atlantis", "Europe/Berlin"),
    Broken("a schedule of a folder of time zones", _scheduled(timeZone="Europe"),
           "spec.autoscaling.schedules[0].timeZone", "Europe", "Europe/Berlin"),
    Broken("a schedule with min above max", _scheduled(minReplicas=9),
           "spec.autoscaling.schedules[0].minReplicas", "9", "raise maxReplicas"),
    Broken("a schedule that limits nothing", _scheduled(minReplicas=None),
           "spec.autoscaling.schedules[0]", "office", "add minReplicas"),
    Broken("blue and green without room", {**SOURCE, "rollout": {"strategy": "BlueGreen", "maxSurge": 0}},
           "spec.rollout.maxSurge", "0", "Canary or Recreate", "which maxSurge 0 does not allow"),
    Broken("steps of a strategy that splits nothing",
           {**SOURCE, "rollout": {"strategy": "BlueGreen", "steps": [{"weight": 10}]}},
           "spec.rollout.steps", "10", "set strategy to Canary", "which only strategy Canary splits"),
    Broken("weights that do not rise", {**SOURCE, "rollout": {"steps": [{"weight": 50}, {"weight": 20}]}},
           "spec.rollout.steps", "50", "such as 10, 25, 50"),
    Broken("HTTP and gRPC at one host name", {**SOURCE, "rollout": {"gateway": {
        "parentRefs": [{"name": "public"}], "hostnames": ["a.example", "*.b.example"],
        "grpcHostnames": ["grpc.example", "x.b.example"]}}},
           "spec.rollout.gateway.grpcHostnames", "x.b.example", "a host name of its own",
           "hostnames and grpcHostnames overlap"),
    Broken("HTTP at a host name of gRPC's wildcard", {**SOURCE, "rollout": {"gateway": {
        "parentRefs": [{"name": "public"}], "hostnames": ["a.example"], "grpcHostnames": ["*.example"]}}},
           "spec.rollout.gateway.grpcHostnames", "*.example", "a host name of its own",
           "hostnames and grpcHostnames overlap"),
    Broken("tensorrt on a cpu", {**SOURCE, "placement": CPU, "engine": {"backend": "tensorrt"}},
           "spec.engine.backend", "tensorrt", "onnxruntime", "tensorrt needs a GPU"),
    Broken("fp8 on a cpu", {**SOURCE, "placement": CPU, "engine": {"precision": "fp8"}},
           "spec.engine.precision", "fp8", "fp32 or int8", "fp8 needs a GPU"),
    Broken("fp16 on a cpu", {**SOURCE, "placement": CPU, "engine": {"precision": "fp16"}},
           "spec.engine.precision", "fp16", "fp32 or int8", "fp16 needs a GPU"),
    Broken("weights alone in pytorch", {**SOURCE, "engine": {"precision": "int4-weight-only", "backend": "torch"}},
           "spec.engine.precision", "int4-weight-only", "auto or onnxruntime", "torch builds no int4-weight-only"),
    Broken("8-bit weights alone in tensorrt",
           {**SOURCE, "engine": {"precision": "int8-weight-only", "backend": "tensorrt"}},
           "spec.engine.precision", "int8-weight-only", "auto or onnxruntime", "tensorrt builds no int8-weight-only"),
    Broken("int8 uncalibrated on a gpu", {**SOURCE, "engine": {"precision": "int8"}},
           "spec.engine.precision", "int8", "spec.engine.calibration.uri", "needs spec.engine.calibration"),
    Broken("calibrated on what it is judged by",
           {**SOURCE, "engine": {"calibration": {"uri": "pvc://m/e"}}, "accuracy": {"evaluation": {"uri": "pvc://m/e"}}},
           "spec.engine.calibration.uri", "pvc://m/e", "name another set", "are the same data"),
    Broken("the same data under two names",
           {**SOURCE, "engine": {"calibration": {"uri": "pvc://m/e", "digest": "sha256:" + "a" * 64}},
            "accuracy": {"evaluation": {"uri": "pvc://m/f", "digest": "sha256:" + "a" * 64}}},
           "spec.engine.calibration.uri", "pvc://m/e", "name another set"),
    Broken("a gate that lets everything pass", {**SOURCE, "accuracy": {"metric": "cosine", "maxLoss": 0.6}},
           "spec.accuracy.maxLoss", "0.6", "at most 0.25"),
    Broken("an absurd objective", {**SOURCE, "objective": {"latency": {"milliseconds": 0.001}}},
           "spec.objective.latency.milliseconds", "0.001", "such as 20"),
    Broken("content with an objective that is not there", {**SOURCE, "engine": {"stopWhen": "objectiveMet"}},
           "spec.engine.stopWhen", "objectiveMet", "add spec.objective.latency", "needs spec.objective.latency"),
    Broken("no objective that could be required", {**SOURCE, "rollout": {"requireObjective": True}},
           "spec.rollout.requireObjective", "true", "add spec.objective.latency", "needs spec.objective.latency"),
    Broken("the least energy within no latency", {**SOURCE, "objective": {"minimise": "energy"}},
           "spec.objective.minimise", "energy", "add spec.objective.latency", "energy needs spec.objective.latency"),
    Broken("the least energy of a CPU", {**SOURCE, "placement": CPU, **_SAVES},
           "spec.objective.minimise", "energy", "write cost", "energy needs whole GPUs"),
    Broken("the least energy of a slice", {**SOURCE, "placement": {"mig": {"profile": "1g.10gb"}}, **_SAVES},
           "spec.objective.minimise", "energy", "place the model on whole GPUs", "energy needs whole GPUs"),
    Broken("the least energy of a class with a CPU", _fleet(**_SAVES),
           "spec.objective.minimise", "energy", "write cost", "energy needs whole GPUs"),
    Broken("sizes above the largest", {**SOURCE, "batching": {"preferredBatchSizes": [8, 64]}},
           "spec.batching.preferredBatchSizes", "[64]", "lower these", "must not exceed spec.engine.maxBatchSize"),
    Broken("a default level beyond the last", _queue(priorityLevels=2, defaultPriorityLevel=3),
           "spec.serving.queue.defaultPriorityLevel", "3", "from 1 to 2", "must not exceed priorityLevels"),
    Broken("a default level of none", _queue(defaultPriorityLevel=1),
           "spec.serving.queue.defaultPriorityLevel", "1", "add priorityLevels", "needs priorityLevels"),
    Broken("policies of levels of none", _queue(priorityQueuePolicy=[{"level": 1, "maxQueueSize": 4}]),
           "spec.serving.queue.priorityQueuePolicy", "[1]", "add priorityLevels", "needs priorityLevels"),
    Broken("a policy of a level beyond the last", _queue(priorityLevels=2, priorityQueuePolicy=[{"level": 3}]),
           "spec.serving.queue.priorityQueuePolicy[0].level", "3", "from 1 to 2"),
    Broken("two policies of one level", _queue(priorityLevels=2, priorityQueuePolicy=[{"level": 1}, {"level": 1}]),
           "spec.serving.queue.priorityQueuePolicy", "[1]", "one policy"),
    Broken("an action without a timeout", _queue(timeoutAction="continue"),
           "spec.serving.queue.timeoutAction", "continue", "add defaultTimeoutMicroseconds"),
    Broken("a shorter timeout than none", _queue(allowTimeoutOverride=True),
           "spec.serving.queue.allowTimeoutOverride", "true", "add defaultTimeoutMicroseconds"),
    Broken("a timeout within the queue delay",
           {**_queue(defaultTimeoutMicroseconds=500), "batching": {"maxQueueDelayMicroseconds": 500}},
           "spec.serving.queue.defaultTimeoutMicroseconds", "500", "lower the delay"),
    Broken("a queue shorter than a batch",
           {**_queue(maxQueueSize=4), "batching": {"preferredBatchSizes": [2, 8]}},
           "spec.serving.queue.maxQueueSize", "4", "lower these"),
    Broken("a queue too short to ask for a replica",
           {**_queue(maxQueueSize=4), "autoscaling": {"maxReplicas": 2, "targetQueueDepth": 4}},
           "spec.serving.queue.maxQueueSize", "4", "lower targetQueueDepth"),
    Broken("gpu on a cpu", {**SOURCE, "placement": {**CPU, "gpu": {"count": 2}}},
           "spec.placement.gpu", '"count": 2', "set accelerator to gpu", "need accelerator gpu"),
    Broken("mig on a cpu", {**SOURCE, "placement": {**CPU, "mig": {"profile": "1g.10gb"}}},
           "spec.placement.mig", "1g.10gb", "set accelerator to gpu", "need accelerator gpu"),
    Broken("many slices", {**SOURCE, "placement": {"gpu": {"count": 2}, "mig": {"profile": "1g.10gb"}}},
           "spec.placement.gpu.count", "2", "more replicas", "a replica uses one slice"),
    Broken("auto for no gpu", {**SOURCE, "placement": {"mig": {"profile": "auto"}}},
           "spec.placement.mig.profile", "auto", "spec.placement.gpu.product", "needs gpu.product"),
    Broken("auto for an unknown gpu",
           {**SOURCE, "placement": {"gpu": {"product": "Tesla-T4"}, "mig": {"profile": "auto"}}},
           "spec.placement.mig.profile", "auto", "name a profile"),
    Broken("a profile that the gpu does not have",
           {**SOURCE, "placement": {"gpu": {"product": H100}, "mig": {"profile": "1g.18gb"}}},
           "spec.placement.mig.profile", "1g.18gb", "1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"),
    Broken("toleration of a value that exists",
           {**SOURCE, "placement": {**CPU, "tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}},
           "spec.placement.tolerations[0].value", "b", "operator Equal"),
    Broken("toleration of nothing", {**SOURCE, "placement": {**CPU, "tolerations": [{"operator": "Equal"}]}},
           "spec.placement.tolerations[0].key", '""', "operator Exists"),
    Broken("a toleration for a time that evicts nothing",
           {**SOURCE, "placement": {"tolerations": [{"operator": "Exists", "tolerationSeconds": 30}]}},
           "spec.placement.tolerations[0].tolerationSeconds", "30", "write effect NoExecute",
           "tolerationSeconds is for effect NoExecute alone"),
    Broken("half a sampling rate", _constant(16000.5), "spec.interface.inputs[0].value", "16000.5",
           "write whole numbers"),
    Broken("two numbers for three places", _constant(1, 2, shape=[3]), "spec.interface.inputs[0].value", "[1.0, 2.0]",
           "one for each element"),
    Broken("a number in the place of a text", _constant(1, dtype="string"), "spec.interface.inputs[0].value", "1.0",
           "let clients send the text"),
    Broken("a value of what clients send as bytes", _constant(1, dtype="uint8", shape=["batch", 3, 8, 8], normalise={}),
           "spec.interface.inputs[0].value", "1.0", "remove it, or normalise"),
    Broken("a value of state", _constant(0, beside={"sequenceBatching": {"state": [
        {"inputName": "sr", "outputName": "hn"}]}}), "spec.interface.inputs[0].value", "0.0", "dataFile of the state"),
    Broken("a value of what a function takes", _constant(1, shape=["batch"], beside={
        "pythonSteps": {"preprocess": "steps.py:tokens"}}), "spec.interface.inputs[0].value", "1.0",
           "let the function return it"),
    Broken("floats normalised", _normalised(dtype="float32"),
           "spec.interface.inputs[0].dtype", "float32", "write uint8",
           "clients send the bytes that normalise is about"),
    Broken("normalised without channels", _normalised(shape=["batch"]), "spec.interface.inputs[0].shape", "batch",
           "such as [batch, 3, 224, 224]", "normalise needs the shape that clients send"),
    Broken("another number of channels", _normalised(normalise={"mean": [0.5, 0.5]}),
           "spec.interface.inputs[0].normalise.mean", "[0.5, 0.5]", "one for each channel"),
    Broken("another number of channels, which come last",
           _normalised(shape=["batch", 8, 8, 4], normalise={"std": [1, 1, 1], "channels": "last"}),
           "spec.interface.inputs[0].normalise.std", "[1.0, 1.0, 1.0]", "one for each channel"),
    Broken("floats resized", _resized(dtype="float32", normalise=None, preprocess={"fromSource": True}),
           "spec.interface.inputs[0].dtype", "float32", "write uint8",
           "preprocess is about images or texts"),
    Broken("no images resized", _resized(shape=["batch", 3, 8]), "spec.interface.inputs[0].shape", "batch",
           "such as [batch, 224..1024, 224..1024, 3]", "preprocess needs the shape of the images"),
    Broken("images without a bound", _resized(shape=["batch", "height", 90, 3]), "spec.interface.inputs[0].shape",
           "height", "numbers or ranges up to 4096"),
    Broken("images of more than engines count", _resized(shape=["batch", "8..5000", 90, 3]),
           "spec.interface.inputs[0].shape", "8..5000", "numbers or ranges up to 4096"),
    Broken("resized and not normalised", _resized(normalise=None), "spec.interface.inputs[0].normalise", "null",
           "write {} for numbers from 0 to 1", "preprocess needs either fromSource: true or normalise"),
    Broken("normalised twice", _resized(preprocess={"fromSource": True}), "spec.interface.inputs[0].normalise", "mean",
           "remove one of them", "preprocess needs either fromSource: true or normalise"),
    Broken("resized twice", _resized(normalise=None, preprocess={
        "fromSource": True, "size": {"height": 8, "width": 8}}),
           "spec.interface.inputs[0].preprocess.fromSource", "true", "remove fromSource",
           "fromSource takes all of it from the source"),
    Broken("resized to no size", _resized(preprocess={"resample": "bicubic"}),
           "spec.interface.inputs[0].preprocess.size", "null", "fromSource: true in its place",
           "preprocess needs size"),
    Broken("resized to half a size", _resized(preprocess={"size": {"height": 8}}),
           "spec.interface.inputs[0].preprocess.size", "height", "write height and width, or shortestEdge",
           "size says one size"),
    Broken("resized to two sizes", _resized(preprocess={
        "size": {"height": 8, "width": 8, "shortestEdge": 8}, "cropSize": {"height": 8, "width": 8}}),
           "spec.interface.inputs[0].preprocess.size", "shortestEdge", "write height and width, or shortestEdge",
           "size says one size"),
    Broken("resized by the shorter side alone", _resized(preprocess={"size": {"shortestEdge": 8}}),
           "spec.interface.inputs[0].preprocess.cropSize", "null", "add cropSize",
           "by the shorter side alone images stay of different sizes"),
    Broken("cut to more than there is", _resized(preprocess={
        "size": {"shortestEdge": 8}, "cropSize": {"height": 8, "width": 9}}),
           "spec.interface.inputs[0].preprocess.cropSize", "9", "write at most what size says",
           "cropSize is more than size leaves"),
    Broken("cut to more than the height", _resized(preprocess={
        "size": {"height": 8, "width": 9}, "cropSize": {"height": 9, "width": 9}}),
           "spec.interface.inputs[0].preprocess.cropSize", "9", "write at most what size says",
           "cropSize is more than size leaves"),
    Broken("texts that the user says how to tokenise", _texts(preprocess={"size": {"height": 8, "width": 8}}),
           "spec.interface.inputs[0].preprocess", "height", "write preprocess: {fromSource: true}",
           "only the source says how token ids are made of texts"),
    Broken("texts in three dimensions", _texts(shape=["batch", 1, 1]), "spec.interface.inputs[0].shape", "batch",
           "write [batch, 1], or [batch, 2] for pairs", "texts come one a row, or as pairs"),
    Broken("three texts a row", _texts(shape=["batch", 3]), "spec.interface.inputs[0].shape", "3",
           "write [batch, 1], or [batch, 2] for pairs"),
    Broken("texts beside token ids", _texts({"name": "input_ids", "dtype": "int64"}),
           "spec.interface.inputs", '["text", "input_ids"]', "leave it alone in the list",
           "an input of texts stands in the place of all inputs of the source"),
    Broken("a mask of what pools nothing", {**SOURCE, "interface": {"postprocess": [
        {"output": "logits", "function": "softmax", "mask": "attention_mask"}]}},
           "spec.interface.postprocess[0].mask", "attention_mask", "write function meanPooling",
           "mask is for function meanPooling alone"),
    Broken("a mask of padding that is no input", _padded(mask="mask"), "spec.interface.padding.mask", "mask",
           "write one of ids, kept"),
    Broken("padding of what is no input", _padded(values=[{"input": "x", "value": 0}]),
           "spec.interface.padding.values[0].input", "x", "write one of ids, kept"),
    Broken("padding of one input by two values", _padded(values=[{"input": "ids", "value": 0},
                                                                 {"input": "ids", "value": 1}]),
           "spec.interface.padding.values[1].input", "ids", "one value for each input"),
    Broken("a value for the mask", _padded(values=[{"input": "kept", "value": 1}]),
           "spec.interface.padding.values[0].input", "kept", "remove it"),
    Broken("a dimension of what picks nothing", {**SOURCE, "interface": {"postprocess": [
        {"output": "logits", "function": "softmax", "axis": 1}]}},
           "spec.interface.postprocess[0].axis", "1", "write function argMax", "axis is for function argMax alone"),
    Broken("a number of classes of what picks one", _picked({"function": "argMax", "k": 5}),
           "spec.interface.postprocess[0].k", "5", "write function topK", "k is for functions topK and"),
    Broken("boxes of outputs that nothing is said of", _picked({"function": "objectDetection"}),
           "spec.interface.postprocess[0].detection", "null", "such as {fromSource: true}",
           "objectDetection needs detection"),
    Broken("a detector that is a classifier", _picked({"function": "softmax", "detection": {"fromSource": True}}),
           "spec.interface.postprocess[0].detection", "true", "write function objectDetection",
           "detection is for function objectDetection alone"),
    Broken("a detector that is described twice", _boxes(fromSource=True, scoring="sigmoid"),
           "spec.interface.postprocess[0].detection.fromSource", "true", "all of detection but threshold and",
           "fromSource and other fields both say what outputs mean"),
    Broken("every box held against every other", _boxes(boxes="boxes", nmsThreshold=0.5),
           "spec.interface.postprocess[0].detection.threshold", "0.0", "such as 0.05",
           "nmsThreshold holds boxes against each other"),
    Broken("probabilities of what becomes boxes", _picked(
        {"function": "softmax"}, {"function": "objectDetection", "detection": {"fromSource": True}}),
           "spec.interface.postprocess[1].function", "objectDetection", "let detection.scoring say"),
    Broken("boxes in the size of no input", {**SOURCE, "interface": {
        "inputs": [{"name": "image", "dtype": "float32"}],
        **_boxes(fromSource=True, targetSizes="photo")["interface"]}},
           "spec.interface.postprocess[0].detection.targetSizes", "photo", "write one of image"),
    *(Broken(name, {**_boxes(fromSource=True), "accuracy": {
        "evaluation": {"uri": "pvc://models/evaluation.jsonl"}, "task": {"metric": metric, "output": output}}},
             f"spec.accuracy.task.{field}", value, remedy)
      for name, metric, output, field, value, remedy in (
          ("classes of what has boxes", "accuracy", "labels", "metric", "accuracy", "write map or map50"),
          ("boxes of what has none", "map", "pooled", "output", "pooled", "remove it"))),
    Broken("the best few, of unknown number", _picked({"function": "topK"}),
           "spec.interface.postprocess[0].k", "null", "write a number, such as 5", "topK needs k"),
    Broken("the best few along a dimension", _picked({"function": "topK", "k": 5, "axis": 1}),
           "spec.interface.postprocess[0].axis", "1", "write function argMax", "axis is for function argMax alone"),
    Broken("the best few twice", _picked({"function": "topK", "k": 5}, {"function": "topK", "k": 2}),
           "spec.interface.postprocess[0].function", "topK", "put topK last, once", "topK is the last step"),
    Broken("probabilities of the best few alone", _picked({"function": "topK", "k": 5}, {"function": "softmax"}),
           "spec.interface.postprocess[0].function", "topK", "put topK last", "topK is the last step"),
    Broken("the best few of the best", _picked({"function": "argMax"}, {"function": "topK", "k": 5}),
           "spec.interface.postprocess[1].function", "topK", "remove argMax", "topK is the last step"),
    Broken("more of the best than there are", _picked({"function": "topK", "k": 11}, classes=[10]),
           "spec.interface.postprocess[0].k", "11", "write at most 10"),
    Broken("the best few of each token", _picked({"function": "topK", "k": 5}, classes=[64, 10]),
           "spec.interface.postprocess[0].output", "logits", "a score for each class"),
    *(Broken(name, {**_picked({"function": "topK", "k": k}), "accuracy": {
        "evaluation": {"uri": "pvc://models/evaluation.jsonl"}, "task": {"metric": metric, "output": output}}},
             "spec.accuracy.task.metric", metric, remedy)
      for name, k, metric, output, remedy in (
          ("a ranking of the best few", 5, "ndcg", "logits", "leave topK out of spec.interface.postprocess"),
          ("five among the best three", 3, "top5", "logits_indices", "write k: 5 in spec.interface.postprocess"))),
    Broken("a tensor twice", {**SOURCE, "interface": {"inputs": [{"name": "x", "dtype": "int8"}] * 2}},
           "spec.interface.inputs", '["x"]', "its own name"),
    Broken("a range backwards",
           {**SOURCE, "interface": {"outputs": [{"name": "x", "dtype": "int8", "shape": ["9..1"]}]}},
           "spec.interface.outputs[0].shape", "9..1", "the smaller bound first"),
    Broken("a source outside its claim", {"source": {"uri": "pvc://models/../secrets"}},
           "spec.source.uri", "..", "without . and .."),
    Broken("a store outside its claim", {**SOURCE, "store": {"uri": "pvc://store/../a"}},
           "spec.store.uri", "..", "without . and .."),
    Broken("more asked than allowed",
           {**SOURCE, "serving": {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1G"}}}},
           "spec.serving.resources.requests.memory", "2Gi", "raise the limit"),
    Broken("a label of the operator's",
           {**SOURCE, "serving": {"podTemplate": {"metadata": {"labels": {"enginewright.io/model": "x"}}}}},
           "spec.serving.podTemplate.metadata.labels", "enginewright.io/model", "a prefix of your own"),
    Broken("a label with spaces",
           {**SOURCE, "serving": {"podTemplate": {"metadata": {"labels": {"team": "search and ads"}}}}},
           "spec.serving.podTemplate.metadata.labels.team", "search and ads", "put it into an annotation"),
    Broken("a key with spaces",
           {**SOURCE, "serving": {"podTemplate": {"metadata": {"annotations": {"the team": "x"}}}}},
           "spec.serving.podTemplate.metadata.annotations", "the team", "an optional DNS name"),
    Broken("a pod on the host's network", _pod(hostNetwork=True),
           "spec.serving.podTemplate.spec.hostNetwork", "true", "allowed are affinity"),
    Broken("nodes of a pod", _pod(nodeSelector={"pool": "a"}),
           "spec.serving.podTemplate.spec.nodeSelector", "pool", "set spec.placement.nodeSelector in its place"),
    Broken("tolerations of a pod", _pod(tolerations=[{"operator": "Exists"}]),
           "spec.serving.podTemplate.spec.tolerations", "Exists", "set spec.placement.tolerations in its place"),
    Broken("resources of the server's container", _pod(containers=[{"name": "server", "resources": {}}]),
           "spec.serving.podTemplate.spec.containers[0].resources", "{}", "set spec.serving.resources in its place"),
    Broken("volumes that are no list", _pod(volumes={}), "spec.serving.podTemplate.spec.volumes", "{}", "write a list"),
    Broken("a volume that is no object", _pod(volumes=["x"]),
           "spec.serving.podTemplate.spec.volumes[0]", '"x"', "an object"),
    Broken("a volume of the operator's", _pod(volumes=[{"name": "engine", "emptyDir": {}}]),
           "spec.serving.podTemplate.spec.volumes[0].name", "engine", "another name"),
    Broken("a volume twice", _pod(volumes=[{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]),
           "spec.serving.podTemplate.spec.volumes[1].name", "a", "its own name"),
    Broken("another command for the server", _pod(containers=[{"name": "server", "command": ["sh"]}]),
           "spec.serving.podTemplate.spec.containers[0].command", "sh", "name, env, volumeMounts"),
    Broken("another library for the server",
           _pod(containers=[{"name": "server", "env": [{"name": "LD_PRELOAD", "value": "x"}]}]),
           "spec.serving.podTemplate.spec.containers[0].env", "LD_PRELOAD", "remove it"),
    Broken("a mount over the model", _pod(volumes=MINE, containers=[{"name": "server", "volumeMounts": [
        {"name": "mine", "mountPath": "/models/"}]}]),
           "spec.serving.podTemplate.spec.containers[0].volumeMounts", "/models", "another path"),
    Broken("a container of the operator's", _pod(containers=[{"name": "verify", "image": "x"}]),
           "spec.serving.podTemplate.spec.containers[0].name", "verify", "another name"),
    Broken("a privileged sidecar",
           _pod(containers=[{"name": "a", "image": "x", "securityContext": {"privileged": True}}]),
           "spec.serving.podTemplate.spec.containers[0].securityContext", "privileged", "allowed are"),
    Broken("a sidecar without an image", _pod(containers=[{"name": "a"}]),
           "spec.serving.podTemplate.spec.containers[0].image", "null", "add it"),
    Broken("a sidecar without a name", _pod(containers=[{"image": "x"}]),
           "spec.serving.podTemplate.spec.containers[0].name", "null", "add it"),
    Broken("an environment that is no list", _pod(containers=[{"name": "server", "env": {"A": "b"}}]),
           "spec.serving.podTemplate.spec.containers[0].env", '"A"', "write a list"),
    Broken("a label of a Job that is Kubernetes' own",
           {**SOURCE, "engine": {"podTemplate": {"metadata": {"labels": {"batch.kubernetes.io/job-name": "x"}}}}},
           "spec.engine.podTemplate.metadata.labels", "batch.kubernetes.io/job-name", "a prefix of your own"),
    Broken("a queue of a Job by its label",
           {**SOURCE, "engine": {"podTemplate": {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}}},
           "spec.engine.podTemplate.metadata.labels", "kueue.x-k8s.io/queue-name", "set spec.engine.queueName"),
    Broken("nodes of a Job's pod", _job(nodeSelector={"pool": "a"}),
           "spec.engine.podTemplate.spec.nodeSelector", "pool", "set spec.placement.nodeSelector in its place"),
    Broken("spread of a Job's one pod", _job(topologySpreadConstraints=[]),
           "spec.engine.podTemplate.spec.topologySpreadConstraints", "[]", "allowed are affinity, containers"),
    Broken("a sidecar of a Job", _job(containers=[{"name": "mine", "image": "a"}]),
           "spec.engine.podTemplate.spec.containers[0].name", "mine", "write resolve or build"),
    Broken("resources of a Job's container", _job(containers=[{"name": "build", "resources": {}}]),
           "spec.engine.podTemplate.spec.containers[0].resources", "{}", "set spec.engine.resources in its place"),
    Broken("another library for a build",
           _job(containers=[{"name": "build", "env": [{"name": "LD_LIBRARY_PATH", "value": "x"}]}]),
           "spec.engine.podTemplate.spec.containers[0].env", "LD_LIBRARY_PATH", "remove it"),
    Broken("a volume of a Job's own", _job(volumes=[{"name": "source-1", "emptyDir": {}}]),
           "spec.engine.podTemplate.spec.volumes[0].name", "source-1", "another name"),
    Broken("a volume of one of many listed models", _job(volumes=[{"name": "source-14", "emptyDir": {}}]),
           "spec.engine.podTemplate.spec.volumes[0].name", "source-14", "another name"),
    Broken("a mount over the store", _job(volumes=MINE, containers=[{"name": "build", "volumeMounts": [
        {"name": "mine", "mountPath": "/store/"}]}]),
           "spec.engine.podTemplate.spec.containers[0].volumeMounts", "/store", "another path"),
    Broken("a class twice", _fleet({"name": "a", **CPU}, {"name": "a"}),
           "spec.placement.classes", '["a"]', "its own name", "Duplicate value"),
    Broken("classes and a GPU for all", _fleet(placement={"gpu": {"count": 2}}),
           "spec.placement.gpu", '"count": 2', "move it into the classes", "classes replace"),
    Broken("classes and slices for all", _fleet(placement={"mig": {"profile": "1g.10gb"}}),
           "spec.placement.mig", "1g.10gb", "move it into the classes", "classes replace"),
    Broken("classes and a CPU for all", _fleet(placement=CPU),
           "spec.placement.accelerator", "cpu", "move it into the classes", "classes replace"),
    Broken("a fleet of three", _fleet(replicas=3),
           "spec.replicas", "3", "set minReplicas of each class", "a fleet is not scaled through /scale"),
    Broken("a fleet that sleeps", _fleet(autoscaling={"minReplicas": 0, "maxReplicas": 3}),
           "spec.autoscaling.minReplicas", "0", "set it to 1 or more", "wake no class up"),
    Broken("most replicas of what does not scale", _fleet({"name": "a", **CPU, "maxReplicas": 3}, {"name": "b"}),
           "spec.placement.classes[0].maxReplicas", "3", "add spec.autoscaling", "no meaning without spec.autoscaling"),
    Broken("a class with min above max",
           _fleet({"name": "a", **CPU, "minReplicas": 3, "maxReplicas": 2}, {"name": "b"},
                  autoscaling={"maxReplicas": 4}),
           "spec.placement.classes[0].minReplicas", "3", "lower minReplicas", "class a: minReplicas is greater"),
    Broken("a class with less than the fewest of all", _fleet({"name": "a", **CPU, "maxReplicas": 2}, {"name": "b"},
           autoscaling={"minReplicas": 3, "maxReplicas": 4}),
           "spec.placement.classes[0].maxReplicas", "3", "raise maxReplicas"),
    Broken("a fleet that is green and blue", _fleet(rollout={"strategy": "BlueGreen"}),
           "spec.rollout.strategy", "BlueGreen", "write strategy Canary", "that cannot leave candidates out"),
    Broken("a fleet that recreates when a user says so",
           _fleet(rollout={"strategy": "Recreate", "autoPromote": False}),
           "spec.rollout.autoPromote", "false", "remove it, or write strategy Canary", "nothing is proven beside"),
    Broken("a fleet with HTTP and gRPC at one host name", _fleet(rollout={"gateway": {
        "parentRefs": [{"name": "public"}], "hostnames": ["a.example"], "grpcHostnames": ["a.example"]}}),
           "spec.rollout.gateway.grpcHostnames", "a.example", "a host name of its own",
           "hostnames and grpcHostnames overlap"),
    Broken("tensorrt on the cpu of a fleet", _fleet(engine={"backend": "tensorrt"}),
           "spec.engine.backend", "tensorrt", "remove the class", "which a class with accelerator cpu does not have"),
    Broken("fp16 on the cpu of a fleet", _fleet(engine={"precision": "fp16"}),
           "spec.engine.precision", "fp16", "remove the class", "fp16 needs a GPU, which a class"),
    Broken("int8 uncalibrated on the gpu of a fleet", _fleet(engine={"precision": "int8"}),
           "spec.engine.precision", "int8", "remove the class", "on the GPU of a class needs"),
    Broken("tensorrt on a fleet of cpus",
           _fleet({"name": "a", **CPU}, {"name": "b", **CPU}, engine={"backend": "tensorrt"}),
           "spec.engine.backend", "tensorrt", "accelerator to gpu", "which a class with accelerator cpu does not have"),
    Broken("slices of a class on a cpu", _fleet({"name": "a", **CPU, "mig": {"profile": "1g.10gb"}}, {"name": "b"}),
           "spec.placement.classes[0].mig", "1g.10gb", "set accelerator to gpu", "class a: gpu and mig need"),
    Broken("many slices of a class",
           _fleet({"name": "a", **CPU}, {"name": "b", "gpu": {"count": 2}, "mig": {"profile": "1g.10gb"}}),
           "spec.placement.classes[1].gpu.count", "2", "more replicas", "class b: with mig a replica uses one slice"),
    Broken("auto for no gpu of a class", _fleet({"name": "a", **CPU}, {"name": "b", "mig": {"profile": "auto"}}),
           "spec.placement.classes[1].mig.profile", "auto", "product", "class b: mig.profile auto needs gpu.product"),
    Broken("a profile that a class's gpu does not have",
           _fleet({"name": "a", **CPU}, {"name": "b", "gpu": {"product": H100}, "mig": {"profile": "1g.18gb"}}),
           "spec.placement.classes[1].mig.profile", "1g.18gb", "1g.10gb"),
    Broken("a class's toleration of nothing",
           _fleet({"name": "a", "tolerations": [{"operator": "Equal"}]}, {"name": "b"},
                  placement={"tolerations": [{"operator": "Exists"}]}),
           "spec.placement.classes[0].tolerations[0].key", '""', "operator Exists"),
    Broken("a class's toleration for a time that evicts nothing",
           _fleet({"name": "a", "tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 0}]},
                  {"name": "b"}),
           "spec.placement.classes[0].tolerations[0].tolerationSeconds", "0", "write effect NoExecute",
           "tolerationSeconds is for effect NoExecute alone"),
    Broken("all classes' toleration of nothing", _fleet(placement={"tolerations": [{"operator": "Equal"}]}),
           "spec.placement.tolerations[0].key", '""', "operator Exists"),
    Broken("a gate that lets everything pass in all classes", _fleet(accuracy={"maxLoss": 0.6}),
           "spec.accuracy.maxLoss", "0.6", "at most 0.25"),
)
