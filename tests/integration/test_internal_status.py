"""A status that an older operator wrote, in a real apiserver: nothing of it is dropped, and the operator moves what it
alone remembers below ``status.internal``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from enginewright.act.report import Reporter
from enginewright.core import labels
from enginewright.observe.views import object_view
from support.apiserver import Models

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

    view = object_view(kept)
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
