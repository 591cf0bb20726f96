"""Users who have the cluster's own roles in a namespace, and what the chart lets them do with models there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.apiserver import eventually, model
from support.kubectl import Kubectl

Objects = Callable[[dict[str, Any]], dict[str, list[dict[str, Any]]]]
READ = {("get", ""), ("list", ""), ("watch", ""), ("get", "status"), ("get", "scale")}
WRITE = {("create", ""), ("update", ""), ("patch", ""), ("delete", ""), ("update", "scale"), ("patch", "scale")}
NEVER = {("update", "status"), ("patch", "status"), ("update", "finalizers")}


def user_roles(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    mark = "rbac.authorization.k8s.io/aggregate-to-admin"
    return [role for role in found.get("ClusterRole", []) if mark in role["metadata"]["labels"]]


@pytest.mark.parametrize("values", [{"rbac": {"userRoles": False}}, {"watchNamespaces": ["team-a"]}])
def test_there_are_none_where_nobody_wants_or_may_have_them(objects: Objects, values: dict[str, Any]) -> None:
    assert len(user_roles(objects({}))) == 2
    assert user_roles(objects(values)) == []


@pytest.mark.parametrize(("role", "may"), [("view", READ), ("edit", READ | WRITE), ("admin", READ | WRITE)])
async def test_the_clusters_roles_count_for_models(
    objects: Objects, control_plane: Path, namespace: str, role: str, may: set[tuple[str, str]]
) -> None:
    kubectl = Kubectl(control_plane, namespace)
    for item in user_roles(objects({})):
        kubectl("apply", "-f", "-", stdin=item)
    kubectl("create", "rolebinding", "tenant", f"--clusterrole={role}", f"--user={namespace}")

    def allowed(verb: str, part: str, where: str = namespace) -> bool:
        resource = "optimisedmodels.enginewright.io"
        named = [f"--subresource={part}"] if part else []
        said = kubectl.run("auth", "can-i", verb, resource, *named, "-n", where, f"--as={namespace}").stdout
        return said.strip() == "yes"

    def taken_in() -> bool:
        assert {one for one in READ | WRITE | NEVER if allowed(*one)} == may
        return True

    await eventually(lambda: asyncio.to_thread(taken_in))
    assert not allowed("get", "", "default")


async def test_who_edits_makes_scales_and_removes(objects: Objects, control_plane: Path, namespace: str) -> None:
    kubectl = Kubectl(control_plane, namespace)
    for item in user_roles(objects({})):
        kubectl("apply", "-f", "-", stdin=item)
    kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={namespace}")
    tenant = f"--as={namespace}"

    def made() -> bool:
        return kubectl.run("create", "-f", "-", tenant, stdin=model()).returncode == 0

    await eventually(lambda: asyncio.to_thread(made))
    kubectl("get", "om/minilm", tenant)
    kubectl("scale", "om/minilm", "--replicas=2", tenant)
    assert kubectl("get", "om/minilm", "-o", "jsonpath={.spec.replicas}", tenant) == "2"
    refused = kubectl.run("patch", "om/minilm", "--subresource=status", "--type=merge", "-p", '{"status":{}}', tenant)
    assert "forbidden" in refused.stderr
    kubectl("delete", "om/minilm", tenant)
