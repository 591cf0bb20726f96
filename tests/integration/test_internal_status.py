"""A status that an older operator wrote, in a real apiserver: nothing of it is dropped, and the operator moves what it
alone remembers below ``status.internal``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from enginewright.act.report import Reporter
from enginewright.clients.credentials import load_configuration
from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import APPLY, KubeClient, Object
from enginewright.core import labels
from enginewright.core.config import DefaultStore
from enginewright.core.spec.crd import crd
from enginewright.observe.views import object_view
from support.apiserver import CRD, NAMESPACE, Models, eventually, install_crd, manifest, model

CONTEST = {"manager": "kube-controller-manager", "deployment": "m-1", "time": "2026-11-25T12:00:00Z"}
OLD: dict[str, Any] = {
    "observedGeneration": 1, "contest": CONTEST, "pin": {"revision": "a1", "specKey": "k", "released": True},
    "source": {"key": "s", "digest": "sha256:1"}, "server": {"image": "server:1", "digests": ["sha256:2"]},
    "rollout": {"stable": "a1", "falls": 2, "restarts": 1, "rolledBack": {
        "revision": "b2", "reason": "SlowerThanStable", "message": "m", "time": "2026-11-25T12:00:00Z", "retry": "1"}},
}


async def nothing() -> None:
    pass


async def test_nothing_of_an_old_status_is_dropped_and_it_is_written_once_more(models: Models) -> None:
    kube, namespace = models.kube, models.namespace
    made = await models.create({"apiVersion": labels.API_VERSION, "kind": labels.KIND, "metadata": {"name": "minilm"},
                                "spec": {"source": {"uri": "pvc://models/minilm"}}})
    await kube.apply_status(namespace, "minilm", made["metadata"]["resourceVersion"], OLD)
    kept = await models.get()
    assert kept["status"] == OLD

    view = object_view(kept, DefaultStore())
    assert view.status["rollout"]["readinessLosses"] == 2
    reporter = Reporter(kube, cast(Any, None), cast(Any, SimpleNamespace(missing=(), look=nothing)), lambda: None)
    after = await reporter.status(view, view.status)
    moved = (await models.get())["status"]
    assert moved["internal"] == {
        "contest": CONTEST, "pin": OLD["pin"], "source": {"key": "s"}, "server": {"digests": ["sha256:2"]},
        "rollout": {"readinessLosses": 2, "restarts": 1, "rolledBack": {"retry": "1"}}}
    assert {"contest", "pin"}.isdisjoint(moved)
    assert set(moved["rollout"]) == {"stable", "rolledBack"}
    assert (after.status, after.old_status) == (view.status, False)
    assert await reporter.status(after, after.status) is after, "and no more"


def owned(written: Object) -> dict[str, Any]:
    (entry,) = (one for one in written["metadata"]["managedFields"] if one["manager"] == labels.FIELD_MANAGER_STATUS)
    fields: dict[str, Any] = entry["fieldsV1"]["f:status"]
    return fields


async def test_a_status_whose_fields_were_owned_one_by_one_is_owned_as_a_whole_after_an_upgrade(
        without_crd: Path) -> None:
    """And what it does not have any more goes all the same."""
    async with KubeClient(await load_configuration(str(without_crd))) as kube:
        old = crd()
        del old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["x-kubernetes-map-type"]
        path, query = CRD.path(None, old["metadata"]["name"]), {"fieldManager": "test", "force": "true"}
        await kube._json("apply", CRD, path, query=query, body=old, content_type=APPLY)
        await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=manifest("v1", "Namespace", "prod"))
        models = Models(kube, "prod")
        written: list[Object] = []

        async def made() -> bool:
            with contextlib.suppress(NotFoundError):  # the kind is served a moment later
                written.append(await models.create(model()))
            return bool(written)

        async def taken_over() -> bool:
            """The apiserver serves the new schema a moment later."""
            before = await models.get()
            status = {"observedGeneration": 1, "replicas": len(written)}
            written.append(await kube.apply_status("prod", "minilm", before["metadata"]["resourceVersion"], status))
            assert written[-1]["status"] == status
            return owned(written[-1]) == {}

        await eventually(made)
        version = written[-1]["metadata"]["resourceVersion"]
        assert len(owned(await kube.apply_status("prod", "minilm", version, OLD))) == len(OLD)
        await install_crd(without_crd)
        await eventually(taken_over)
