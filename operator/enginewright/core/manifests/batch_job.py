"""The Indexed Job that runs a data set through an engine: one pod a shard, made as a replica is, with the server as a
sidecar of the program that reads rows and writes answers (docs/adr/0044-offline-runs.md)."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import (
    JSON,
    Owner,
    claim_volume,
    container_security,
    metadata,
    resources,
    sealed,
    short_hash,
    spread_over_nodes,
    tmp_mount,
    tmp_volume,
)
from enginewright.core.manifests.deployment import deployment
from enginewright.core.manifests.job_defaults import with_defaults
from enginewright.core.manifests.proof import given_no_devices
from enginewright.core.manifests.server import startup_seconds
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.request import claim_of, folder_of
from enginewright.core.spec import Spec
from enginewright.core.spec.batch import BatchSpec
from enginewright_builder.contract import EXIT_USER

INPUT, INPUT_PATH = "batch-input", "/batch/input"
OUTPUT, OUTPUT_PATH = "batch-output", "/batch/output"
# What an interrupted pod needs to say so.
GRACE_SECONDS = 10
# Of a container that serves; no client sends requests to these pods. Its ports stay: a probe names one.
_OF_REPLICAS = ("lifecycle", "readinessProbe")


def batch_key(batch: BatchSpec) -> str:
    """8 hex digits over what a run is: one that is complete is never begun again. How many pods run at once is not in
    it."""
    return short_hash([batch.input.uri, batch.output.uri, batch.shards], 8)


def batch_job_name(owner_name: str, batch: BatchSpec, fingerprint: str) -> str:
    """``<om>-batch-<8 of a hash of the run and its engine>``."""
    return f"{owner_name}-batch-{short_hash([batch_key(batch), fingerprint], 8)}"


def batch_job(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig) -> JSON:
    """The Job of ``spec.batch`` with the engine of ``record``. Raises ``ValueError`` where the spec has none."""
    batch = spec.batch
    if batch is None:
        raise ValueError("the spec has no batch")
    own = {**labels.common(owner.name, labels.COMPONENT_BATCH), labels.STEP: labels.COMPONENT_BATCH,
           labels.FINGERPRINT: labels.fingerprint_label(record.fingerprint)}
    replica = deployment(owner, spec, record, placement, config)["spec"]["template"]
    given = replica["metadata"]
    # It keeps the label of its revision: by that a replica that refuses its engine is known.
    ours = {*labels.common(owner.name, ""), labels.FINGERPRINT}
    template = with_defaults({
        "metadata": {"labels": {**{key: value for key, value in given["labels"].items() if key not in ours}, **own},
                     "annotations": given["annotations"]},
        "spec": _pod(owner, batch, record, replica["spec"], config)}, config)
    template["spec"]["volumes"] = _once(template["spec"]["volumes"])
    name = batch_job_name(owner.name, batch, record.fingerprint)
    return sealed({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(owner, name, labels.COMPONENT_BATCH, extra=own, annotations={}),
        "spec": {
            "completionMode": "Indexed",
            "completions": batch.shards,
            "parallelism": min(batch.parallelism, batch.shards),
            "backoffLimitPerIndex": config.job_backoff_limit,
            "ttlSecondsAfterFinished": config.job_ttl,
            "podFailurePolicy": {"rules": [
                # Nodes may be taken back as often as they like.
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                *({"action": "FailJob", "onExitCodes": {"containerName": one, "operator": "In",
                                                        "values": [EXIT_USER]}}
                  for one in (labels.CONTAINER_BATCH, labels.CONTAINER_VERIFY)),
            ]},
            "template": template,
        },
    })


def _pod(owner: Owner, batch: BatchSpec, record: EngineRecord, replica: JSON, config: OperatorConfig) -> JSON:
    """``replica``'s pod, whose containers run as long as ours does. A server whose startup probe has not succeeded
    holds ours back: it is proven as in a replica."""
    beside = [{**{key: value for key, value in one.items() if key not in _OF_REPLICAS}, "restartPolicy": "Always"}
              for one in replica["containers"]]
    spread = spread_over_nodes({labels.MODEL: owner.name, labels.COMPONENT: labels.COMPONENT_BATCH})
    return {
        **replica,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "topologySpreadConstraints": spread,
        "initContainers": [*replica["initContainers"], *beside],
        "containers": [_runner(owner, batch, record, config)],
        "volumes": [*replica["volumes"], claim_volume(INPUT, claim_of(batch.input.uri) or ""),
                    claim_volume(OUTPUT, claim_of(batch.output.uri) or ""), tmp_volume(labels.VOLUME_BATCH_TMP)],
    }


def _runner(owner: Owner, batch: BatchSpec, record: EngineRecord, config: OperatorConfig) -> JSON:
    runner: JSON = {
        "name": labels.CONTAINER_BATCH,
        "image": config.images.builder,
        "imagePullPolicy": config.pull_policy,
        "command": ["enginewright-build"],
        "args": ["batch", "--input", f"{INPUT_PATH}/{folder_of(batch.input.uri)}",
                 "--output", f"{OUTPUT_PATH}/{folder_of(batch.output.uri)}", "--model", owner.served_as,
                 "--engine", record.fingerprint, "--shards", str(batch.shards),
                 "--ready-seconds", str(startup_seconds(record))],
        "resources": resources(config.prove_resources),
        "securityContext": container_security(),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": INPUT, "mountPath": INPUT_PATH, "readOnly": True},
                         {"name": OUTPUT, "mountPath": OUTPUT_PATH}, tmp_mount(labels.VOLUME_BATCH_TMP)],
    }
    return {**runner, "env": given_no_devices(runner)}


def _once(volumes: list[JSON]) -> list[JSON]:
    """Certificates are of replicas that fetch from a bucket, and of all Jobs."""
    return list({one["name"]: one for one in volumes}.values())
