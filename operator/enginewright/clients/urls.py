"""Where a pod is asked."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import quote

from enginewright.clients.errors import UnexpectedError

# How many addresses to keep the URLs of: the scaler asks each replica once a second.
REMEMBERED: Final = 4096


@lru_cache(REMEMBERED)
def pod_url(address: str, port: int, *path: str) -> str:
    """``address`` is an IP address of either family; a name would be asked of the cluster's DNS, and could lead
    anywhere. ``path`` are the segments, each of which stays one whatever it holds. Raises :class:`UnexpectedError`."""
    try:
        found = ip_address(address)
    except ValueError as error:
        raise UnexpectedError(f"{address!r} is not the address of a pod") from error
    if {"", ".", ".."} & set(path):
        raise UnexpectedError(f"{path!r} is not a path of a pod's server")
    host = f"[{found}]" if isinstance(found, IPv6Address) else str(found)
    return f"http://{host}:{port}/" + "/".join(quote(segment, safe="") for segment in path)
