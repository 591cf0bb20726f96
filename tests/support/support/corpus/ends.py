"""Which values at an end of what a field takes a rule refuses all the same, in the spec that ``wholes`` has for it."""

from __future__ import annotations

from collections.abc import Mapping

# By field: how the value is called in ``Case.what``.
BY_APISERVER: Mapping[str, tuple[str, ...]] = {
    "spec.task": ('"infer"', "its default", "null"),
    "spec.objective.tokens": ("empty",),
    "spec.source.signature": ("empty",),
    "spec.source.signature.configMapKeyRef": ("null",),
    "spec.source.signature.secretKeyRef": ("null",),
    "spec.interface.inputs[0].dtype": (
        '"bool"', '"uint16"', '"uint32"', '"uint64"', '"int8"', '"int16"', '"int32"', '"int64"', '"float16"',
        '"float32"', '"float64"', '"string"'),
    "spec.interface.inputs[0].shape": ("empty", "null"),
    "spec.interface.postprocess[0].function": ('"softmax"', '"sigmoid"', '"l2Normalise"', '"argMax"', '"topK"',
                                                  '"objectDetection"'),
    "spec.interface.postprocess[0].detection.fromSource": ("true",),
    "spec.interface.postprocess[0].detection.threshold": ("the least", "null"),
    "spec.interface.inputs[0].preprocess": ("empty",),
    "spec.interface.inputs[0].preprocess.fromSource": ("true",),
    "spec.interface.inputs[0].preprocess.size": ("empty", "null"),
    **{f"spec.interface.inputs[0].preprocess.size.{side}": ("the least", "null") for side in ("height", "width")},
    "spec.interface.inputs[0].preprocess.size.shortestEdge": ("the least",),
    **{f"spec.interface.inputs[0].preprocess.cropSize.{side}": ("the most",) for side in ("height", "width")},
    "spec.interface.pythonSteps": ("empty",),
    "spec.engine.precision": ('"int8-weight-only"',),
    "spec.engine.maxBatchSize": ("the least",),
    "spec.engine.calibration": ("null",),
    "spec.accuracy.evaluation": ("null",),
    "spec.accuracy.task.metric": ('"top5"', '"ndcg"', '"wer"', '"mae"', '"rmse"', '"map"', '"map50"'),
    "spec.objective": ("empty", "its default", "null"),
    "spec.objective.latency": ("null",),
    "spec.batching.preferredBatchSizes[0]": ("the most",),
    "spec.placement.accelerator": ('"cpu"',),
    "spec.placement.classes[0].accelerator": ('"cpu"',),
    "spec.placement.classes[0].gpu": ("empty", "null"),
    "spec.placement.classes[0].gpu.product": ("null",),
    "spec.placement.classes[0].gpu.count": ("the most",),
    **{f"spec.{block}.tolerations[0].effect": ('""', '"NoSchedule"', '"PreferNoSchedule"', "null")
       for block in ("placement", "placement.classes[0]")},
    "spec.serving.queue.priorityLevels": ("null",),
    "spec.serving.queue.defaultPriorityLevel": ("the most",),
    "spec.rollout.strategy": ('"BlueGreen"', '"Recreate"'),
    "spec.autoscaling.minReplicas": ("the least",),
    "spec.autoscaling.source": ('"prometheus"',),
    "spec.autoscaling.prometheus": ("null",),
    "spec.quality": ("null",),
    "spec.quality.capture.intervalSeconds": ("the most",),
    "spec.quality.capture.retentionSeconds": ("its default", "the least", "the most", "null"),
}
BY_OPERATOR: Mapping[str, tuple[str, ...]] = {
    "spec.source.serviceAccountName": ("253 characters",),
    "spec.interface.inputs[0].shape": ("8 items",),
    "spec.interface.inputs[0].normalise.mean": ("64 items",),
    "spec.interface.inputs[0].normalise.std": ("64 items",),
    "spec.interface.inputs[0].normalise.channels": ('"last"',),
    "spec.interface.padding.values": ("32 items",),
    "spec.interface.sequenceBatching.state": ("32 items",),
    **{f"spec.{block}.resources.limits.{name}": ('"1"', "1")
       for block in ("engine", "serving", "quality") for name in ("memory", "ephemeral-storage")},
    "spec.accuracy.maxLoss": ("the least", "in between", "the most"),
    "spec.objective.latency.milliseconds": ("the least",),
    **{f"spec.{block}.tolerations[0]": ("empty",) for block in ("placement", "placement.classes[0]")},
    **{f"spec.{block}.tolerations[0].key": ("empty", "null") for block in ("placement", "placement.classes[0]")},
    **{f"spec.{block}.tolerations[0].operator": ('"Exists"',) for block in ("placement", "placement.classes[0]")},
    "spec.placement.classes[0].gpu.product": ("empty",),
    "spec.serving.queue.maxQueueSize": ("the least",),
    "spec.serving.responseCache.sizeMebibytes": ("the most",),
    "spec.serving.queue.defaultTimeoutMicroseconds": ("the least", "null"),
    "spec.serving.queue.priorityLevels": ("the least",),
    "spec.serving.queue.priorityQueuePolicy": ("32 items",),
    **{f"spec.serving.queue.priorityQueuePolicy[0].{name}": ("the least",)
       for name in ("maxQueueSize", "defaultTimeoutMicroseconds")},
    "spec.serving.queue.priorityQueuePolicy[0].level": ("the most",),
    "spec.rollout.steps[0].weight": ("the most",),
    "spec.autoscaling.schedules[0].timeZone": ("64 characters",),
    "spec.autoscaling.schedules[0].start": ("100 characters",),
    "spec.autoscaling.schedules[0].end": ("100 characters",),
    "spec.quality.window": ("the least",),
    "spec.store.uri": ("its default", "null"),
    "spec.store.serviceAccountName": ("253 characters",),
}


def by_rule(field: str, what: str) -> str:
    """``apiserver`` or ``operator``, the first that refuses it; empty where nobody does."""
    if what in BY_APISERVER.get(field, ()):
        return "apiserver"
    return "operator" if what in BY_OPERATOR.get(field, ()) else ""
