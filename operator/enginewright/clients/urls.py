"""Where a pod is asked."""

from __future__ import annotations


def pod_url(address: str, port: int, path: str) -> str:
    """``address`` is of either family, ``path`` begins with a slash."""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}{path}"
