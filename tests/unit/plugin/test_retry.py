"""``kubectl optimisedmodel retry`` asks only where something failed."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core import labels
from enginewright.plugin.wishes import WishError, retry

FAILURE = {"reason": "StoreFull", "message": "No space is left."}
GIVEN_UP = {"revision": "0a1b2c3d", "reason": "ReplicasNotReady", "message": "It never started.",
            "time": "2026-11-21T12:00:00Z"}
ROW = {"name": "big", "model": "minilm-big", "ready": "False", "reason": "BuildFailed"}


def model(status: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "minilm", "namespace": "team"}, "status": status}


@pytest.mark.parametrize("status", [
    {}, {"rollout": {"phase": "Complete", "stable": "0a1b2c3d"}},
    {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "It serves.",
                     "lastTransitionTime": "2026-11-21T12:00:00Z", "observedGeneration": 1}]},
])
def test_nothing_has_failed(status: dict[str, Any]) -> None:
    with pytest.raises(WishError, match=r"nothing of minilm has failed.* optimisedmodel rebuild minilm -n team"):
        retry(model(status), "now")


@pytest.mark.parametrize("status", [
    {"source": {"key": "k", "failure": FAILURE}}, {"source": {"key": "k", "lastFailure": FAILURE}},
    {"build": {"fingerprint": "f" * 64, "failure": FAILURE}},
    {"rollout": {"phase": "RolledBack", "rolledBack": GIVEN_UP}},
    {"conditions": [{"type": "Ready", "status": "False", "reason": "Any",
                     "message": "Run kubectl optimisedmodel retry minilm -n team.",
                     "lastTransitionTime": "2026-11-21T12:00:00Z", "observedGeneration": 1}]},
    {"classes": [ROW]},
], ids=["source", "waits", "build", "rollout", "told", "fleet"])
def test_what_failed_is_tried_again(status: dict[str, Any]) -> None:
    assert retry(model(status), "now") == ({labels.RETRY: "now"}, "the operator retries what failed of minilm")
