"""What a pass asks the scraper for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.reconcile.targets import target_of
from support.cluster import SPEC, Cluster, built


def test_a_rollout_is_no_step_of_the_scaler() -> None:
    """Pods of two revisions are twice what is asked for: policies count from what was asked for a period ago."""
    scaling = {"minReplicas": 3, "maxReplicas": 9}
    cluster = Cluster(spec={**SPEC, "autoscaling": scaling, "rollout": {"analysis": {"seconds": 60}}})
    cluster.settle()
    seen = set()
    for step in range(40):
        if step == 2:
            cluster.edit(engine={"precision": "fp32"})
        plan = cluster.operate()
        target = target_of(cluster.view(), cluster.observe(), plan)
        assert target.current == 3
        seen.add((len(cluster.deployments), len(target.replicas), target.limits is not None))
        cluster.finish(built(built_at=cluster.now), of="build")
        cluster.controllers()
        cluster.wait(10)
    assert (1, 3, True) in seen
    assert any(deployments == 2 and ready != 3 and not judged for deployments, ready, judged in seen)


def test_without_a_word_of_status_those_that_are_ready_count() -> None:
    cluster = Cluster(spec={**SPEC, "autoscaling": {"minReplicas": 2, "maxReplicas": 4}})
    cluster.settle()
    plan = replace(cluster.operate(), status={})
    nobody = replace(cluster.observe(), deployments=())
    assert target_of(cluster.view(), nobody, plan).current == len(cluster.pods) == 2


@pytest.mark.parametrize(("placement", "metered"), [
    ({"accelerator": "gpu"}, True),
    ({"accelerator": "gpu", "mig": {"profile": "1g.10gb"}}, False),  # the counters are of the whole GPU
    ({"accelerator": "cpu"}, False),
])
@pytest.mark.parametrize("scaling", [{}, {"autoscaling": {"minReplicas": 1, "maxReplicas": 2}}])
def test_energy_is_read_of_whole_gpus(placement: dict[str, Any], metered: bool, scaling: dict[str, Any]) -> None:
    cluster = Cluster(spec={**SPEC, "placement": placement, **scaling})
    plan = cluster.operate()
    assert target_of(cluster.view(), cluster.observe(), plan).metered is metered
