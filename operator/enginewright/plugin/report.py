"""Bringing an engine's ``report.html`` out of the store, which only pods can read.

A pod that runs for a second prints the file and the engine's manifest; the image, the store's claim or bucket and the
engine are those with which the serving revision checks its engine. The manifest has to have the digest that the
operator wrote into that revision, and the file the digest that the manifest has: what another writer put into the store
never gets to a person's browser.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, POD
from enginewright.core import labels
from enginewright.core.manifests import proven_digest
from enginewright.core.manifests.common import module
from enginewright.core.manifests.deployment import STORE_VOLUME, engine_source
from enginewright.plugin.wishes import WishError
from enginewright_builder.contract import MANIFEST_BYTES, ContractError, Manifest

POLL_SECONDS = 0.5
DEADLINE_SECONDS = 90.0
# A page is one line, which the node keeps in pieces of 16 KiB and counts one by one.
LINES = 1000
# Of the manifest and the file, packed and in base64. A page with its charts has some 200 KB.
MOST_BYTES = 8 << 20
# Volumes that reach the store: its own, and the certificates that its bucket is trusted by.
OF_STORE = (STORE_VOLUME, labels.VOLUME_TRUSTED)
PRINT = module("show")
Object = Mapping[str, Any]


def reader(name: str, deployment: Object, file: str) -> dict[str, Any]:
    """The pod. Raises :class:`WishError` where the Deployment is none of ours, or was made by an earlier release."""
    template = deployment["spec"]["template"]["spec"]
    verify = next((one for one in template.get("initContainers", ()) if one["name"] == labels.CONTAINER_VERIFY), None)
    if verify is None:
        raise WishError(f"Deployment {deployment['metadata']['name']} has no container {labels.CONTAINER_VERIFY}")
    source = engine_source(template)
    if not source:
        raise WishError(f"Deployment {deployment['metadata']['name']} was made by an earlier release, whose reports "
                        "cannot be checked; the next revision's can")
    keep = ("serviceAccountName", "imagePullSecrets", "securityContext", "tolerations", "nodeSelector", "affinity")
    fingerprint = verify["args"][0].rpartition("/")[2]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{name}-report-", "labels": {labels.MANAGED_BY: "kubectl-optimisedmodel"}},
        "spec": {
            **{key: template[key] for key in keep if key in template},
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(DEADLINE_SECONDS),
            "containers": [{
                **{key: verify[key] for key in ("image", "imagePullPolicy", "env", "envFrom", "resources",
                                                "securityContext") if key in verify},
                "name": "report",
                "command": [*PRINT, source, fingerprint, proven_digest(template), file],
                "volumeMounts": [mount for mount in verify["volumeMounts"] if mount["name"] in OF_STORE],
            }],
            "volumes": [volume for volume in template["volumes"] if volume["name"] in OF_STORE],
        },
    }


async def deployment_of(client: KubeClient, namespace: str, name: str, revision: str) -> Object:
    """Raises WishError, ClientError."""
    selector = labels.as_selector(labels.revision_selector(name, revision))
    found = await client.list_all(DEPLOYMENT, namespace, labels=selector)
    if not found:
        raise WishError(f"{name} has no Deployment of revision {revision}")
    return found[0]


async def fetch(client: KubeClient, namespace: str, name: str, revision: str, file: str) -> bytes:
    """The content of ``file`` beside the engine of ``revision``. Raises WishError, ClientError."""
    deployment = await deployment_of(client, namespace, name, revision)
    made = await client.create(reader(name, deployment, file), namespace=namespace)
    pod = made["metadata"]["name"]
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            text = await _printed(client, namespace, pod)
    except TimeoutError:
        why = "the store's volume may be attached to a node that has no room, or its bucket out of reach"
        raise WishError(f"pod {pod} did not run within {DEADLINE_SECONDS:.0f} s; {why}") from None
    finally:
        await client.delete(POD, namespace, pod)
    return checked(text, proven_digest(deployment["spec"]["template"]["spec"]), file)


def traces(name: str, record: bytes) -> list[str]:
    """The traces that lie beside ``build-report.json``, which is ``record``. Raises :class:`WishError` where there are
    none."""
    profiles = json.loads(record).get("profiles", ())
    found = [one["trace"] for one in profiles if one["trace"]]
    if not found:
        why = next((word for one in profiles for word in (one["problem"], *one["notes"]) if word), "")
        raise WishError(f"the engine that serves {name} has no traces: {why}" if why else
                        f"the engine that serves {name} has no traces: write engine.profile: true into its spec")
    return found


def checked(text: str, manifest_digest: str, file: str) -> bytes:
    """The file in what the pod printed, once it is held against the manifest, and that against its digest. Raises
    :class:`WishError`."""
    lines = text.split()
    manifest, content = (_unpacked(line, MANIFEST_BYTES) for line in lines) if len(lines) == 2 else (None, None)
    if manifest is None or content is None:
        last = text.strip().splitlines()[-1:] or ["nothing"]
        raise WishError(f"{file} could not be read from the store: {last[0][:500]}")
    if f"sha256:{hashlib.sha256(manifest).hexdigest()}" != manifest_digest:
        raise WishError(f"{file} is not shown: the engine's manifest in the store differs from the proven one")
    try:
        entry = Manifest.from_json(manifest.decode()).files[file]
    except (ContractError, UnicodeDecodeError, KeyError) as error:
        raise WishError(f"{file} is not in the engine's manifest: {error}") from error
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise WishError(f"{file} is not shown: it changed in the store after the build wrote it")
    return content


def _unpacked(line: str, most: int) -> bytes | None:
    """None for what is not packed so, or has more than ``most`` bytes."""
    packer = zlib.decompressobj()
    try:
        found = packer.decompress(base64.b64decode(line, validate=True), most)
    except (binascii.Error, zlib.error, ValueError):
        return None
    return found if packer.eof else None


async def _printed(client: KubeClient, namespace: str, pod: str) -> str:
    while True:
        phase = (await client.get(POD, namespace, pod)).get("status", {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            return await client.logs(namespace, pod, "report", tail=LINES, deadline=10.0, most=MOST_BYTES)
        await asyncio.sleep(POLL_SECONDS)
