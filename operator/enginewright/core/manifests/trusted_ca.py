"""The certificates that Jobs and the containers which fetch engines trust, where the installation names some."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.common import JSON

# Of OpenSSL, httpx and the client of buckets; of requests, which sends traces.
VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def trusted_variables(config: OperatorConfig) -> dict[str, str]:
    trusted = config.trusted_ca
    return dict.fromkeys(VARIABLES, f"{labels.TRUSTED_PATH}/{trusted.key}") if trusted.config_map else {}


def trusted_mounts(config: OperatorConfig) -> list[JSON]:
    mount = {"name": labels.VOLUME_TRUSTED, "mountPath": labels.TRUSTED_PATH, "readOnly": True}
    return [mount] if config.trusted_ca.config_map else []


def trusted_volumes(config: OperatorConfig) -> list[JSON]:
    """A pod waits for the ConfigMap: without it every connection would fail for another reason."""
    trusted = config.trusted_ca
    if not trusted.config_map:
        return []
    return [{"name": labels.VOLUME_TRUSTED, "configMap": {"name": trusted.config_map,
                                           "items": [{"key": trusted.key, "path": trusted.key}]}}]
