"""Scaling inside a pass: decisions in status, one event each, and what happens while two revisions run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.config import Prices
from enginewright.core.signals import SignalWindow
from support.cluster import SPEC, START, Cluster, built, described, resolved

AUTO = {"minReplicas": 1, "maxReplicas": 6, "targetQueueDepth": 4,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 30}}}
MEASURED = {**AUTO, "targetQueueDepth": None}
BY_PROMETHEUS = {"source": "prometheus", "prometheus": {"url": "http://p:9090"}}


def serving(**spec: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, "autoscaling": AUTO, **spec})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def replicas(cluster: Cluster) -> list[int]:
    return list(cluster.replicas().values())


def test_no_replica_is_asked_before_one_serves() -> None:
    cluster = Cluster(spec={**SPEC, "autoscaling": AUTO})
    cluster.operate()
    assert not cluster.last.watch_queue
    assert cluster.says("ScalingActive") == "Unknown/WaitingForEngine"


def test_first_deployment_starts_with_the_least() -> None:
    assert replicas(serving(autoscaling={**AUTO, "minReplicas": 2})) == [2]


def test_load_scales_up_with_decision_event_and_reason() -> None:
    cluster = serving()
    cluster.queue(18)
    plan = cluster.operate()
    assert described(plan) == [f"Scale minilm-{cluster.revision} 5"]
    assert plan.watch_queue
    assert [event.reason for event in plan.events if event.action == "Scale"] == ["Scaling"]
    decision = cluster.status["autoscaling"]["decisions"][0]
    assert (decision["from"], decision["to"]) == (1, 5)
    assert "18 queued requests" in decision["reason"]
    assert cluster.status["autoscaling"]["queueDepth"] == 18
    assert cluster.status["autoscaling"]["desiredReplicas"] == 5
    assert cluster.status["summary"]["queue"] == "18"
    assert cluster.says("ScalingActive") == "True/Scaling"
    cluster.controllers()
    cluster.queue(18)
    cluster.operate()
    cluster.controllers()
    cluster.operate()
    assert cluster.says("ScalingActive") == "True/Steady"
    assert cluster.says("Ready") == "True/Serving"


def test_a_ceiling_without_a_price_keeps_what_there_is_and_says_so() -> None:
    cluster = Cluster(spec={**SPEC, "autoscaling": {**AUTO, "costCeilingPerHour": 3}})
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(device_class="cpu"))
    cluster.settle()
    cluster.queue(18)
    assert not cluster.operate().actions
    assert cluster.last.limits is None  # nor is anything decided between passes
    assert cluster.says("ScalingActive") == "False/PriceUnknown"
    told = cluster.condition("ScalingActive")["message"]
    assert "costCeilingPerHour 3: no price of cpu is known. Add it to config.prices.perHour" in told
    cluster.config = replace(cluster.config, prices=Prices(currency="EUR", per_hour={"cpu": 1.5}))
    cluster.queue(18)
    assert described(cluster.operate()) == [f"Scale minilm-{cluster.revision} 2"]
    assert "pays for 2 at 1.5 each" in cluster.status["autoscaling"]["decisions"][0]["reason"]


def test_a_schedule_holds_by_the_clock_of_the_pass() -> None:
    minute = START.minute
    night = {"name": "soon", "start": f"{(minute + 5) % 60} * * * *", "end": f"{(minute + 15) % 60} * * * *",
             "minReplicas": 3}
    cluster = serving(autoscaling={**AUTO, "schedules": [night]})
    seen = []
    for _ in range(20):
        cluster.wait(60)
        cluster.queue(0)
        cluster.operate()
        cluster.controllers()
        seen.append(replicas(cluster)[0])
    assert set(seen) == {1, 3}
    assert seen[0] == 1
    assert seen[-1] == 1
    assert "By minReplicas 3 of schedule soon." in cluster.status["autoscaling"]["decisions"][1]["reason"]


def test_idleness_scales_down_after_the_window() -> None:
    cluster = serving()
    cluster.queue(18)
    cluster.operate()
    cluster.controllers()
    seen = []
    for _ in range(20):
        cluster.queue(0)
        cluster.operate()
        cluster.controllers()
        seen.append(replicas(cluster)[0])
    assert seen[0] == 5
    assert seen[-1] == 1
    assert sorted(set(seen)) == [1, 5]
    assert [(d["from"], d["to"]) for d in cluster.status["autoscaling"]["decisions"]] == [(5, 1), (1, 5)]


def test_decisions_are_bounded_and_newest_first() -> None:
    cluster = serving()
    for depth in (6, 10, 14, 18, 22) * 4:
        cluster.edit(autoscaling={**AUTO, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}})
        cluster.queue(depth)
        cluster.operate()
        cluster.controllers()
        cluster.wait(61)
        cluster.queue(0)
        cluster.operate()
        cluster.controllers()
    decisions = cluster.status["autoscaling"]["decisions"]
    assert len(decisions) == 10
    assert [d["time"] for d in decisions] == sorted((d["time"] for d in decisions), reverse=True)


def test_a_decision_that_was_not_carried_out_is_not_noted_twice() -> None:
    cluster = serving()
    cluster.queue(18)
    kept = dict(cluster.deployments)
    cluster.operate()
    cluster.deployments = kept  # the write was lost
    cluster.queue(18, seconds=1)
    plan = cluster.operate()
    assert described(plan) == [f"Scale minilm-{cluster.revision} 5"]
    assert len(cluster.status["autoscaling"]["decisions"]) == 1


def test_queue_depth_in_status_is_refreshed_sparingly() -> None:
    cluster = serving()
    cluster.queue(2)
    cluster.operate()
    cluster.controllers()
    cluster.queue(2)
    cluster.operate()
    writes = 0
    for second in range(30):
        cluster.queue(second // 3 % 4, seconds=1)
        before = cluster.status
        cluster.operate()
        writes += cluster.status != before
    assert 1 <= writes <= 3


def test_blindness_holds_and_says_so() -> None:
    cluster = serving()
    cluster.queue(18)
    cluster.operate()
    cluster.controllers()
    cluster.wait(60)
    assert not cluster.operate().actions
    assert cluster.says("ScalingActive") == "Unknown/Holding"
    assert replicas(cluster) == [5]


def test_restarted_operator_goes_on_with_what_there_is() -> None:
    cluster = serving()
    cluster.queue(18)
    cluster.operate()
    cluster.controllers()
    cluster.signals = None
    assert not cluster.operate().actions
    cluster.signals = SignalWindow(started=cluster.monotonic)
    for _ in range(9):
        cluster.queue(0)
        cluster.operate()
        assert replicas(cluster) == [5]


def test_manual_replicas_win_when_autoscaling_is_absent() -> None:
    cluster = Cluster(spec={**SPEC, "replicas": 3})
    cluster.settle()
    cluster.queue(100)
    plan = cluster.operate()
    assert not plan.actions
    assert not plan.watch_queue
    assert cluster.says("ScalingActive") == "True/Manual"
    assert "autoscaling" not in cluster.status
    assert replicas(cluster) == [3]


def test_suspend_leaves_replicas_alone() -> None:
    cluster = serving()
    cluster.edit(suspend=True)
    cluster.queue(100)
    assert not cluster.operate().actions
    assert cluster.says("ScalingActive") == "Unknown/Suspended"


def rolling(cluster: Cluster) -> tuple[str, str]:
    old = cluster.revision
    cluster.edit(engine={"precision": "fp32"})
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    cluster.operate()
    for _ in range(4):
        cluster.controllers()
        cluster.operate()
    return old, next(iter(set(cluster.replicas()) - {old}))


def test_during_a_canary_the_stable_revision_scales_up_and_nothing_scales_down() -> None:
    cluster = serving(rollout={"analysis": {"seconds": 240}})
    old, new = rolling(cluster)
    assert cluster.replicas() == {old: 1, new: 1}
    cluster.queue(14)
    cluster.operate()
    assert cluster.replicas() == {old: 4, new: 1}
    cluster.controllers()
    for _ in range(15):  # 45 s: longer than the window, shorter than the analysis
        cluster.queue(0)
        cluster.operate()
    assert cluster.replicas() == {old: 4, new: 1}
    for _ in range(60):
        cluster.queue(14, seconds=1)
        cluster.operate()
        cluster.controllers()
        if cluster.says("RolloutComplete") == "True/Complete":
            break
    assert cluster.replicas() == {new: 4}


def test_what_is_said_while_fewer_replicas_would_do_stays_the_same() -> None:
    """Else each sample would cost a write of status."""
    cluster = serving(rollout={"analysis": {"seconds": 240}})
    rolling(cluster)
    cluster.queue(14)
    cluster.operate()
    cluster.controllers()
    said = set()
    for _ in range(20):  # 60 s, twice the window
        cluster.queue(0)
        cluster.operate()
        cluster.controllers()
        said.add((cluster.says("ScalingActive"), cluster.condition("ScalingActive")["message"]))
    ((state, text),) = said
    assert state == "True/Steady"
    assert text.endswith("between 4 and 6 replicas (at least by the rollout, which takes none away while two revisions "
                         "run).")
    assert cluster.last.limits is not None
    assert cluster.last.limits.min_replicas == 4, "nor does the scraper ask for a pass that would change nothing"


HALF = [{"weight": 50}]


@pytest.mark.parametrize(("rollout", "least", "high", "low"), [
    ({}, 1, {"old": 4, "new": 1}, {"old": 1, "new": 1}),
    ({}, 2, {"old": 4, "new": 1}, {"old": 2, "new": 1}),
    ({"maxSurge": 0}, 1, {"old": 3, "new": 1}, {"old": 1, "new": 1}),
    ({"steps": HALF}, 1, {"old": 2, "new": 2}, {"old": 1, "new": 1}),
    ({"steps": HALF, "maxSurge": 0}, 1, {"old": 2, "new": 2}, {"old": 1, "new": 1}),
    ({"steps": HALF, "maxSurge": 3}, 2, {"old": 2, "new": 2}, {"old": 1, "new": 1}),
    ({"strategy": "BlueGreen"}, 1, {"old": 4, "new": 4}, {"old": 1, "new": 1}),
    ({"strategy": "BlueGreen"}, 2, {"old": 4, "new": 4}, {"old": 2, "new": 2}),
])
def test_while_a_candidate_waits_to_be_promoted_replicas_follow_the_load_down(
    rollout: dict[str, Any], least: int, high: dict[str, int], low: dict[str, int]
) -> None:
    cluster = serving(autoscaling={**AUTO, "minReplicas": least},
                      rollout={"autoPromote": False, "analysis": {"seconds": 30}, **rollout})
    for _ in range(3):
        cluster.queue(14)
        cluster.operate()
        cluster.controllers()
    old, new = rolling(cluster)

    def there() -> dict[str, int]:
        found = cluster.replicas()
        return {"old": found[old], "new": found[new]}

    for _ in range(60):
        cluster.queue(14)
        cluster.operate()
        cluster.controllers()
    assert cluster.says("RolloutComplete") == "False/WaitingForPromotion"
    assert there() == high
    seen = []
    for _ in range(25):
        cluster.queue(0)
        cluster.operate()
        cluster.controllers()
        seen.append(there())
    assert cluster.says("RolloutComplete") == "False/WaitingForPromotion"
    assert seen[0] == high, "a window has to pass"
    assert seen[-1] == low
    assert all(min(one.values()) >= 1 for one in seen), "none loses its last replica"
    assert cluster.says("ScalingActive") == "True/Steady"


def test_what_a_rollout_runs_of_max_surge_is_not_counted_as_needed() -> None:
    cluster = serving(autoscaling={**AUTO, "minReplicas": 2, "maxReplicas": 20},
                      rollout={"maxSurge": 3, "steps": [{"weight": 10}], "analysis": {"seconds": 600}})
    old, new = rolling(cluster)
    for _ in range(10):
        cluster.queue(0)
        cluster.operate()
        cluster.controllers()
    assert cluster.replicas() == {old: 4, new: 1}
    assert cluster.status["autoscaling"]["desiredReplicas"] == 2


def test_while_an_engine_is_built_the_stable_revision_scales_both_ways() -> None:
    cluster = serving()
    cluster.edit(engine={"precision": "fp32"})
    cluster.queue(14)
    cluster.operate()
    cluster.controllers()
    assert replicas(cluster) == [4]
    for _ in range(20):
        cluster.queue(0)
        cluster.operate()
        cluster.controllers()
    assert replicas(cluster) == [1]
    assert cluster.running("build")


def test_hand_made_number_is_corrected() -> None:
    cluster = serving()
    name = f"minilm-{cluster.revision}"
    cluster.deployments[name] = replace(cluster.deployments[name], spec_replicas=40)
    cluster.operate()
    assert replicas(cluster) == [6]


def busy(cluster: Cluster, rate: float, seconds: int = 8) -> None:
    """``seconds`` scrapes that tell of ``rate`` arrivals a second and an empty queue."""
    for _ in range(seconds):
        cluster.queue(0, seconds=1)
        assert cluster.signals is not None
        *before, newest = cluster.signals.samples
        cluster.signals = replace(cluster.signals, samples=(*before, replace(newest, arrived=rate)))


def test_arrivals_scale_by_the_record_of_the_engine_that_serves() -> None:
    cluster = serving(autoscaling=MEASURED)
    busy(cluster, 1000)  # one replica was measured to do 900 a second
    cluster.operate()
    assert replicas(cluster) == [3]  # two would do 900 each, but not with 4 queued at the most
    assert "1000.0 requests/s" in cluster.status["autoscaling"]["decisions"][0]["reason"]


@pytest.mark.parametrize("edit", [{"algorithm": "queue"}, BY_PROMETHEUS])
def test_queue_depth_alone_decides_unless_asked_and_where_arrivals_cannot_be_read(edit: dict[str, Any]) -> None:
    cluster = serving(autoscaling={**MEASURED, **edit})
    busy(cluster, 1000)
    cluster.operate()
    assert replicas(cluster) == [1]
    assert cluster.says("ScalingActive") == "True/Steady"


def test_an_objective_below_the_compute_time_is_said_with_the_difference() -> None:
    cluster = serving(autoscaling=MEASURED)
    cluster.edit(objective={"latency": {"milliseconds": 3}})
    busy(cluster, 100)
    cluster.operate()
    if cluster.says("ScalingActive") != "False/ObjectiveOutOfReach":
        cluster.settle()
        busy(cluster, 100)
        cluster.operate()
    assert cluster.says("ScalingActive") == "False/ObjectiveOutOfReach"
    assert "3 is 2 ms less than the 5 ms" in cluster.condition("ScalingActive")["message"]
