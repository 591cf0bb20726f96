"""What a Job is asked to do: the contract's documents, made from the spec."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from enginewright.core import labels
from enginewright.core.access import store_access
from enginewright.core.config import OperatorConfig
from enginewright.core.contract_interface import contract_interface
from enginewright.core.placement import Placement
from enginewright.core.spec import CheckpointSpec, DataSpec, Spec, TaskSpec
from enginewright.core.spec.base import in_bucket
from enginewright.core.spec.engine import TokensSpec
from enginewright.core.spec.quality_rules import is_captured
from enginewright.core.spec.queue import QueuePolicySpec, QueueSpec
from enginewright.core.spec.tasks import generates
from enginewright_builder import contract
from enginewright_builder.contract import BuildRequest, ResolvedSource, RuntimeRequest

# Where Jobs find things. Claims that are only read lie below SOURCES, each under its name.
STORE_PATH = "/store"
SOURCES_PATH = "/sources"
SIGNATURE_PATH = "/signature"
SIGNING_PATH = "/signing-keys"


def source_key(spec: Spec) -> str:
    """64 hex digits over all that a resolve step reads (URIs, formats, stated digests, sample counts, columns of the
    evaluation data) and the store that it tries: status keeps it beside what was resolved, so that a changed source is
    resolved again."""
    data = [spec.engine.calibration, spec.accuracy.evaluation]
    # An object goes on to have the key that it had before a field came that it does not use, or got its name of today.
    later = {"signature", "secret_ref", "service_account_name"}
    source = spec.source.model_dump(exclude={name for name in later if not getattr(spec.source, name)})
    if spec.source.secret_ref:
        source["credentials_from"] = source.pop("secret_ref")
    if signature := spec.source.signature:
        source["signature"] = {"method": signature.method, "path": signature.path,
                               "key_from": {"kind": signature.kind, **signature.key.model_dump()}}
    access = store_access(spec)
    task, group_by, checkpoints = spec.accuracy.task, spec.accuracy.group_by, spec.engine.checkpoints
    beside = {**({"task": task.model_dump()} if task else {}), **({"group_by": group_by} if group_by else {}),
              **({"generate": True} if generates(spec) else {}),
              **({"checkpoints": [one.model_dump() for one in checkpoints]} if checkpoints else {}),
              **({"drafts": [one.model_dump() for one in spec.engine.drafts]} if spec.engine.drafts else {})}
    read = [source, spec.store.uri, *(item.model_dump() if item else None for item in data),
            *([access] if access else []), *([beside] if beside else [])]
    return hashlib.sha256(contract.canonical(read).encode()).hexdigest()


# What only replicas depend on: no failed build is worth another try because these changed, and /scale writes them.
_REPLICAS_ALONE = {"replicas", "autoscaling", "rollout", "suspend", "serving", "revision_history_limit", "batch"}


def build_key(spec: Spec) -> str:
    """16 hex digits over all of a spec that a resolve or build Job may fail or succeed by, time and memory included:
    status keeps it beside a failure, so that a spec that might cure it is tried."""
    read = spec.model_dump(mode="json", exclude=_REPLICAS_ALONE)
    return hashlib.sha256(contract.canonical(read).encode()).hexdigest()[:16]


def resolve_request(name: str, spec: Spec, config: OperatorConfig, runtime: RuntimeRequest | None = None, *,
                    namespace: str = "") -> BuildRequest:
    """The request of a resolve Job: no device, no digests but those the user stated. ``runtime`` is None while it is
    not known: what it finds out does not depend on it. ``namespace`` is the object's, for what was captured there."""
    return replace(_request(name, spec, None, contract.DeviceRequest(), config, runtime), signature=_signature(spec),
                   captures=_captures(spec, namespace))


def build_request(name: str, spec: Spec, resolved: ResolvedSource, placement: Placement, config: OperatorConfig,
                  runtime: RuntimeRequest, *, rebuild: str = "", namespace: str = "") -> BuildRequest:
    """The request of a build Job; ``.fingerprint()`` of it is the engine's key in the store. ``runtime`` is what the
    server image has; another ``rebuild`` is another engine of the same spec."""
    return replace(_request(name, spec, resolved, placement.device, config, runtime), rebuild=rebuild,
                   signing_keys=SIGNING_PATH, captures=_captures(spec, namespace),
                   steps_socket=labels.STEPS_SOCKET if _has_steps(spec) else "")


def _has_steps(spec: Spec) -> bool:
    return spec.interface is not None and spec.interface.python_steps is not None


def reads_captures(spec: Spec) -> bool:
    """Whether any data are captured requests."""
    return is_captured(spec.accuracy.evaluation) or is_captured(spec.engine.calibration)


def captures_folder(spec: Spec, namespace: str, model: str) -> str:
    """Path of the captures of ``model`` inside the store's claim."""
    return "/".join(filter(None, (store_folder(spec), contract.CAPTURES_FOLDER, namespace, model)))


def store_claim(spec: Spec) -> str:
    """Name of the PersistentVolumeClaim of the engine store; empty where it is a bucket."""
    return claim_of(spec.store.uri) or ""


def needed_claims(spec: Spec) -> frozenset[str]:
    """Names of all PersistentVolumeClaims that the object's pods mount."""
    batch = [claim_of(uri) or "" for uri in (spec.batch.input.uri, spec.batch.output.uri)] if spec.batch else []
    return frozenset({store_claim(spec), *source_claims(spec), *batch} - {""})


def store_folder(spec: Spec) -> str:
    """Path of the store inside its claim, without leading or trailing slash; empty for the claim's root, and for a
    bucket, whose engines are put into a folder of the pod's own."""
    return folder_of(spec.store.uri)


def source_claims(spec: Spec) -> tuple[str, ...]:
    """Names of the PersistentVolumeClaims that hold the model and its data, sorted. The store's may be among them."""
    uris = [spec.source.uri, *(item.uri for item in (spec.engine.calibration, spec.accuracy.evaluation) if item),
            *(one.uri for one in (*spec.engine.checkpoints, *spec.engine.drafts))]
    return tuple(sorted({claim for uri in uris if (claim := claim_of(uri))}))


def claim_of(uri: str) -> str | None:
    """Name of the PersistentVolumeClaim that ``uri`` names; None where it names none."""
    match = re.match(r"pvc://([^/]+)", uri)
    return match[1] if match else None


def folder_of(uri: str) -> str:
    """Path inside that claim, without leading or trailing slash; empty for its root, and without a claim."""
    claim = claim_of(uri)
    return uri.removeprefix(f"pvc://{claim}").strip("/") if claim else ""


def _request(name: str, spec: Spec, resolved: ResolvedSource | None, device: contract.DeviceRequest,
             config: OperatorConfig, runtime: RuntimeRequest | None) -> BuildRequest:
    batching, latency, tokens = spec.batching, spec.objective.latency, spec.objective.tokens
    delay = batching.max_queue_delay_microseconds
    return BuildRequest(
        model_name=name,
        source=contract.SourceRequest(
            uri=spec.source.uri, format=resolved.format if resolved else spec.source.format,
            digest=resolved.digest if resolved else spec.source.digest),
        interface=contract_interface(spec.interface) if spec.interface else None,
        engine=contract.EngineRequest(
            backend=spec.engine.backend, precision=spec.engine.precision, max_batch_size=spec.engine.max_batch_size,
            build_budget_seconds=spec.budget_seconds, fallback=spec.engine.fallback, stop_when=spec.engine.stop_when,
            profile=spec.engine.profile,
            calibration=_data(spec.engine.calibration, resolved.calibration_digest if resolved else "")),
        accuracy=contract.AccuracyRequest(
            metric=contract.AGREEMENT if generates(spec) else spec.accuracy.metric,
            tolerance=float(spec.accuracy.max_loss),
            evaluation=_data(spec.accuracy.evaluation, resolved.evaluation_digest if resolved else ""),
            task=_task(spec.accuracy.task), group_by=spec.accuracy.group_by),
        objective=contract.ObjectiveRequest(
            latency_percentile=float(timed.percentile) if (timed := latency or tokens) else 99.0,
            latency_ms=float(latency.milliseconds) if latency else 0.0,
            throughput=float(spec.objective.throughput), minimise=spec.objective.minimise),
        batching=contract.BatchingRequest(
            mode="fixed" if batching.fixed else "auto",
            preferred_batch_sizes=tuple(sorted(set(batching.preferred_batch_sizes))),
            max_queue_delay_us=-1 if delay is None else delay),
        instances=contract.InstancesRequest(mode="auto" if spec.instances.count is None else "fixed",
                                            count=spec.instances.count or 0),
        device=device,
        runtime=replace(runtime or RuntimeRequest(), server_image=server_image(spec, config)),
        builder_image=config.images.builder,
        store_path="/".join(filter(None, (STORE_PATH, store_folder(spec)))),
        mounts={claim: f"{SOURCES_PATH}/{claim}" for claim in source_claims(spec)},
        keep_reference=spec.quality is not None,
        bucket=contract.BucketRequest(uri=spec.store.uri) if in_bucket(spec.store.uri) else None,
        generate=_generate(spec, resolved) if generates(spec) else None,
    )


def _generate(spec: Spec, resolved: ResolvedSource | None) -> contract.GenerateRequest:
    """What is not asked for is 0."""
    checkpoints, drafts = (resolved.checkpoint_digests, resolved.draft_digests) if resolved else ({}, {})
    tokens = spec.objective.tokens or TokensSpec()
    return contract.GenerateRequest(
        ttft_ms=float(tokens.ttft_milliseconds or 0), tpot_ms=float(tokens.tpot_milliseconds or 0),
        context_tokens=spec.engine.context_tokens or 0,
        checkpoints=_listed(spec.engine.checkpoints, checkpoints), drafts=_listed(spec.engine.drafts, drafts))


def _listed(listed: Sequence[CheckpointSpec], digests: Mapping[str, str]) -> tuple[contract.CheckpointRequest, ...]:
    """A digest that was found stands for one that is stated."""
    return tuple(contract.CheckpointRequest(name=one.name, uri=one.uri, digest=digests.get(one.name, one.digest))
                 for one in listed)


def _captures(spec: Spec, namespace: str) -> contract.CapturesRequest | None:
    if not reads_captures(spec):
        return None
    return contract.CapturesRequest(namespace=namespace, keys=labels.CAPTURE_KEYS_PATH)


def _signature(spec: Spec) -> contract.SignatureRequest | None:
    signature = spec.source.signature
    if signature is None:
        return None
    key = signature.key
    return contract.SignatureRequest(method=signature.method, path=signature.path,
                                     key_path=f"{SIGNATURE_PATH}/{key.key}",
                                     key_name=f"{signature.kind} {key.name}/{key.key}")


def queue_request(queue: QueueSpec) -> contract.QueueRequest:
    """What a replica's server is given. Where the spec names no level for requests that name none, it is the lowest."""
    levels = queue.priority_levels or 0
    return contract.QueueRequest(
        policy=_queue_policy(queue), priority_levels=levels,
        default_priority_level=queue.default_priority_level or levels,
        levels=tuple(contract.QueueLevel(level=one.level, policy=_queue_policy(one))
                     for one in queue.priority_queue_policy))


def _queue_policy(policy: QueuePolicySpec) -> contract.QueuePolicy:
    return contract.QueuePolicy(
        max_queue_size=policy.max_queue_size or 0, timeout_us=policy.default_timeout_microseconds or 0,
        timeout_action=policy.timeout_action, allow_timeout_override=policy.allow_timeout_override)


def server_image(spec: Spec, config: OperatorConfig) -> str:
    """Empty for a language model where neither object nor operator name an image; no such spec gets past
    ``read_spec``."""
    images = config.images
    return spec.serving.image or (images.server_vllm if generates(spec) else images.server)


def _data(data: DataSpec | None, digest: str) -> contract.DataRequest | None:
    return contract.DataRequest(uri=data.uri, samples=data.samples, digest=digest or data.digest) if data else None


def _task(task: TaskSpec | None) -> contract.TaskRequest | None:
    if task is None:
        return None
    return contract.TaskRequest(metric=task.metric, labels=task.labels, tolerance=float(task.max_loss),
                                output=task.output, queries=task.queries,
                                threshold=None if task.threshold is None else float(task.threshold))
