"""KServe's own manager as a program of this machine, with its definitions, its ConfigMap and its admission webhooks.
``KSERVE_MANAGER`` names the program (hack/dev/kserve.sh builds it)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from demo.shell import Kube, StepError
from support.kserve import DEFINITIONS
from support.stand_in import free_port

NAMESPACE: Final = "kserve"
CONFIG: Final = "inferenceservice-config"
# There is neither Istio nor a Gateway here. All else is as KServe's release has it, Knative as the default mode too.
CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "ingress": {"disableIngressCreation": True, "disableIstioVirtualHost": True}}


@contextlib.contextmanager
def managing(kube: Kube, folder: Path) -> Iterator[None]:
    """KServe on a cluster whose apiserver runs on this machine, for the length of the block. What it installed is gone
    afterwards, and with it all that KServe served."""
    source, port = DEFINITIONS.module_folder(), free_port()
    certificate, crds = certify(folder), definitions_of(source)
    definitions = [f"--filename={file}" for file in crds]
    beside = _list({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
                   configuration(source, CHANGES))
    webhooks = _list(*_webhooks(source, port, certificate))
    with (folder / "manager.log").open("wb") as log:
        try:
            # Not applied: they are longer than what kubectl keeps of an object that it applies.
            kube("create", *definitions)
            for file in crds:
                _await_kind(kube, file)
            kube("apply", "-f", "-", stdin=beside)
            with _running(kube, folder, port, log):
                kube("apply", "-f", "-", stdin=webhooks)
                try:
                    yield
                finally:
                    # While its manager is there, for the finalizers of what it serves.
                    kube("delete", "inferenceservices", "--all", "--all-namespaces", "--timeout=120s")
        finally:
            kube("delete", "--ignore-not-found", "-f", "-", stdin=webhooks)
            kube("delete", "--ignore-not-found", *definitions)
            kube("delete", "--ignore-not-found", "-f", "-", stdin=beside)


def _list(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _await_kind(kube: Kube, file: Path) -> None:
    """kubectl does not wait for a condition of what has no conditions yet, so it is asked again."""
    for left in reversed(range(30)):
        try:
            kube("wait", f"--filename={file}", "--for=condition=Established", "--timeout=60s")
        except StepError:
            if not left:
                raise
        else:
            return


@contextlib.contextmanager
def _running(kube: Kube, folder: Path, port: int, log: Any) -> Iterator[None]:
    environment = {**os.environ, "KUBECONFIG": kube.kubeconfig, "POD_NAMESPACE": NAMESPACE, "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [os.environ["KSERVE_MANAGER"], "--metrics-addr=127.0.0.1:0", f"--health-probe-addr=127.0.0.1:{free_port()}",
         f"--webhook-port={port}"], env=environment, stdout=log, stderr=log)
    try:
        _await_answer(port, process)
        yield
    finally:
        assert process.poll() is None, f"KServe's manager ended, as {log.name} says"
        process.terminate()
        process.wait(timeout=60)


def _await_answer(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until the webhooks are served, or the manager has ended."""
    while process.poll() is None:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=5):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)


def definitions_of(source: Path) -> list[Path]:
    """Files of the kinds that the manager works on."""
    folder = source / "config" / "crd" / "full"
    return [file for place in (folder, folder / "clusterstoragecontainer")
            for file in sorted(place.glob("serving.kserve.io_*.yaml"))]


def configuration(source: Path, changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """KServe's ConfigMap with ``changes`` to its entries, which are JSON."""
    found: dict[str, Any] = yaml.safe_load((source / "config" / "configmap" / "inferenceservice.yaml").read_text())
    data = {key: text for key, text in found["data"].items() if not key.startswith("_")}
    for key, change in changes.items():
        data[key] = json.dumps({**json.loads(data[key]), **change})
    return {**found, "data": data, "metadata": {"name": CONFIG, "namespace": NAMESPACE}}


def _webhooks(source: Path, port: int, certificate: Path) -> Iterator[dict[str, Any]]:
    """As in KServe's release, but for where they are."""
    authority = base64.b64encode(certificate.read_bytes()).decode()
    for found in yaml.safe_load_all((source / "config" / "webhook" / "manifests.yaml").read_text()):
        for webhook in found["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
        yield found


def certify(temporary: Path) -> Path:
    """The certificate of the webhook server of a manager whose ``TMPDIR`` is ``temporary``."""
    folder = temporary / "k8s-webhook-server" / "serving-certs"
    folder.mkdir(parents=True)
    subprocess.run(("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj=/CN=kserve", "-days=1",
                    "-addext=subjectAltName=IP:127.0.0.1", f"-keyout={folder}/tls.key", f"-out={folder}/tls.crt"),
                   check=True, capture_output=True)
    return folder / "tls.crt"
