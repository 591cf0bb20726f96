"""Bringing an engine's ``report.html`` out of the store, which only pods can read.

A pod that runs for a second prints the file; the image, the store's claim or bucket and the path are those with which
the serving revision checks its engine.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, POD
from enginewright.core import labels
from enginewright.plugin.wishes import WishError

POLL_SECONDS = 0.5
DEADLINE_SECONDS = 90.0
# A page is one line, which the node keeps in pieces of 16 KiB and counts one by one.
LINES = 1000
PRINT = ("import base64, pathlib, sys, zlib; "
         "print(base64.b64encode(zlib.compress(pathlib.Path(sys.argv[1]).read_bytes(), 9)).decode())")
PRINT_FROM_BUCKET = ("import base64, sys, zlib; from enginewright_builder.bucket.engines import read_file; "
                     "print(base64.b64encode(zlib.compress(read_file(*sys.argv[1:]), 9)).decode())")
Object = Mapping[str, Any]


def reader(name: str, deployment: Object, file: str) -> dict[str, Any]:
    """The pod. Raises :class:`WishError` where the Deployment is none of ours."""
    template = deployment["spec"]["template"]["spec"]
    verify = next((one for one in template.get("initContainers", ()) if one["name"] == labels.CONTAINER_VERIFY), None)
    if verify is None:
        raise WishError(f"Deployment {deployment['metadata']['name']} has no container {labels.CONTAINER_VERIFY}")
    keep = ("serviceAccountName", "imagePullSecrets", "securityContext", "tolerations", "nodeSelector", "affinity")
    mounted = () if labels.VERIFY_FROM in verify["args"] else ("engine",)
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
                **{key: verify[key] for key in ("image", "imagePullPolicy", "envFrom", "resources", "securityContext")
                   if key in verify},
                "name": "report",
                "command": ["python3", "-c", *_program(verify["args"], file)],
                "volumeMounts": [mount for mount in verify["volumeMounts"] if mount["name"] in mounted],
            }],
            "volumes": [volume for volume in template["volumes"] if volume["name"] in mounted],
        },
    }  # fmt: skip


def _program(arguments: list[str], file: str) -> list[str]:
    """What prints the file, and its arguments."""
    if labels.VERIFY_FROM not in arguments:
        return [PRINT, f"{arguments[0]}/{file}"]
    bucket = arguments[arguments.index(labels.VERIFY_FROM) + 1]
    return [PRINT_FROM_BUCKET, bucket, arguments[0].rpartition("/")[2], file]


async def fetch(client: KubeClient, namespace: str, name: str, revision: str, file: str) -> bytes:
    """The content of ``file`` beside the engine of ``revision``. Raises WishError, ClientError."""
    selector = labels.as_selector(labels.revision_selector(name, revision))
    found = await client.list_all(DEPLOYMENT, namespace, labels=selector)
    if not found:
        raise WishError(f"{name} has no Deployment of revision {revision}")
    made = await client.create(reader(name, found[0], file), namespace=namespace)
    pod = made["metadata"]["name"]
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            text = await _printed(client, namespace, pod)
    except TimeoutError:
        why = "the store's volume may be attached to a node that has no room, or its bucket out of reach"
        raise WishError(f"pod {pod} did not run within {DEADLINE_SECONDS:.0f} s; {why}") from None
    finally:
        await client.delete(POD, namespace, pod)
    return unpack(text, file)


def unpack(text: str, file: str) -> bytes:
    """What :data:`PRINT` printed. Raises :class:`WishError`."""
    try:
        return zlib.decompress(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, zlib.error, ValueError):
        last = text.strip().splitlines()[-1:] or ["nothing"]
        raise WishError(f"{file} could not be read from the store: {last[0]}") from None


async def _printed(client: KubeClient, namespace: str, pod: str) -> str:
    while True:
        phase = (await client.get(POD, namespace, pod)).get("status", {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            return await client.logs(namespace, pod, "report", tail=LINES, deadline=10.0)
        await asyncio.sleep(POLL_SECONDS)
