"""Specs that keep a rule between fields by a hair, or say something in an unusual way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.corpus.case import Case, Raw

_SOURCE: Raw = {"uri": "pvc://models/a"}
_CPU: Raw = {"accelerator": "cpu"}
_H100: Raw = {"product": "NVIDIA-H100-80GB-HBM3"}


def _spec(**blocks: Any) -> Raw:
    return {"source": _SOURCE, **blocks}


def _pod(**spec: Any) -> Raw:
    return _spec(serving={"podTemplate": {"spec": spec}})


def _scaled(**scaling: Any) -> Raw:
    return _spec(autoscaling={"maxReplicas": 2, **scaling})


def _scheduled(**schedule: Any) -> Raw:
    return _scaled(schedules=[{"name": "a", "start": "0 8 * * *", "end": "0 9 * * *", "minReplicas": 1, **schedule}])


def _gateway(*hostnames: str, grpc: tuple[str, ...] = ()) -> Raw:
    return _spec(rollout={"gateway": {"parentRefs": [{"name": "a.b-c"}], "hostnames": list(hostnames),
                                      "grpcHostnames": list(grpc)}})


def _image(**changed: Any) -> Raw:
    return _spec(interface={"inputs": [{"name": "x", "dtype": "uint8", "shape": [3, 3], "normalise": {}, **changed}]})


def _odd() -> Iterator[tuple[str, str, Raw]]:
    yield "spec", "nothing but a source", _spec()
    yield "spec.source.uri", "a claim alone", {"source": {"uri": "pvc://m"}}
    yield "spec.source.uri", "dots that lead nowhere", {"source": {"uri": "pvc://m/a..b/.hidden/..."}}
    yield "spec.source.uri", "an IPv6 address with a port", {"source": {"uri": "https://[2001:db8::1]:8443/m.onnx"}}
    yield "spec.source.uri", "a path with .. of the web", {"source": {"uri": "https://host.example/a/../b"}}
    yield "spec.source.uri", "a branch with a slash", {"source": {"uri": "hf://org/Name.v1_2@refs%2Fpr%2F1/onnx/m.onnx"}}
    yield "spec.source.uri", "a registry on localhost", {"source": {"uri": "oci://localhost/net:latest"}}
    yield "spec.task", "a language model that writes the defaults", _spec(
        task="generate", source={"uri": "pvc://m", "format": "auto"}, interface=None,
        batching={"preferredBatchSizes": []},
        engine={"backend": "auto", "precision": "auto", "maxBatchSize": 32, "stopWhen": "budgetSpent",
                "fallback": "none", "profile": False}, objective={"throughput": 0, "minimise": "cost"}, quality=None,
        accuracy={"metric": "cosine", "groupBy": "", "evaluation": {"uri": "pvc://m/e"}},
        rollout={"steps": [], "analysis": {"seconds": 0, "compareOutputs": "never", "mirror": False},
                 "gateway": {"parentRefs": [{"name": "a"}], "hostnames": ["a.example"], "grpcHostnames": []}})
    yield "spec.autoscaling", "as many as few", _scaled(minReplicas=2)
    yield "spec.autoscaling.minReplicas", "none, by the replicas' own word", _scaled(minReplicas=0, source="direct")
    yield "spec.replicas", "none", _spec(replicas=0)
    yield "spec.accuracy.maxLoss", "the most that a cosine may lose", _spec(accuracy={"maxLoss": 0.25})
    yield "spec.accuracy.maxLoss", "the most that a relative error may be", _spec(
        accuracy={"metric": "relative-error", "maxLoss": 0.5})
    yield "spec.accuracy.maxLoss", "a whole number of the least size", _spec(accuracy={"maxLoss": 1e-4})
    yield "spec.accuracy.metric", "a metric of the user's", _spec(accuracy={"metric": "python:word-error_rate.v2"})
    yield "spec.accuracy.task", "nothing but a metric", _spec(
        accuracy={"evaluation": {"uri": "pvc://m/e"}, "task": {"metric": "wer"}})
    yield "spec.accuracy.groupBy", "the labels themselves", _spec(
        accuracy={"evaluation": {"uri": "pvc://m/e"}, "task": {"metric": "accuracy"}, "groupBy": "label"})
    yield "spec.accuracy.groupBy", "empty, without data", _spec(accuracy={"groupBy": ""})
    yield "spec.engine.calibration", "beside the evaluation data", _spec(
        engine={"precision": "int8", "calibration": {"uri": "pvc://m/e1"}}, accuracy={"evaluation": {"uri": "pvc://m/e"}})
    yield "spec.engine.precision", "int8 of a CPU without calibration", _spec(
        placement=_CPU, engine={"precision": "int8"})
    yield "spec.engine.stopWhen", "an objective that is met", _spec(
        engine={"stopWhen": "objectiveMet"}, objective={"latency": {"milliseconds": 0.05}})
    yield "spec.engine.stopWhen", "tokens that come in time", _spec(
        task="generate", engine={"stopWhen": "objectiveMet"}, objective={"tokens": {"ttftMilliseconds": 500}},
        accuracy={"evaluation": {"uri": "pvc://m/e"}})
    yield "spec.objective.minimise", "energy of whole GPUs", _spec(
        objective={"minimise": "energy", "latency": {"milliseconds": 600_000}})
    yield "spec.batching.preferredBatchSizes", "the largest batch", _spec(
        engine={"maxBatchSize": 1}, batching={"preferredBatchSizes": [1, 1, 1]})
    yield "spec.placement.mig", "auto of a known GPU", _spec(placement={"gpu": _H100, "mig": {}})
    yield "spec.placement.mig", "of an unknown GPU", _spec(
        placement={"gpu": {"product": "X"}, "mig": {"profile": "1g.5gb"}})
    yield "spec.placement.mig", "of any GPU", _spec(placement={"mig": {"profile": "1g.5gb+me"}})
    yield "spec.placement.tolerations", "all taints", _spec(placement={"tolerations": [{"operator": "Exists"}]})
    yield "spec.placement.classes", "eight", _spec(placement={"classes": [{"name": f"c{n}"} for n in range(8)]})
    yield "spec.placement.classes", "of one device, on spot nodes and not", _spec(placement={"classes": [
        {"name": "spot", "gpu": _H100, "spot": {"replicas": "Require"}}, {"name": "firm", "gpu": _H100}]})
    yield "spec.placement.classes", "CPUs alone", _spec(
        engine={"precision": "int8"}, placement={"classes": [{"name": "a", **_CPU}, {"name": "b", **_CPU}]})
    yield "spec.rollout.maxSurge", "none, one after the other", _spec(rollout={"strategy": "Recreate", "maxSurge": 0})
    yield "spec.rollout.maxSurge", "none, shared", _spec(rollout={"strategy": "Canary", "maxSurge": 0})
    yield "spec.rollout.steps", "no steps of another strategy", _spec(rollout={"strategy": "BlueGreen", "steps": []})
    yield "spec.rollout.steps", "one after the other", _spec(rollout={"steps": [{"weight": n} for n in range(81, 101)]})
    yield "spec.rollout.analysis.mirror", "with its monitor", _spec(
        rollout={"analysis": {"mirror": True}}, quality={"window": 1376})
    yield "spec.rollout.gateway.hostnames", "beside a name that only ends alike", _gateway(
        "a.example", grpc=("ba.example", "*.a.example"))
    yield "spec.rollout.gateway.hostnames", "a wildcard beside its own top", _gateway(
        "*.a.example", grpc=("a.example",))
    yield "spec.autoscaling.schedules", "over midnight", _scheduled(start="0 22 * * *", end="0 6 * * *")
    yield "spec.autoscaling.schedules", "names of days and months", _scheduled(start="*/30 8 * MAR-APR THU,FRI")
    yield "spec.autoscaling.schedules", "a leap day", _scheduled(start="0 0 29 2 *")
    yield "spec.autoscaling.schedules", "a zone of three parts", _scheduled(timeZone="America/Argentina/Ushuaia")
    yield "spec.autoscaling.schedules", "the least and the most alike", _scheduled(minReplicas=2, maxReplicas=2)
    yield "spec.autoscaling.prometheus.labels", "a brace in a value", _scaled(
        source="prometheus", prometheus={"url": "https://[::1]:9090/a/b", "labels": 'a="}",b!~"c|d"'})
    yield "spec.interface.inputs", "as many means as channels", _image(normalise={"mean": [0.1, 0.2, 0.3]})
    yield "spec.interface.inputs", "one mean for free channels", _image(shape=["n", "c"], normalise={"mean": [0.1]})
    yield "spec.interface.outputs", "one name on both sides", _spec(interface={
        "inputs": [{"name": "x", "dtype": "int8"}], "outputs": [{"name": "x", "dtype": "int8"}]})
    yield "spec.interface.outputs", "a range of one", _spec(interface={
        "outputs": [{"name": "x", "dtype": "bool", "shape": ["7..7"]}]})
    yield "spec.serving.resources", "the limit asked for, in other words", _spec(serving={"resources": {
        "requests": {"memory": "1024Mi", "cpu": "2000m"}, "limits": {"memory": "1Gi", "cpu": 2}}})
    yield "spec.serving.resources", "exponents and halves", _spec(serving={"resources": {
        "requests": {"memory": "1e9", "cpu": ".5"}}})
    yield "spec.quality.resources", "the least memory of a monitor", _spec(
        quality={"resources": {"limits": {"memory": "256Mi"}}})
    yield "spec.store.uri", "a bucket with an identity and a Secret", _spec(store={
        "uri": "gs://engines_eu/a", "secretRef": {"name": "a"}, "serviceAccountName": "b"})
    yield "spec.source.signature", "in a bucket", {"source": {"uri": "s3://models/a", "signature": {
        "secretKeyRef": {"name": "k", "key": "a.pub"}, "path": "b/..c/model.sig"}}}
    yield "spec.serving.podTemplate", "certificates of the company", _pod(
        volumes=[{"name": "ca", "configMap": {"name": "ca"}}],
        containers=[{"name": "server", "volumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/certs/company"}]}])
    yield "spec.serving.podTemplate", "a sidecar with nothing but an image", _pod(
        containers=[{"name": "mine", "image": "a@sha256:" + "0" * 64}])
    yield "spec.serving.podTemplate", "affinity to no pod", _pod(affinity={"podAffinity": {}}, priorityClassName="a")


ODD: tuple[Case, ...] = tuple(Case(field=field, what=what, spec=spec) for field, what, spec in _odd())
