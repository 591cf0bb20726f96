"""How an object is remembered: as packed bytes, without what no pass looks at."""

from __future__ import annotations

import marshal
import zlib
from typing import Any

from enginewright.clients.kube import Object
from enginewright.clients.resources import CLAIM, CONFIG_MAP, DEPLOYMENT, Resource
from enginewright.observe.fields import Raw, entries, section


def packed(resource: Resource, raw: Raw) -> bytes:
    """Of ConfigMaps only the version counts, and of claims of others there may be many in a cluster."""
    if resource == CONFIG_MAP:
        return b""
    metadata = section(raw, "metadata")
    if resource == CLAIM:
        few = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
        slim: dict[str, Any] = {"metadata": few, "status": {"phase": section(raw, "status").get("phase")}}
    else:
        slim = {**raw, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
        if resource == DEPLOYMENT:  # who has written its spec is distinguished
            slim["metadata"]["managedFields"] = [one for one in entries(raw, "metadata", "managedFields")
                                                 if one.get("subresource") != "status"]
    # In half of the time that JSON takes. It never leaves the process, and is made of what was JSON.
    return zlib.compress(marshal.dumps(slim), 1)


def unpacked(body: bytes) -> Object:
    found: Object = marshal.loads(zlib.decompress(body))  # noqa: S302
    return found
