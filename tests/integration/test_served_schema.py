"""The schema as the real apiserver publishes it, read with the rights that the chart gives."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from enginewright.clients.credentials import load_configuration
from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import OPTIMISED_MODEL, Resource
from enginewright.core.spec.served import missing_fields
from enginewright.reconcile.served_schema import ServedSchema
from support.apiserver import Models, eventually


@pytest.fixture
async def published(operator_kubeconfig: Path, models: Models) -> None:
    """Complete, which it must become."""
    async with KubeClient(await load_configuration(str(operator_kubeconfig))) as kube:

        async def complete() -> bool:
            try:
                found = missing_fields(await kube.published(OPTIMISED_MODEL))
            except NotFoundError:
                return False  # it is published a moment after the CRD is
            assert found == ()
            return True

        await eventually(complete)


@pytest.mark.usefixtures("published")
async def test_an_old_crd_is_told_once_and_when_it_is_mended(operator_kubeconfig: Path) -> None:
    class Ageing(KubeClient):
        without = ""

        async def published(self, resource: Resource) -> dict[str, Any]:
            found = copy.deepcopy(await super().published(resource))
            for schema in found["components"]["schemas"].values():
                spec = schema.get("properties", {}).get("spec", {}).get("properties", {})
                spec.pop(self.without, None)
            return found

    async with Ageing(await load_configuration(str(operator_kubeconfig))) as kube:
        schema = ServedSchema(kube)
        await schema.look()
        assert not schema.missing
        kube.without = "rollout"
        with capture_logs() as told:
            await schema.look()
            await schema.look()
        assert schema.missing == ("spec.rollout",)
        assert [entry["fields"] for entry in told if entry["log_level"] == "error"] == [("spec.rollout",)]
        kube.without = ""
        with capture_logs() as told:
            await schema.look()
        assert not schema.missing
        assert [entry["event"] for entry in told] == ["the CustomResourceDefinition is up to date again"]
