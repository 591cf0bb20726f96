"""Bringing an engine's ``report.html`` out of the store, which only pods can read.

A pod that runs for a second (:mod:`report_pod`) prints the file and the engine's manifest. The manifest has to have the
digest that the operator wrote into the serving revision and the object's status, and the file the digest that the
manifest has: what another writer put into the store never gets to a person's browser.
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

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, POD
from enginewright.core.manifests import proven_digest
from enginewright.core.manifests.deployment import deployment_name
from enginewright.core.status import read_status
from enginewright.plugin.report_pod import DEADLINE_SECONDS, fingerprint_of, reader
from enginewright.plugin.wishes import WishError
from enginewright_builder.contract import MANIFEST_BYTES, ContractError, Manifest

POLL_SECONDS = 0.5
# A page is one line, which the node keeps in pieces of 16 KiB and counts one by one.
LINES = 1000
# Of the manifest and the file, packed and in base64. A page with its charts has some 200 KB.
MOST_BYTES = 8 << 20
Object = Mapping[str, Any]


async def deployment_of(client: KubeClient, obj: Object, revision: str) -> Object:
    """The Deployment that the operator made for ``revision`` of the OptimisedModel ``obj``. Raises WishError,
    ClientError."""
    meta = obj["metadata"]
    called = deployment_name(meta["name"], revision)
    try:
        found = await client.get(DEPLOYMENT, meta["namespace"], called)
    except NotFoundError as error:
        raise WishError(f"{meta['name']} has no Deployment of revision {revision}, so that no replica's settings say "
                        "where its engine is; strategy Recreate makes one once it is promoted") from error
    owners = [one for one in found["metadata"].get("ownerReferences") or () if one.get("controller")]
    if [one.get("uid") for one in owners] != [meta["uid"]]:
        named = ", ".join(f"{one.get('kind')} {one.get('name')}" for one in owners) or "none"
        raise WishError(f"Deployment {called} is not the operator's: its controller is {named}, and not OptimisedModel "
                        f"{meta['name']} with uid {meta['uid']}")
    return found


def proven(obj: Object, deployment: Object) -> str:
    """The digest of the manifest of the engine that ``deployment`` serves. Raises :class:`WishError` where the status
    of ``obj`` has another one for the same engine."""
    found, engine = proven_digest(deployment["spec"]["template"]["spec"]), read_status(obj.get("status")).engine
    known = engine.manifest_digest if engine and engine.fingerprint == fingerprint_of(deployment) else None
    if known and known != found:
        raise WishError(f"Deployment {deployment['metadata']['name']} names manifest {found or 'none'} for the engine, "
                        f"and status.engine.manifestDigest is {known}: the engine was built again and the replicas "
                        "follow, or another writer changed the Deployment")
    return found


async def fetch(client: KubeClient, obj: Object, revision: str, file: str) -> bytes:
    """The content of ``file`` beside the engine of ``revision`` of ``obj``. Raises WishError, ClientError."""
    name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
    deployment = await deployment_of(client, obj, revision)
    digest = proven(obj, deployment)
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
    return checked(text, digest, file)


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
