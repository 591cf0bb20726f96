"""Replicas that capture requests have a key of their own and leave a record, by which captures are removed one day."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.decide.quality import REFRESH_SECONDS
from enginewright.core.plan import Apply, Create, MakeKey
from enginewright_builder.contract import CAPTURE_SECRET, QualityReport
from support.cluster import SPEC, Cluster

CAPTURE: dict[str, Any] = {**SPEC, "replicas": 1, "quality": {"capture": {}}}


def made(cluster: Cluster) -> list[str]:
    """Of the pass in which the Deployment was made, what was made for captures, in its order."""
    found = []
    for _ in range(30):
        for action in cluster.plan().actions:
            match action:
                case MakeKey(manifest=manifest) if manifest["metadata"]["name"] == CAPTURE_SECRET:
                    found.append("key")
                case Create(manifest=manifest) if labels.CAPTURES in manifest["metadata"].get("labels", {}):
                    found.append(f"record of {manifest['metadata']['annotations'][labels.CAPTURES_OF]}")
                case Apply(manifest={"kind": "Deployment"} as manifest):
                    found.append("captures" if labels.CAPTURES in manifest["metadata"]["annotations"] else "plain")
        if found:
            return found
        cluster.operate()
        cluster.settle_jobs()
        cluster.controllers()
    raise AssertionError(cluster.status)


def test_key_and_record_come_before_the_replicas() -> None:
    assert made(Cluster(spec=CAPTURE)) == ["key", "record of minilm", "captures"]


def test_without_captures_nothing_of_them_is_made() -> None:
    assert made(Cluster(spec={**CAPTURE, "quality": {}})) == ["plain"]


DIGEST = "sha256:" + "d" * 64
START, END = 1_800_000_000.0, 1_800_086_400.0


@pytest.mark.parametrize(("reports", "words"), [
    ([{}], "No capture is whole yet."),
    ([{"captured": 1500, "captured_since": START, "captured_until": END, "capture_digest": DIGEST}],
     f"The newest capture has 1500 samples of requests from 2027-01-15T08:00:00Z to 2027-01-16T08:00:00Z: {DIGEST}."),
    ([{"captured": 3, "captured_until": 1.0, "capture_digest": "sha256:" + "0" * 64},
      {"captured": 1, "captured_until": END, "capture_digest": DIGEST}], "has 1 sample of requests from"),
    ([{"capture_problem": "OSError: No space left on device"}],
     "No capture is whole yet. Requests cannot be captured: OSError: No space left on device."),
], ids=["none yet", "one", "of two replicas", "a full store"])
def test_quality_held_says_what_was_captured(reports: list[dict[str, Any]], words: str) -> None:
    cluster = Cluster(spec={**CAPTURE, "replicas": len(reports)})
    cluster.settle()
    pods = sorted(cluster.pods)
    cluster.told = {pod: QualityReport(metric="cosine", tolerance=0.01, samples=700, total=700, **report)
                    for pod, report in zip(pods, reports, strict=True)}
    cluster.wait(REFRESH_SECONDS)
    cluster.step()
    assert words in cluster.condition("QualityHeld")["message"]
    assert cluster.says("QualityHeld") == "True/Agreeing"
    assert cluster.captures, "the record"
