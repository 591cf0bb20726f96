"""Live requests that a candidate is asked as well, on a real node: what agrees is promoted, what is wrong on them alone
is not."""

from __future__ import annotations

from typing import Any

from enginewright.core.comparison.mirrored import LEAST_MIRRORED
from support.bench import WATCHED, Bench
from support.candidates import plant

# How fast the candidates are is not what this is about, on a machine with other things to do.
ANALYSIS = {"mirror": True, "maxSlowdown": 10}
SPEC: dict[str, Any] = {**WATCHED, "replicas": 1, "rollout": {"analysis": {"seconds": 60, **ANALYSIS}}}
SOUND = {**SPEC, "engine": {"maxBatchSize": 4}}
# Here the operator sends many requests of its own, on which the engine is right.
NARROW = {**SPEC, "engine": {"maxBatchSize": 2}, "rollout": {**SPEC["rollout"], "strategy": "BlueGreen"}}


def test_live_requests_promote_what_agrees_and_give_up_what_is_wrong_on_them_alone(stocked_bench: Bench) -> None:
    bench = stocked_bench
    bench.apply("tiny", **SPEC)
    engine = bench.wait("tiny", "condition=Ready")["status"]["fingerprint"]
    with bench.loaded("tiny"):
        sound = plant(bench, "tiny", SOUND, engine=engine, fault="equal")
        bench.apply("tiny", **SOUND)
        live = bench.wait("tiny", "jsonpath={.status.rollout.step}=Switching")["status"]["rollout"]["analysis"]
        assert live["mirrored"] >= LEAST_MIRRORED
        assert live["agreement"] > 0.99
        serving = "jsonpath={.status.revisions[?(@.outcome=='Serving')].fingerprint}"
        before = bench.wait("tiny", f"{serving}={sound}")["status"]

        plant(bench, "tiny", NARROW, engine=engine, fault="narrow")
        bench.apply("tiny", **NARROW)
        said = bench.wait_reason("tiny", "RolloutComplete", "RolledBack")["message"]
        assert "(OutputsDiffer): Its answers to live requests are not the stable revision's: " in said
        assert " mirrored live requests agree by cosine 0.000" in said
        after = bench.model("tiny")["status"]
        assert after["rollout"]["stable"] == before["rollout"]["stable"]
        assert after["rollout"]["rolledBack"]["reason"] == "OutputsDiffer"
