"""Where the operator's credentials come from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubernetes.aio import config as kube_config
from kubernetes.aio.client.configuration import Configuration

from enginewright.clients.errors import RefusedError

IN_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def load_configuration(kubeconfig: str | None = None, context: str | None = None) -> Configuration:
    """In-cluster credentials when the process runs in a pod and neither ``kubeconfig`` nor ``context`` is named, else
    the kubeconfig file (``KUBECONFIG`` or ``~/.kube/config`` by default), of its current context by default. Raises
    :class:`RefusedError` naming what is missing."""
    configuration = _fresh()
    try:
        if kubeconfig is None and context is None:
            try:
                kube_config.load_incluster_config(client_configuration=configuration)
                return configuration
            except kube_config.ConfigException:
                configuration = _fresh()
        await kube_config.load_kube_config(
            config_file=kubeconfig, context=context, client_configuration=configuration, persist_config=False
        )
    except (kube_config.ConfigException, OSError) as error:
        where = kubeconfig or "the service account, KUBECONFIG and ~/.kube/config"
        raise RefusedError(f"no credentials for Kubernetes in {where}: {error}") from error
    return configuration


def current_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace of that context, or of the kubeconfig's current one; ``default`` where it names none, or there is
    no such context or kubeconfig."""
    try:
        contexts, current = kube_config.list_kube_config_contexts(config_file=kubeconfig)
    except (kube_config.ConfigException, OSError):
        return "default"
    named = current if context is None else next((one for one in contexts if one["name"] == context), {})
    return str(named.get("context", {}).get("namespace") or "default")


def own_namespace(kubeconfig: str | None = None) -> str:
    """That of the pod whose credentials :func:`load_configuration` takes, else as :func:`current_namespace`."""
    if kubeconfig is None and IN_POD.is_file():
        return IN_POD.read_text().strip()
    return current_namespace(kubeconfig)


def _fresh() -> Configuration:
    """The apiserver is reached directly, or through the kubeconfig's own ``proxy-url``: proxy variables that a pod was
    given for the outside world do not concern it, and looking them up costs two threads' turns a call."""
    return Configuration(client_session_kwargs={"trust_env": False})
