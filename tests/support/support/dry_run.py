"""What an apiserver would say against an object, without keeping it: as ``kubectl create --dry-run=server`` asks, but
without a process for each object."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import config

TRIAL = "?dryRun=All&fieldValidation=Strict&fieldManager=kubectl-create"
# `Warning: 299 - "text"`: the code and the agent say nothing here.
WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class Apiserver:
    """One that a kubeconfig names, with its credentials."""

    def __init__(self, kubeconfig: Path) -> None:
        client = config.new_client_from_config(str(kubeconfig))
        self._host = client.configuration.host
        self._pool: urllib3.PoolManager = client.rest_client.pool_manager
        credentials = client.configuration.auth_settings()  # empty with a certificate
        self._headers = {"Content-Type": "application/json",
                         **{one["key"]: one["value"] for one in credentials.values()}}
        self._resources: dict[tuple[str, str], dict[str, Any]] = {}

    def said_against(self, body: dict[str, Any], namespace: str) -> str:
        """Errors and warnings, empty when the object would be taken as it is. An object without a namespace is for
        ``namespace``."""
        resource = self._resource(body["apiVersion"], body["kind"])
        if resource is None:
            return f'no matches for kind "{body["kind"]}" in version "{body["apiVersion"]}"'
        where = body["metadata"].get("namespace", namespace)
        inside = f"/namespaces/{where}" if resource["namespaced"] else ""
        answer = self._pool.request(
            "POST", f"{self._host}{_group(body['apiVersion'])}{inside}/{resource['name']}{TRIAL}",
            body=json.dumps(body), headers=self._headers, timeout=60)
        warnings = WARNING.findall(answer.headers.get("Warning", ""))
        error = [] if answer.status < 300 else [json.loads(answer.data)["message"]]
        return "\n".join([*warnings, *error])

    def _resource(self, version: str, kind: str) -> dict[str, Any] | None:
        """What discovery says of a kind; ``None`` of one that is not there (yet)."""
        if (version, kind) not in self._resources:
            answer = self._pool.request("GET", f"{self._host}{_group(version)}", headers=self._headers)
            found = json.loads(answer.data).get("resources", []) if answer.status == 200 else []
            self._resources |= {(version, one["kind"]): one for one in found if "/" not in one["name"]}
        return self._resources.get((version, kind))


def _group(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


@functools.cache
def apiserver(kubeconfig: Path) -> Apiserver:
    """One for each kubeconfig, so that connections are kept."""
    return Apiserver(kubeconfig)
