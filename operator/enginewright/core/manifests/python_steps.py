"""The container of a build Job's pod that runs functions of the source's folder (docs/adr/0049-python-steps.md): none
of them runs where the key is mounted that engines are signed with.

It gets functions and arrays over a socket, and mounts nothing else of the build: neither keys, store, request and
sources, nor what the build leaves. It has none of the variables that users add to the build.
"""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.config import OperatorConfig, Resources
from enginewright.core.manifests.common import JSON, container_security, no_devices, resources
from enginewright.core.manifests.proof import READ_ONLY
from enginewright.core.spec import ResourcesSpec, Spec

SOCKET_SIZE = "1Mi"
# Seconds until the socket is there, at most: Python starts, and imports NumPy.
STARTS = 120


def beside_python_steps(pod: JSON, spec: Spec, config: OperatorConfig) -> JSON:
    """``pod``, which builds in its first init container, with one before it where ``spec`` names functions: Kubernetes
    starts the build once the socket is there, and ends a sidecar with the pod."""
    if spec.interface is None or spec.interface.python_steps is None:
        return pod
    build, *others = pod["initContainers"]
    # To connect to a socket needs no right to write to its folder.
    reached = {"name": labels.VOLUME_STEPS, "mountPath": labels.STEPS_PATH, **READ_ONLY}
    return {**pod,
            "initContainers": [_container(build, config),
                               {**build, "volumeMounts": [*build["volumeMounts"], reached]}, *others],
            "volumes": [*pod["volumes"], {"name": labels.VOLUME_STEPS, "emptyDir": {"sizeLimit": SOCKET_SIZE}},
                        {"name": labels.VOLUME_STEPS_TMP, "emptyDir": {}}]}


def _container(build: JSON, config: OperatorConfig) -> JSON:
    """A function may take as much memory as it may in a process of the build, and is seldom at work."""
    limits = {name: value for name, value in build["resources"].get("limits", {}).items() if name in ("cpu", "memory")}
    own = resources(Resources(requests=config.prove_resources.requests), ResourcesSpec(limits=limits))
    return {
        "name": labels.CONTAINER_STEPS,
        "image": config.images.builder,
        "imagePullPolicy": config.pull_policy,
        "restartPolicy": "Always",
        "command": ["enginewright-build"],
        "args": ["python-steps", "--socket", labels.STEPS_SOCKET],
        "env": [no_devices()],
        "startupProbe": {"exec": {"command": ["test", "-S", labels.STEPS_SOCKET]}, "periodSeconds": 1,
                         "failureThreshold": STARTS},
        "resources": own,
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": labels.VOLUME_STEPS, "mountPath": labels.STEPS_PATH},
                         {"name": labels.VOLUME_STEPS_TMP, "mountPath": "/tmp"}],  # noqa: S108  (in the pod)
    }
