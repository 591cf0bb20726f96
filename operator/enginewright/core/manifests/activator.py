"""What holds requests while no replica runs: a small Deployment, and the Service by which it reaches replicas."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import (
    JSON,
    Owner,
    container_ports,
    container_security,
    http_probe,
    metadata,
    pod_security,
    pull_secrets,
    resources,
    sealed,
    spread_over_nodes,
)
from enginewright.core.servers import Server
from enginewright.core.servers.triton import TRITON
from enginewright.core.spec import AutoscalingSpec


def activator_name(owner_name: str) -> str:
    return f"{owner_name}-activator"


def backend_name(owner_name: str) -> str:
    return f"{owner_name}-replicas"


def activator(owner: Owner, scaling: AutoscalingSpec, config: OperatorConfig, server: Server = TRITON) -> JSON:
    """Of replicas that run ``server``. It has no rights in the cluster: that a replica is ready it learns by asking for
    one through its own Service."""
    component = labels.COMPONENT_ACTIVATOR
    return sealed({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(owner, activator_name(owner.name), component),
        "spec": {
            "replicas": config.activator_replicas,
            "selector": {"matchLabels": labels.activator_selector(owner.name)},
            # What is held in one that ends is still delivered, but a new one must take what comes.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "revisionHistoryLimit": 1,
            "template": {
                "metadata": {"labels": labels.common(owner.name, component)},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": config.drain_seconds + _exit_seconds(scaling, config) + 5,
                    "securityContext": pod_security(config),
                    **pull_secrets(config),
                    "topologySpreadConstraints": spread_over_nodes(labels.activator_selector(owner.name)),
                    "containers": [_container(owner, scaling, config, server)],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    })


def _container(owner: Owner, scaling: AutoscalingSpec, config: OperatorConfig, server: Server) -> JSON:
    """Readiness is its own: it takes requests whether or not there is a replica."""
    return {
        "name": labels.CONTAINER_ACTIVATOR,
        "image": config.images.operator,
        "imagePullPolicy": config.pull_policy,
        "command": ["enginewright", "activate"],
        "args": [f"--backend={backend_name(owner.name)}", f"--hold-seconds={scaling.hold_seconds}",
                 f"--exit-seconds={_exit_seconds(scaling, config)}", *_paths(server)],
        "ports": container_ports(TRITON),
        "resources": resources(config.activator_resources),
        "securityContext": container_security(),
        "readinessProbe": http_probe(server.ready_path, period=2, timeout=5, failures=3),
        "livenessProbe": http_probe(server.live_path, period=10, timeout=5, failures=6),
        # Endpoints are withdrawn while it sleeps; only then does it stop taking connections.
        "lifecycle": {"preStop": {"sleep": {"seconds": config.drain_seconds}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (in the pod)
    }


def _exit_seconds(scaling: AutoscalingSpec, config: OperatorConfig) -> int:
    """A request may be held this long, and then takes as long as a replica that ends gives its own: a stream of a
    language model does."""
    return scaling.hold_seconds + config.exit_timeout


def _paths(server: Server) -> list[str]:
    """Triton's are the defaults, so that a Deployment from before there was another server stays as it is."""
    return [] if server == TRITON else [f"--live-path={server.live_path}", f"--ready-path={server.ready_path}"]
