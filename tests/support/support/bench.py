"""What an end-to-end test works with: a namespace of a real cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.provider import choose
from demo import traffic, volumes
from demo.shell import Kube, StepError
from enginewright_builder.contract import SIGNING_SECRET

MODELS, STORE = CLAIMS = ("models", "enginewright-store")
# Seconds that load of a test goes on at most.
LONGEST = 3600
# Every answer is held against the source model, up to ten a second, and 31 are enough to say that all is well.
WATCHED: dict[str, Any] = {
    "quality": {"sampleShare": 1, "maxSamplesPerMinute": 600},
    "accuracy": {"metric": "cosine", "maxLoss": 0.2, "evaluation": {"uri": "pvc://models/evaluation.npz"}},
}


@dataclass(frozen=True)
class Stock:
    """Engines of one namespace's store, and the Secret with the key that they are signed with: other namespaces take
    them for hits only with both."""

    engines: Path
    secret: dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """One test's namespace: apply models, look at them, wait for what they must become."""

    kube: Kube
    namespace: str
    images: dict[str, str]

    def furnish(self, models: Path, stock: Stock | None = None) -> None:
        """Makes a volume with the files of ``models`` and a store with the engines of ``stock``, after a copy of its
        Secret."""
        if stock:
            self.kube("apply", "-n", self.namespace, "-f", "-", stdin=json.dumps(stock.secret))
        provider, folders = choose(), {MODELS: models, **({STORE: stock.engines} if stock else {})}
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda claim: provider.create_volume(self.namespace, claim, "1Gi"), CLAIMS))
        volumes.fill(self.kube, self.namespace, self.images["operator"],
                     {claim: {path.name: path for path in folder.iterdir()} for claim, folder in folders.items()})

    def stock(self, folder: Path) -> Stock:
        """Copies the store's engines into ``folder``, and the Secret as the user guide says."""
        volumes.copy(self.kube, self.namespace, STORE, self.images["operator"], folder)
        secret = self.kube.json("get", "secret", SIGNING_SECRET, "-n", self.namespace)
        about = {key: secret["metadata"][key] for key in ("name", "labels")}
        return Stock(folder, {**secret, "metadata": about})

    def apply(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": "enginewright.io/v1alpha1", "kind": "OptimisedModel",
                "metadata": {"name": name, "namespace": self.namespace}, "spec": {**_defaults(), **spec}}
        self.kube("apply", "-f", "-", stdin=json.dumps(body))

    def model(self, name: str) -> dict[str, Any]:
        return self.kube.json("get", "om", name, "-n", self.namespace)  # type: ignore[no-any-return]

    def get(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        chosen = ("-l", selector) if selector else ()
        return self.kube.json("get", kind, "-n", self.namespace, *chosen)["items"]  # type: ignore[no-any-return]

    def wait_reason(self, name: str, condition: str, reason: str) -> dict[str, Any]:
        """Waits until ``condition`` stands for ``reason``, and returns that condition."""
        model = self.wait(name, f"jsonpath={{.status.conditions[?(@.type=='{condition}')].reason}}={reason}")
        return next(found for found in model["status"]["conditions"] if found["type"] == condition)

    def wait(self, name: str, condition: str, seconds: int = 900) -> dict[str, Any]:
        """Waits as a user does, with kubectl wait, and returns the object as it was then: a moment later it may be
        another. Says what the conditions were when it was in vain."""
        try:
            met = self.kube("wait", f"om/{name}", "-n", self.namespace, f"--for={condition}", f"--timeout={seconds}s",
                            "-o", "json", timeout=seconds + 30)
        except StepError as error:
            pytest.fail(f"{error}\n{yaml.safe_dump(self.model(name).get('status', {}), sort_keys=False)}")
        return json.loads(met)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def loaded(self, name: str, *how: str, least: int = 1) -> Iterator[None]:
        """Evaluation data come through the Service of ``name`` while the block runs, ``how`` fast (20 a second); every
        request must be answered, and there must be ``least``. Blocks take one or two minutes, on a busy machine several
        times as long."""
        load = ["--url", f"{name}.{self.namespace}.svc:8001", "--model", name, "--reconnect-seconds", "1", "--json",
                "--inputs", "/models/evaluation.npz", "--seconds", str(LONGEST), *(how or ("--rate", "20"))]
        traffic.start(self.kube, self.namespace, "load", self.images["builder"], load, deadline=LONGEST + 60)
        traffic.await_start(self.kube, self.namespace, "load")
        yield
        traffic.stop(self.kube, self.namespace, "load")
        result = traffic.finish(self.kube, self.namespace, "load", timeout=240)
        if result["failed"] or result["requests"] < least:
            pytest.fail(f"not every request was answered, or there were fewer than {least}: {result}")

    def placed(self, selector: str) -> list[dict[str, Any]]:
        """Waits until there are such pods and the scheduler has found a node for each; returns them."""
        for condition in ("create", "condition=PodScheduled"):  # kubectl waits for no condition of what is not there
            self.kube("wait", "pod", "-n", self.namespace, "-l", selector, f"--for={condition}", "--timeout=240s")
        return self.get("pod", selector)


def _defaults() -> dict[str, Any]:
    return {
        "source": {"uri": "pvc://models/tiny.onnx"},
        "engine": {"maxBatchSize": 8, "buildBudgetSeconds": 15,
                   "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}},
        "accuracy": {"metric": "cosine", "maxLoss": 0.05, "evaluation": {"uri": "pvc://models/evaluation.npz"}},
        "placement": {"accelerator": "cpu"},
        "serving": {"resources": {"requests": {"cpu": "50m", "memory": "256Mi"}}},
        "store": {"uri": "pvc://enginewright-store"},
    }
