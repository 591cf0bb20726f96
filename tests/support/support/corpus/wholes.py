"""Good specs that together have every field of the CRD."""

from __future__ import annotations

from typing import Any

from support.corpus.case import Raw

_DIGEST = "sha256:" + "a" * 64
_RESOURCES: Raw = {"requests": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
                   "limits": {"cpu": 4, "memory": "8Gi", "ephemeral-storage": "20Gi"}}
_METADATA: Raw = {"labels": {"example.com/team": "search"}, "annotations": {"example.com/note": "a note"}}
_TOLERATION: Raw = {"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 30}
_POLICIES: list[Raw] = [{"type": "Percent", "value": 100, "periodSeconds": 60}]


def _pods(container: str) -> Raw:
    return {"metadata": _METADATA, "spec": {
        "priorityClassName": "high", "volumes": [{"name": "mine", "emptyDir": {}}],
        "containers": [{"name": container, "env": [{"name": "TZ", "value": "UTC"}]}]}}


def _tensor(name: str, **more: Any) -> Raw:
    return {"name": name, "dtype": "uint8", "shape": ["batch", 3, 224, "1..512"], **more}


GPU: Raw = {
    "source": {"uri": "pvc://models/net", "format": "onnx", "digest": _DIGEST, "secretRef": {"name": "reader"},
               "serviceAccountName": "builder",
               "signature": {"method": "key", "configMapKeyRef": {"name": "keys", "key": "a.pub"}, "path": "net.sig"}},
    "interface": {"inputs": [_tensor("image", normalise={"scale": 0.5, "mean": [0.5, 0.4, 0.3], "std": [0.2],
                                                         "channels": "first"})],
                  "outputs": [_tensor("scores")],
                  "postprocess": [{"output": "scores", "function": "meanPooling", "mask": "mask"}]},
    "engine": {"backend": "tensorrt", "precision": "int8", "maxBatchSize": 64, "buildBudgetSeconds": 600,
               "stopWhen": "objectiveMet", "fallback": "source", "profile": True, "queueName": "team-a",
               "calibration": {"uri": "pvc://models/calibration.npz", "samples": 500, "digest": "sha256:" + "b" * 64},
               "resources": _RESOURCES, "podTemplate": _pods("build")},
    "accuracy": {"metric": "cosine", "maxLoss": 0.02, "groupBy": "country",
                 "task": {"metric": "f1-macro", "labels": "label", "maxLoss": 0.02, "output": "scores",
                          "threshold": 0.4},
                 "evaluation": {"uri": "pvc://models/evaluation.npz", "samples": 1000, "digest": _DIGEST}},
    "objective": {"latency": {"percentile": 95, "milliseconds": 20.5}, "throughput": 100, "minimise": "energy"},
    "batching": {"preferredBatchSizes": [8, 16], "maxQueueDelayMicroseconds": 500},
    "instances": {"count": 2},
    "placement": {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3", "count": 2},
                  "nodeSelector": {"pool": "inference"}, "tolerations": [_TOLERATION],
                  "spot": {"builds": "Prefer", "replicas": "Require"}},
    "serving": {"image": "registry.example/triton:1", "resources": _RESOURCES, "podTemplate": _pods("server"),
                "responseCache": {"sizeMebibytes": 256},
                "queue": {"maxQueueSize": 200_000, "defaultTimeoutMicroseconds": 20_000_000,
                          "timeoutAction": "continue", "allowTimeoutOverride": True,
                          "priorityLevels": 3, "defaultPriorityLevel": 2,
                          "priorityQueuePolicy": [
                              {"level": 3, "maxQueueSize": 150_000, "defaultTimeoutMicroseconds": 15_000_000,
                               "timeoutAction": "reject", "allowTimeoutOverride": False}]}},
    "rollout": {"strategy": "Canary", "maxSurge": 2, "steps": [{"weight": 10, "analysisSeconds": 30}, {"weight": 50}],
                "analysis": {"seconds": 120, "maxSlowdown": 0.5, "minRequests": 100, "compareOutputs": "always",
                             "mirror": True},
                "gateway": {"parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
                            "hostnames": ["models.example"], "grpcHostnames": ["*.grpc.example"]},
                "scaleDownDelaySeconds": 60, "autoPromote": False, "requireObjective": True,
                "requireThroughput": True},
    "autoscaling": {"minReplicas": 1, "maxReplicas": 1000, "targetQueueDepth": 2.5, "scaleToZeroAfterSeconds": 60,
                    "holdSeconds": 30, "tolerance": 0.2,
                    "behavior": {"scaleUp": {"policies": _POLICIES, "stabilizationWindowSeconds": 10},
                                 "scaleDown": {"policies": _POLICIES, "stabilizationWindowSeconds": 600}},
                    "costCeilingPerHour": 30.5,
                    "schedules": [{"name": "office", "timeZone": "Europe/Berlin", "start": "0 8 * * 1-5",
                                   "end": "0 18 * * 1-5", "minReplicas": 1, "maxReplicas": 1000}],
                    "algorithm": "measured", "prefer": "balanced", "source": "direct"},
    "quality": {"sampleShare": 0.05, "maxSamplesPerMinute": 30, "window": 5000, "resources": _RESOURCES,
                "rollback": True},
    "revisionHistoryLimit": 10,
    "store": {"uri": "s3://engines/team-a", "secretRef": {"name": "writer"}, "serviceAccountName": "builder"},
    "suspend": False,
}

SLICE: Raw = {
    "source": {"uri": "s3://models/net", "signature": {"method": "certificate", "secretKeyRef": {
        "name": "authorities", "key": "ca.pem"}}},
    "interface": {"inputs": [_tensor("photo", shape=["batch", 3, "224..1024", "224..1024"], normalise={}, preprocess={
        "fromSource": False, "size": {"height": 256, "width": 240}, "resample": "bicubic",
        "cropSize": {"height": 224, "width": 200}})],
                  "postprocess": [{"output": "scores", "function": "topK", "k": 5}]},
    "placement": {"gpu": {"product": "NVIDIA-H100-80GB-HBM3"},
                  "mig": {"profile": "1g.10gb", "strategy": "single", "dra": {"deviceClassName": "mig.nvidia.com"}}},
    "replicas": 3,
    "quality": {"capture": {"maxSamples": 500, "maxMebibytes": 32, "intervalSeconds": 3600,
                            "retentionSeconds": 86_400}},
}

PROMETHEUS: Raw = {
    "source": {"uri": "hf://org/name@main"}, "placement": {"accelerator": "cpu"},
    "interface": {"inputs": [_tensor("photo", shape=["batch", 3, "224..1024", "224..1024"], normalise={}, preprocess={
        "size": {"shortestEdge": 256}, "cropSize": {"height": 224, "width": 200}})],
                  "postprocess": [{"output": "scores", "function": "argMax", "axis": 1}]},
    "accuracy": {"evaluation": {"uri": "pvc://models/evaluation.jsonl"},
                 "task": {"metric": "ndcg", "queries": "query"}},
    "autoscaling": {"maxReplicas": 2, "source": "prometheus",
                    "prometheus": {"url": "http://prometheus.monitoring:9090", "labels": 'cluster="eu-1"'}},
}

FLEET: Raw = {
    "source": {"uri": "oci://registry.example/net:1"},
    "interface": {"padding": {"mask": "kept", "values": [{"input": "ids", "value": 1.5}]}},
    "autoscaling": {"minReplicas": 1, "maxReplicas": 1000},
    "placement": {"classes": [
        {"name": "a", "accelerator": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3", "count": 1},
         "mig": {"profile": "auto", "strategy": "mixed", "dra": {"deviceClassName": "mig.nvidia.com"}},
         "nodeSelector": {"pool": "a"}, "tolerations": [_TOLERATION],
         "spot": {"builds": "Require", "replicas": "Prefer"}, "minReplicas": 1, "maxReplicas": 1000},
        {"name": "b", "accelerator": "gpu", "minReplicas": 2},
    ]},
}

LANGUAGE: Raw = {
    "source": {"uri": "hf://org/name@main"}, "task": "generate",
    "engine": {"contextTokens": 4096, "checkpoints": [
        {"name": "awq", "uri": "pvc://models/awq", "digest": _DIGEST}],
        "drafts": [{"name": "small", "uri": "pvc://models/small", "digest": _DIGEST}]},
    "accuracy": {"metric": "agreement", "evaluation": {"uri": "pvc://models/prompts.jsonl"}},
    "objective": {"tokens": {"percentile": 95, "ttftMilliseconds": 500, "tpotMilliseconds": 50.5}},
    "quality": {"sampleShare": 0.02, "rollback": True},
    "rollout": {"strategy": "Recreate"}, "autoscaling": {"minReplicas": 0, "maxReplicas": 3, "holdSeconds": 600},
}

BATCH: Raw = {
    "source": {"uri": "hf://org/name@main"},
    "interface": {"postprocess": [{"output": "logits", "function": "objectDetection", "k": 50, "detection": {
        "fromSource": False, "boxes": "corners", "boxFormat": "xyxy", "boxUnit": "pixels", "scoring": "sigmoid",
        "background": "first", "threshold": 0.05, "nmsThreshold": 0.5, "targetSizes": "photo"}}]},
    "placement": {"spot": {"builds": "Prefer", "replicas": "Require"}},
    "batch": {"input": {"uri": "pvc://data/rows.npz"}, "output": {"uri": "pvc://data/answers"}, "shards": 100,
              "parallelism": 8},
}

SEQUENCES: Raw = {
    "source": {"uri": "pvc://models/lstm.onnx", "format": "onnx"}, "engine": {"backend": "onnxruntime"},
    "interface": {"inputs": [{"name": "sr", "dtype": "int64", "value": [16000]}],
                  "sequenceBatching": {"state": [{"inputName": "h", "outputName": "hn", "dataFile": "h.npy"}],
                                       "maxSequenceIdleMicroseconds": 5_000_000, "maxCandidateSequences": 64}},
}

PYTHON: Raw = {
    "source": {"uri": "pvc://models/tagger"},
    "interface": {"inputs": [{"name": "text", "dtype": "string", "shape": ["batch", 1]}],
                  "outputs": [{"name": "label", "dtype": "string", "shape": ["batch", 1]}],
                  "pythonSteps": {"preprocess": "steps.py:tokens", "postprocess": "steps.py:labels",
                                  "files": ["spiece.model"]}},
}

WHOLES = (GPU, SLICE, PROMETHEUS, FLEET, LANGUAGE, BATCH, SEQUENCES, PYTHON)
