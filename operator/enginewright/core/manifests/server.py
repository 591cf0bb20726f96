"""The server's own container in a serving pod: Triton, its probes, and the engine that it loads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.config import OperatorConfig, Resources
from enginewright.core.manifests.common import (
    JSON,
    Owner,
    container_ports,
    container_security,
    http_probe,
    no_devices,
    resources,
    scratch_mounts,
)
from enginewright.core.manifests.quality import trace_arguments, trace_mounts
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.published import published
from enginewright.core.request import server_image
from enginewright.core.servers import Server
from enginewright.core.servers.triton import TRITON
from enginewright.core.sizing import server_defaults
from enginewright.core.spec import Spec
from enginewright.core.spec.response_cache_rules import MEBIBYTE
from enginewright_builder.contract import COMPUTED, MODEL_FOLDER, MODEL_REPOSITORY

MODELS_PATH = "/models"
SMOKE_PATH = "/smoke-test"  # holds the program that tries the server, and recorded answers: a few MB
CONFIG_FILE = "config.pbtxt"
# What the verify container leaves beside the smoke test: a model that caches answers, and asks the engine for others.
FRONT_FOLDER = "front"
_CACHE = "--cache-config=local,size="
_CONNECTION_AGE = "--grpc-max-connection-age"
STARTUP_PERIOD = 2


def startup_seconds(record: EngineRecord) -> int:
    """How long a server may take to load: five times what the build measured, and a minute. A page cache that is cold,
    a busy node or a slower volume multiply it; a server that hangs must still be ended."""
    summary = published(record.outcome)
    return 60 + math.ceil(5 * (summary.load_seconds if summary else 0))


def server(owner: Owner, spec: Spec, record: EngineRecord, placement: Placement, config: OperatorConfig) -> JSON:
    """The engine has no name; mounted under the object's or its fleet's, that is what Triton serves it as."""
    sub_path = f"{record.fingerprint}/{MODEL_REPOSITORY}/{MODEL_FOLDER}"
    return {
        "name": labels.CONTAINER_SERVER,
        "image": server_image(spec, config),
        "imagePullPolicy": config.pull_policy,
        # Arguments only: the image's entry point (NVIDIA's sets up the driver libraries) starts them.
        "args": _arguments(spec, config, record),
        **({"env": [no_devices()]} if spec.placement.accelerator == "cpu" else {}),
        "ports": container_ports(TRITON),
        "resources": resources(server_resources(spec, config, record), spec.serving.resources, placement),
        "securityContext": container_security(),
        "startupProbe": smoke_test(TRITON, engine_name(owner, spec), startup_seconds(record)),
        "readinessProbe": http_probe(TRITON.ready_path, period=2, timeout=2, failures=3),
        # Slow to kill: a server at its limit answers late, and killing it makes the others later.
        "livenessProbe": http_probe(TRITON.live_path, period=10, timeout=5, failures=6),
        # Endpoints are withdrawn while it sleeps; only then does Triton stop taking connections.
        "lifecycle": {"preStop": {"sleep": {"seconds": config.drain_seconds}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "engine", "mountPath": f"{MODELS_PATH}/{engine_name(owner, spec)}",
                          "subPath": sub_path, "readOnly": True},
                         {"name": "smoke-test", "mountPath": SMOKE_PATH, "readOnly": True}, *_config(owner, spec),
                         *scratch_mounts(), *(trace_mounts() if spec.quality else [])],
    }


def _config(owner: Owner, spec: Spec) -> list[JSON]:
    """Over the engine's own: what the verify container made of it, with the queue policy. Beside the engine: the model
    that answers repeated requests, under the name that clients know."""
    places = {f"{engine_name(owner, spec)}/{CONFIG_FILE}": CONFIG_FILE} if spec.serving.queue else {}
    if spec.serving.response_cache:
        places |= {owner.served_as: FRONT_FOLDER}
    return [{"name": "smoke-test", "mountPath": f"{MODELS_PATH}/{place}", "subPath": path, "readOnly": True}
            for place, path in places.items()]


def engine_name(owner: Owner, spec: Spec) -> str:
    """What the server knows the engine by, which computes each answer: another name than clients use where a cache
    stands before it."""
    return f"{owner.served_as}{COMPUTED}" if spec.serving.response_cache else owner.served_as


def caches(pod: Mapping[str, Any]) -> bool:
    """Whether the server in pods of the spec ``pod`` answers repeated requests from a cache."""
    return any(str(word).startswith(_CACHE) for one in pod.get("containers") or ()
               if one.get("name") == labels.CONTAINER_SERVER for word in one.get("args") or ())


def server_resources(spec: Spec, config: OperatorConfig, record: EngineRecord) -> Resources:
    """What the server has where the user states nothing."""
    summary = record.outcome.engine
    return server_defaults(spec, config, summary.memory if summary else None)


def _arguments(spec: Spec, config: OperatorConfig, record: EngineRecord) -> list[str]:
    on_cpu = ["--allow-gpu-metrics=false"] if spec.placement.accelerator == "cpu" else []
    return [
        *TRITON.program, f"--model-repository={MODELS_PATH}", "--model-control-mode=none", "--exit-on-error=true",
        TRITON.exit_word(config.exit_timeout), *TRITON.port_words, *on_cpu, *_cache_arguments(spec),
        *_pool_arguments(record),
        # Traces last: of settings of one name Triton takes the last, and the monitor lives on these.
        *_further_arguments(spec, config), *(trace_arguments() if spec.quality else [])]


def _further_arguments(spec: Spec, config: OperatorConfig) -> list[str]:
    """The installation's own. A connection that is renewed may lead to another replica, and a sequence of requests has
    its state in one."""
    stays = spec.interface is not None and spec.interface.sequence_batching is not None
    return [one for one in config.server_args if not (stays and one.startswith(_CONNECTION_AGE))]


def _pool_arguments(record: EngineRecord) -> list[str]:
    """Triton page-locks a pool of host memory as it starts, for backends that copy inputs to the device themselves. One
    of which the build saw nothing used under load is not made: 0 is off, and a copy that asks for it takes plain
    memory. A build whose load nothing answered (``concurrency`` 0) saw nothing of it."""
    memory = record.outcome.engine.memory if record.outcome.engine else None
    unused = memory is not None and memory.concurrency and memory.pinned_pool_bytes and memory.pinned_bytes == 0
    return ["--pinned-memory-pool-byte-size=0"] if unused else []


def _cache_arguments(spec: Spec) -> list[str]:
    cache = spec.serving.response_cache
    return [f"{_CACHE}{cache.size_mebibytes * MEBIBYTE}"] if cache else []


def smoke_test(server: Server, model: str, seconds: int) -> JSON:
    """The model answers as it was proven to, or its container ends: only then do the other probes begin. It has as long
    to answer as the server has to load. An image without Python is asked whether it is ready, no more."""
    url = f"http://127.0.0.1:{labels.HTTP_PORT}{server.ready_path}"
    # Triton's path is the program's own: said again, it would replace all replicas that run.
    ready = "" if server is TRITON else f" --ready={server.ready_path}"
    command = (f"command -v python3 >/dev/null || exec curl -fsS -o /dev/null {url}; "
               f"exec python3 -I -S {SMOKE_PATH}/smoke.py --model={model} --port={labels.HTTP_PORT} "
               f"--seconds={seconds}{ready}")
    return {"exec": {"command": ["/bin/sh", "-c", command]}, "periodSeconds": STARTUP_PERIOD,
            "timeoutSeconds": seconds + 10, "failureThreshold": math.ceil(seconds / STARTUP_PERIOD)}
