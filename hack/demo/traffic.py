"""Load from inside the cluster: Jobs that run the builder image's load generator against the model's Service."""

from __future__ import annotations

import json
import time
from typing import Any

from demo.shell import Kube, StepError


def start(kube: Kube, namespace: str, name: str, image: str, arguments: list[str], deadline: int = 600,
          program: str = "enginewright_builder.load") -> None:
    """Starts a load Job that ends after ``deadline`` seconds at the latest; ``arguments`` go to
    ``python3 -m program``."""
    kube("delete", "job", name, "-n", namespace, "--ignore-not-found", "--wait=true")
    job = _job(namespace, name, image, [program, *arguments])
    job["spec"]["activeDeadlineSeconds"] = deadline
    kube("apply", "-f", "-", stdin=json.dumps(job))


def await_start(kube: Kube, namespace: str, name: str) -> None:
    """Until the Job's pod runs. Raises :class:`StepError`."""
    for condition in ("create", "condition=Ready"):  # kubectl waits for no condition of what is not there
        kube("wait", "-n", namespace, "pod", "-l", f"job-name={name}", f"--for={condition}", "--timeout=240s")


def stop(kube: Kube, namespace: str, name: str, patience: float = 60.0) -> None:
    """Asks the generator to finish what is in flight and to report. One that has ended by itself has done so, and takes
    no command any more; that it has is known a moment later, so it is asked for ``patience`` seconds. Raises
    :class:`StepError`."""
    deadline = time.monotonic() + patience
    while True:
        try:
            kube("exec", "-n", namespace, f"job/{name}", "--", "sh", "-c", "kill -TERM 1")
            return
        except StepError:
            pods = kube.json("get", "pod", "-n", namespace, "-l", f"job-name={name}")["items"]
            if pods and all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in pods):
                return
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.5)


def finish(kube: Kube, namespace: str, name: str, timeout: float) -> dict[str, Any]:
    """Follows the generator to its end, of which its Job learns seconds later, and returns the JSON that it printed
    last. Raises :class:`StepError`."""
    text = kube("logs", "--follow", "-n", namespace, f"job/{name}", "--tail=50", timeout=timeout)
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)  # type: ignore[no-any-return]
    raise StepError(f"load generator {name} printed no result:\n{text}")


def _job(namespace: str, name: str, image: str, arguments: list[str]) -> dict[str, Any]:
    container = {
        "name": "load", "image": image, "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", *arguments],
        # Without a share of its own it stands still for seconds while the node is busy, and measures that.
        "resources": {"requests": {"cpu": "100m"}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own emptyDir
                         {"name": "models", "mountPath": "/models", "readOnly": True}],
    }
    pod = {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532,
                            "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}},
                    {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}],
    }
    return {"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "demo-load"}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}}}
