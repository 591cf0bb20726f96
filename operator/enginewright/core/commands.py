"""Commands that messages ask people to run."""

from __future__ import annotations

RETRY_HINT = "Change the spec, or annotate the object with enginewright.io/retry=<anything new> to try again."


def kubectl(command: str, namespace: str) -> str:
    """``command`` for kubectl in ``namespace``: who copies it may have another one in the context. The option comes
    last, as kubectl takes none before the name of a plugin."""
    return f"kubectl {command} -n {namespace}"
