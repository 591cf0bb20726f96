"""The drill's corner of the cluster: its namespace, model, candidates and what can be seen of them."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import watch
from demo.shell import CLUSTER, Kube, StepError, run
from demo.volumes import fill, pod_of
from enginewright.core import labels
from enginewright.core.manifests import engine_record
from enginewright.core.observed import ClaimView
from enginewright_builder.contract import Outcome

NAMESPACE = "enginewright-rollouts"
MODEL = "drill"
STORE = "enginewright-store"
STORE_URI = f"pvc://{STORE}"
CLAIMS = ("models", STORE)
PLANTER = "planter"
SERVERS = f"{labels.MODEL}={MODEL},{labels.COMPONENT}={labels.COMPONENT_SERVER}"


@dataclass(frozen=True)
class Corner:
    """``builder`` is the image with the load generator and the store's own code."""

    kube: Kube
    builder: str
    namespace: str = NAMESPACE

    def prepare(self, files: dict[str, Path]) -> None:
        self.remove()
        self.kube.make_namespace(self.namespace)
        for claim in CLAIMS:
            run(CLUSTER, "volume", "create", self.namespace, claim, "1Gi")
        fill(self.kube, self.namespace, self.builder, {"models": files})

    def remove(self) -> None:
        self.kube.remove_namespace(self.namespace)
        for claim in CLAIMS:
            run(CLUSTER, "volume", "delete", self.namespace, claim)

    def apply(self, spec: dict[str, Any]) -> int:
        """Applies the model and returns its generation."""
        body = {"apiVersion": labels.API_VERSION, "kind": labels.KIND,
                "metadata": {"name": MODEL, "namespace": self.namespace}, "spec": spec}
        text = self.kube("apply", "-f", "-", "-o", "json", stdin=json.dumps(body))
        return int(json.loads(text)["metadata"]["generation"])

    def model(self) -> dict[str, Any]:
        return self.kube.json("get", "om", MODEL, "-n", self.namespace)  # type: ignore[no-any-return]

    def wait(self, condition: str, seconds: int) -> None:
        """As a user waits. Raises :class:`StepError`."""
        self.kube("wait", f"om/{MODEL}", "-n", self.namespace, f"--for={condition}", f"--timeout={seconds}s",
                  timeout=seconds + 30)

    def open_store(self) -> None:
        """Starts the pod that plants candidates into the store."""
        self.kube("apply", "-f", "-", stdin=json.dumps(pod_of(self.namespace, PLANTER, (STORE,), self.builder)))
        self.kube("wait", "-n", self.namespace, f"pod/{PLANTER}", "--for=condition=Ready", "--timeout=240s")

    def plant(self, source: str, target: str, fault: str) -> None:
        """Gives fingerprint ``target`` a copy of engine ``source`` with ``fault`` (see :mod:`rollouts.plant`), in the
        store and in its index, as a build would have."""
        code = Path(__file__).with_name("plant.py").read_text()
        answer = self.kube("exec", "-i", "-n", self.namespace, PLANTER, "--", "python3", "-", source, target, fault,
                           stdin=code)
        outcome = Outcome.from_json(answer.strip().splitlines()[-1])
        found = self.kube.json("get", "pvc", STORE, "-n", self.namespace)
        claim = ClaimView(name=STORE, uid=found["metadata"]["uid"], phase="Bound")
        self.kube("apply", "-f", "-", stdin=json.dumps(engine_record(self.namespace, claim, STORE_URI, outcome)))

    def servers(self) -> list[dict[str, Any]]:
        return self.kube.json("get", "pod", "-n", self.namespace, "-l", SERVERS)["items"]  # type: ignore[no-any-return]

    def strike(self, pod: dict[str, Any]) -> None:
        """SIGKILL for the pod's server, from the node that this machine is: a crash, without a word to anybody."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                ours = pod["metadata"]["uid"] in (process / "cgroup").read_text()
                server = (process / "comm").read_text().strip() == "tritonserver"
            except OSError:
                continue  # it has ended
            if ours and server:
                os.kill(int(process.name), signal.SIGKILL)
                return
        raise StepError(f"no tritonserver of pod {pod['metadata']['name']} runs on this machine")

    def traffic_revisions(self) -> set[str]:
        """Revisions that have a ready endpoint behind the Service."""
        revision_of = {pod["metadata"]["name"]: pod["metadata"]["labels"][labels.REVISION] for pod in self.servers()}
        slices = self.kube.json("get", "endpointslice", "-n", self.namespace,
                                "-l", f"kubernetes.io/service-name={MODEL}")
        return {revision_of.get(endpoint["targetRef"]["name"], "gone")
                for item in slices["items"] for endpoint in item.get("endpoints") or ()
                if endpoint["conditions"].get("ready") and not endpoint["conditions"].get("terminating")}


def condition(model: dict[str, Any], kind: str) -> dict[str, Any]:
    """The condition of type ``kind``. Raises :class:`StepError` while there is none."""
    found = watch.condition(model, kind)
    if not found:
        raise StepError(f"{MODEL} has no condition {kind}")
    return found
