"""A build Job's pod in which the server image proves a language model (docs/adr/0039-language-models.md): the builder's
container fetches and checks the model, without a device. Then a program in the server's container, which the builder
left there, starts vLLM as often as the prover asks for.

They speak by two folders, of which each writes one, and by HTTP on the pod's loopback. The server sees the model's
files, read-only, and nothing else of the build: neither prompts, store nor keys.
"""

from __future__ import annotations

from copy import deepcopy

from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON
from enginewright.core.manifests.proof import (
    HAND_OVER,
    READ_ONLY,
    WITNESS,
    WITNESS_PATH,
    WORK,
    WORK_PATH,
    given_no_devices,
    prove_container,
    server_container,
    server_volumes,
)
from enginewright.core.servers.vllm import VLLM
from enginewright.core.spec import Spec

PROGRAM_PATH, MODEL_PATH = "/program", "/model"
# The program looks for both beside the model; the hand-over has them under the same names.
CHECKPOINTS, DRAFTS = "checkpoints", "drafts"
CONTROL, CONTROL_PATH, CONTROL_SIZE = "control", "/control", "1Mi"


def proven_language_model(pod: JSON, spec: Spec, config: OperatorConfig) -> JSON:
    """``pod``, whose one container builds and proves, with a container for each step."""
    # A copy for each: several containers share no object.
    build, server, prove = (deepcopy(pod["containers"][0]) for _ in range(3))
    volumes = [*server_volumes(deepcopy(pod["volumes"])), {"name": CONTROL, "emptyDir": {"sizeLimit": CONTROL_SIZE}}]
    return {**pod, "initContainers": [_build(build), _server(server, spec, config)],
            "containers": [_prove(prove, config)], "volumes": [*pod["volumes"], *volumes]}


def _build(build: JSON) -> JSON:
    """As large as the server, which comes after it, but for the device."""
    return {**build,
            "args": [*build["args"], "--hand-over", HAND_OVER, "--program", f"{WORK_PATH}{PROGRAM_PATH}"],
            "env": given_no_devices(build),
            "resources": _without_devices(build["resources"]),
            "volumeMounts": [*build["volumeMounts"], {"name": WORK, "mountPath": WORK_PATH}]}


def _without_devices(resources: JSON) -> JSON:
    """Devices are claims and extended resources, which have a domain before their name."""
    return {kind: {name: value for name, value in amounts.items() if "/" not in name}
            for kind, amounts in resources.items() if kind != "claims"}


def _server(build: JSON, spec: Spec, config: OperatorConfig) -> JSON:
    """A command of its own: entry points of vLLM's images start a server at once. Without the image's packages, which
    the program has no use for."""
    words = ["--control", CONTROL_PATH, "--witness", WITNESS_PATH, "--model", MODEL_PATH, "--", *VLLM.program]
    started = {"command": ["python3", "-I", "-S", PROGRAM_PATH], "args": words}
    beside = [(CHECKPOINTS, spec.engine.checkpoints), (DRAFTS, spec.engine.drafts)]
    return server_container(build, spec, config, started, [
        {"name": WORK, "mountPath": MODEL_PATH, "subPath": "hand-over/model", **READ_ONLY},
        *({"name": WORK, "mountPath": f"/{folder}", "subPath": f"hand-over/{folder}", **READ_ONLY}
          for folder, listed in beside if listed),
        {"name": WORK, "mountPath": PROGRAM_PATH, "subPath": "program", **READ_ONLY},
        {"name": CONTROL, "mountPath": CONTROL_PATH, **READ_ONLY}, {"name": WITNESS, "mountPath": WITNESS_PATH}])


def _prove(build: JSON, config: OperatorConfig) -> JSON:
    return prove_container(build, config, ["--control", CONTROL_PATH], [{"name": CONTROL, "mountPath": CONTROL_PATH}])
