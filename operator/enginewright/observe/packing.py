"""How an object is remembered: as packed bytes, without what no pass looks at."""

from __future__ import annotations

import json
import zlib
from typing import Any

from enginewright.clients.kube import Object
from enginewright.clients.resources import CLAIM, CONFIG_MAP, DEPLOYMENT, Resource
from enginewright.observe.fields import Raw, section


def packed(resource: Resource, raw: Raw) -> bytes:
    """Of ConfigMaps only the version counts, and of claims of others there may be many in a cluster."""
    if resource == CONFIG_MAP:
        return b""
    metadata = section(raw, "metadata")
    if resource == CLAIM:
        few = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
        slim: dict[str, Any] = {"metadata": few, "status": {"phase": section(raw, "status").get("phase")}}
    elif resource == DEPLOYMENT:  # its managers are distinguished
        slim = dict(raw)
    else:
        slim = {**raw, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    return zlib.compress(json.dumps(slim, separators=(",", ":")).encode(), 1)


def unpacked(body: bytes) -> Object:
    found: Object = json.loads(zlib.decompress(body))
    return found
