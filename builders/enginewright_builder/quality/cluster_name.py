"""The absolute name of a Service. No search domain is put behind it: one outside of the cluster may have a wildcard
record, which answers to any name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

RESOLV_CONF: Final = Path("/etc/resolv.conf")
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"


def absolute_name(service: str, namespace: str, resolv_conf: Path) -> str:
    """``SERVICE.NAMESPACE.svc.DOMAIN.``, with the dot at its end that says that it is whole; empty where the domain
    is unknown.

    The kubelet writes ``NAMESPACE.svc.DOMAIN`` before all else that is searched in (resolv.conf(5): the last such line
    counts). A pod has no other word of the cluster's domain.
    """
    try:
        text = resolv_conf.read_text(errors="replace")
    except OSError:
        return ""
    lines = [words[1:] for words in map(str.split, text.splitlines()) if words and words[0] == "search"]
    start = f"{namespace}.svc."
    for word in lines[-1] if lines and namespace else []:
        entry = word.lower().removesuffix(".")
        if entry.startswith(start) and re.fullmatch(_DOMAIN, entry.removeprefix(start)):
            return f"{service}.{entry}."
    return ""
