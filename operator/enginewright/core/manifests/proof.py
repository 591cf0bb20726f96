"""A build Job's pod in which the server image proves the engine: the builder's container builds, then a server of that
image takes the device, and the builder, without a device, drives it, signs and publishes (docs/adr/0029).

The server sees its models and nothing else of the build, read-only; the key that engines are signed with, the store and
what is to be published are not mounted there. What it tells of itself, it leaves in a folder of its own. Its model
control opens to a key that the builder's first container makes in memory: no Secret, no manifest and no log has it. The
server's process has it among its arguments, which anyone who lists processes on the node can read.
"""

from __future__ import annotations

import re
from copy import deepcopy

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON, container_security, no_devices, resources
from enginewright.core.request import server_image
from enginewright.core.servers.triton import TRITON
from enginewright.core.spec import Spec

WORK, WORK_PATH = "work", "/work"
HAND_OVER, MODELS = f"{WORK_PATH}/hand-over", f"{WORK_PATH}/models"
WITNESS, WITNESS_PATH, WITNESS_SIZE = "witness", "/witness", "16Mi"
KEY_SIZE = "1Mi"
LOOPBACK = "127.0.0.1"
# The prover reads the energy of its windows, a second or longer, from Triton, which would renew it every two seconds.
METRICS_INTERVAL = "--metrics-interval-ms=100"
READ_ONLY = {"readOnly": True}
# Port and state of a listening socket, as /proc/net/tcp has them.
_LISTENS = f":{labels.HTTP_PORT:04X} 00000000:0000 0A"
# Before the shell becomes the server: what the prover cannot see from its own container, told when the prover asks by
# another number. A file is renamed into its place, so that no reader gets half of it. Without a key the server does not
# start.
SCRIPT = f"""set -eu
date +%s.%N > {WITNESS_PATH}/started
(
  until grep -q '{_LISTENS}' /proc/net/tcp; do sleep 0.1; done
  date +%s.%N > {WITNESS_PATH}/ready
  asked='' told=''
  while :; do
    read -r asked 2> /dev/null < {MODELS}/.asked || :
    if [ "$asked" != "$told" ]; then
      echo "asked $asked" > {WITNESS_PATH}/next
      cat /proc/[0-9]*/smaps_rollup /proc/[0-9]*/status /proc/[0-9]*/stat >> {WITNESS_PATH}/next 2> /dev/null || :
      mv -f {WITNESS_PATH}/next {WITNESS_PATH}/memory
      told=$asked
    fi
    sleep 0.1
  done
) &
read -r key < {labels.KEY_FILE}
[ -n "$key" ]
exec "$@" --http-restricted-api=model-repository:{labels.KEY_HEADER}="$key" \
  --grpc-restricted-protocol=model-repository:{labels.KEY_HEADER}="$key"
"""


def proven_by_the_server(pod: JSON, spec: Spec, config: OperatorConfig) -> JSON:
    """``pod``, whose one container builds and proves, with a container for each step."""
    # A copy for each: several containers share no object.
    build, server, prove = (deepcopy(pod["containers"][0]) for _ in range(3))
    volumes = [*server_volumes(deepcopy(pod["volumes"])), *_key_volumes()]
    return {**pod, "initContainers": [_build(build), _server(server, spec, config)],
            "containers": [_prove(prove, config)], "volumes": [*pod["volumes"], *volumes]}


def _build(build: JSON) -> JSON:
    return {**build,
            "args": [*build["args"], "--hand-over", HAND_OVER, "--repository", MODELS, "--key-file", labels.KEY_FILE],
            "volumeMounts": [*build["volumeMounts"], {"name": WORK, "mountPath": WORK_PATH},
                             *_key_mounts(read_only=False)]}


def _server(build: JSON, spec: Spec, config: OperatorConfig) -> JSON:
    """It begins when ``build`` has ended, so they never share the device, and ends when the prover has: a sidecar. It
    has as much of everything as the build."""
    # Arguments only: the image's entry point (NVIDIA's sets up the driver libraries) starts them.
    started = {"args": ["/bin/sh", "-c", SCRIPT, "sh", *_arguments(spec.placement.accelerator == "cpu")]}
    mounts: list[JSON] = [{"name": WORK, "mountPath": MODELS, "subPath": "models", **READ_ONLY},
                          {"name": WITNESS, "mountPath": WITNESS_PATH}, *_key_mounts()]
    return server_container(build, spec, config, started, mounts)


def server_container(build: JSON, spec: Spec, config: OperatorConfig, started: JSON, mounts: list[JSON]) -> JSON:
    """The sidecar with the device. ``started`` is its command, ``mounts`` come before those of scratch."""
    return {
        "name": labels.CONTAINER_SERVER,
        "image": server_image(spec, config),
        "imagePullPolicy": config.pull_policy,
        "restartPolicy": "Always",
        **started,
        **({"env": [no_devices()]} if spec.placement.accelerator == "cpu" else {}),
        "resources": build["resources"],
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts,
                         {"name": "server-tmp", "mountPath": "/tmp"},  # noqa: S108  (in the pod)
                         {"name": "server-shm", "mountPath": "/dev/shm"}],  # noqa: S108  (in the pod)
    }


def _arguments(on_cpu: bool) -> list[str]:
    return [*TRITON.program, f"--model-repository={MODELS}", "--model-control-mode=explicit",
            # The configurations are complete; completing them would start one more process a model only to ask it.
            "--disable-auto-complete-config", TRITON.exit_word(5),
            *(f"--{name}-address={LOOPBACK}" for name in ("http", "grpc", "metrics")), *TRITON.port_words,
            "--allow-gpu-metrics=false" if on_cpu else METRICS_INTERVAL]


def _prove(build: JSON, config: OperatorConfig) -> JSON:
    arguments = ["--key-file", labels.KEY_FILE, "--key-header", labels.KEY_HEADER]
    return prove_container(build, config, ["--repository", MODELS, *arguments], _key_mounts())


def prove_container(build: JSON, config: OperatorConfig, arguments: list[str], mounts: list[JSON]) -> JSON:
    """Without a device. ``mounts`` are beside those of what the build left and of what the server says of itself.

    What the user adds to the build is added here as well: it publishes, and may need the same proxy or certificate.
    Neither the request nor the sources are read any more."""
    kept = [mount for mount in build["volumeMounts"]
            if mount["name"] != "request" and not re.fullmatch(labels.SOURCE_VOLUMES, mount["name"])]
    return {
        **build,
        "name": labels.CONTAINER_PROVE,
        "args": ["prove", "--hand-over", HAND_OVER, *arguments, "--witness", WITNESS_PATH],
        "env": given_no_devices(build),
        "resources": resources(config.prove_resources),
        "volumeMounts": [*kept, {"name": WORK, "mountPath": WORK_PATH},
                         {"name": WITNESS, "mountPath": WITNESS_PATH, **READ_ONLY}, *mounts],
    }


def given_no_devices(container: JSON) -> list[JSON]:
    """Its variables, whatever the user wrote."""
    return [*(one for one in container.get("env", []) if one["name"] != no_devices()["name"]), no_devices()]


def server_volumes(there: list[JSON]) -> list[JSON]:
    """The server has shared memory of its own, of the size that the build has."""
    shared = next(volume for volume in there if volume["name"] == "shm")
    return [{"name": WORK, "emptyDir": {}}, {"name": WITNESS, "emptyDir": {"sizeLimit": WITNESS_SIZE}},
            {"name": "server-tmp", "emptyDir": {}}, {**shared, "name": "server-shm"}]


def _key_mounts(*, read_only: bool = True) -> list[JSON]:
    return [{"name": labels.VOLUME_KEY, "mountPath": labels.KEY_PATH, **(READ_ONLY if read_only else {})}]


def _key_volumes() -> list[JSON]:
    return [{"name": labels.VOLUME_KEY, "emptyDir": {"medium": "Memory", "sizeLimit": KEY_SIZE}}]
