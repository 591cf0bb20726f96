from __future__ import annotations

from support.control_plane import control_plane, kube, kubelet, models, namespace, operator_kubeconfig

__all__ = ["control_plane", "kube", "kubelet", "models", "namespace", "operator_kubeconfig"]
