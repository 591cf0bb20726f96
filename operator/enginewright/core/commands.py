"""Commands that messages ask people to run."""

from __future__ import annotations

# What a message ends with that asks for another try, and programs find it by.
RETRIES = "kubectl optimisedmodel retry "


def kubectl(command: str, namespace: str) -> str:
    """``command`` for kubectl in ``namespace``: who copies it may have another one in the context. The option comes
    last, as kubectl takes none before the name of a plugin."""
    return f"kubectl {command} -n {namespace}"


def plugin(verb: str, name: str, namespace: str, *more: str) -> str:
    """The plugin's ``verb``, in place of ``kubectl annotate``, which refuses an annotation that is there already."""
    return kubectl(" ".join(("optimisedmodel", verb, name, *more)), namespace)
