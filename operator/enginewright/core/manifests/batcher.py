"""The batcher's part of a serving pod: a key in memory, a server whose model control opens to that key alone, and the
container that has it and changes the batching.

The key is made by the pod's first container: no Secret, no manifest and no log of the pod has it. The server's process
has it among its arguments, which anyone who lists processes on the node can read (``docs/threat-model.md``).
"""

from __future__ import annotations

from enginewright.core import labels, mig
from enginewright.core.batching import Refusal, SafeSet, safe_set
from enginewright.core.batching.wire import safe_set_to_text
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON, container_security, resources
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.quantity import parse_quantity
from enginewright.core.reasons import Reason
from enginewright.core.server_args import against_model_control
from enginewright.core.spec import Spec
from enginewright_builder.contract import EngineSummary

KEY_SIZE = "1Mi"
# To the server's arguments the shell adds those that hold the key. Without one it does not start.
GUARDED = (f"set -eu; read -r key < {labels.KEY_FILE}; [ -n \"$key\" ]; "
           f"exec \"$@\" --http-restricted-api=model-repository:{labels.KEY_HEADER}=\"$key\" "
           f"--grpc-restricted-protocol=model-repository:{labels.KEY_HEADER}=\"$key\"")


def adaptive(spec: Spec, record: EngineRecord, placement: Placement,
             config: OperatorConfig) -> SafeSet | Refusal | None:
    """What replicas' batching may be, or why it stays as it was built; None where it is off."""
    if not spec.batching.adaptive:
        return None
    found = safe_set(record, spec.objective)
    engine = record.outcome.engine
    if engine is None or isinstance(found, Refusal):
        return found
    return _control_taken(config) or _no_room(spec, engine, placement, config) or found


def _control_taken(config: OperatorConfig) -> Refusal | None:
    """The installation's arguments come after those that guard model control, and Triton takes the last."""
    bad = next(against_model_control(config.server_args), None)
    if bad is None:
        return None
    return Refusal(reason=Reason.MODEL_CONTROL_TAKEN, message=(
        f"{bad.text}, config.serverArgs[{bad.index}] of the installation {bad.message}: {bad.remedy}, or take "
        "spec.batching.adaptive away."))


def _no_room(spec: Spec, engine: EngineSummary, placement: Placement, config: OperatorConfig) -> Refusal | None:
    """A change loads the model beside the one that serves. The record has the memory of a server with one of them: two
    take less than twice that."""
    gpu = placement.device.accelerator == "gpu"
    room = _device_bytes(engine, placement) if gpu else _limit_bytes(spec, config)
    if room is None and not gpu:
        return None
    where = "its device" if gpu else "the server's container (spec.serving.resources.limits.memory)"
    if not room or not engine.memory_bytes:
        what = f"how much memory {where} has" if engine.memory_bytes else "how much memory the engine takes"
        return Refusal(reason=Reason.MEMORY_UNKNOWN, message=f"A change of batching needs memory for two models for a "
                                                             f"moment, and the operator does not know {what}.")
    if 2 * engine.memory_bytes > room:
        return Refusal(reason=Reason.NO_ROOM_FOR_TWO, message=(
            f"A change of batching needs memory for two models for a moment: twice {engine.memory_bytes / mig.GIB:.1f} "
            f"GiB, and {where} has {room / mig.GIB:.1f} GiB."))
    return None


def _device_bytes(engine: EngineSummary, placement: Placement) -> int:
    """Of all devices of a replica; 0 where it is not known. The record tells the product where the spec names none."""
    device = placement.device
    product = engine.device.removesuffix(device.mig_profile).strip().replace(" ", "-")
    profiles = mig.profiles(product)
    known = mig.profile(product, device.mig_profile) if device.mig_profile else profiles[-1] if profiles else None
    return (device.memory_bytes or (known.bytes if known else 0)) * max(1, device.gpu_count)


def _limit_bytes(spec: Spec, config: OperatorConfig) -> int | None:
    """None where the node alone is the limit."""
    limit = resources(config.server_resources, spec.serving.resources).get("limits", {}).get("memory")
    return int(parse_quantity(limit)) if limit else None


def control_arguments(served_as: str) -> list[str]:
    return ["--model-control-mode=explicit", f"--load-model={served_as}"]


def guarded(arguments: list[str]) -> list[str]:
    """The server's command with what holds the key, which no manifest may have."""
    return ["/bin/sh", "-c", GUARDED, "sh", *arguments]


def key_mounts(*, read_only: bool = True) -> list[JSON]:
    return [{"name": labels.VOLUME_KEY, "mountPath": labels.KEY_PATH, **({"readOnly": True} if read_only else {})}]


def key_volumes() -> list[JSON]:
    return [{"name": labels.VOLUME_KEY, "emptyDir": {"medium": "Memory", "sizeLimit": KEY_SIZE}}]


def batcher(safe: SafeSet, served_as: str, config: OperatorConfig) -> JSON:
    """It has no probe: a pod is ready only if all its containers are, and this one must not stand in the way."""
    return {
        "name": labels.CONTAINER_BATCHER,
        "image": config.images.operator,
        "imagePullPolicy": config.pull_policy,
        "command": ["enginewright", "adapt"],
        "args": [f"--model={served_as}", f"--safe-set={safe_set_to_text(safe)}", f"--key-file={labels.KEY_FILE}",
                 f"--port={labels.BATCHING_PORT}", f"--http-port={labels.HTTP_PORT}",
                 f"--metrics-port={labels.METRICS_PORT}"],
        "ports": [{"name": labels.PORT_BATCHING, "containerPort": labels.BATCHING_PORT, "protocol": "TCP"}],
        "resources": resources(config.batcher_resources),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*key_mounts(), {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (in the pod)
    }
