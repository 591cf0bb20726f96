"""Live answers on a real node: sampled beside a real server, found right, then wrong, and the way back."""

from __future__ import annotations

import re
from typing import Any

import httpx

from demo.__main__ import SYSTEM_NAMESPACE
from demo.inference import forwarded
from demo.shell import Kube
from enginewright_builder.contract import QualityReport
from support.bench import WATCHED, Bench
from support.candidates import plant

SERVERS = "app.kubernetes.io/component=server,enginewright.io/model=tiny"
# A scaler looks every ten seconds, and what live answers say is looked at with it.
SPEC: dict[str, Any] = {**WATCHED, "rollout": {"analysis": {"seconds": 0}},
                        "autoscaling": {"minReplicas": 1, "maxReplicas": 1}}
ANOTHER = {**SPEC, "engine": {"maxBatchSize": 4}}


def test_live_answers_are_watched_and_a_wrong_engine_goes_back(stocked_bench: Bench) -> None:
    bench = stocked_bench
    bench.apply("tiny", **SPEC)
    proven = bench.wait("tiny", "condition=Ready")["status"]
    engine, first = proven["fingerprint"], proven["rollout"]["stable"]
    with bench.loaded("tiny"):
        offered = plant(bench, "tiny", ANOTHER, engine=engine, fault="unrecorded")
        bench.apply("tiny", **SPEC)
        assert "over" in bench.wait_reason("tiny", "QualityHeld", "Agreeing")["message"]
        figures = bench.model("tiny")["status"]["quality"]
        assert (figures["revision"], figures["metric"]) == (first, "cosine")
        assert figures["agreement"] > 0.99
        assert 0.8 == figures["required"] <= figures["low"]
        in_memory_alone(bench)

        bench.apply("tiny", **ANOTHER)
        bench.wait("tiny", f"jsonpath={{.status.engine.fingerprint}}={offered}")
        drifted = has_drifted(bench)
        bench.apply("tiny", **{**ANOTHER, "quality": {**ANOTHER["quality"], "rollback": True}})
        back = bench.wait_reason("tiny", "RolloutComplete", "RolledBack")
        assert f"Revision {drifted} was given up (QualityDrifted)" in back["message"]
        bench.wait("tiny", f"jsonpath={{.status.rollout.stable}}={first}")


def has_drifted(bench: Bench) -> str:
    """The revision whose answers are wrong, as condition, status and metrics say."""
    said = bench.wait_reason("tiny", "QualityHeld", "QualityDrifted")
    assert said["status"] == "False"
    assert "0.8 is needed" in said["message"]
    drifted = bench.model("tiny")["status"]["quality"]
    assert drifted["high"] < 0.8
    shown = page(bench.kube, SYSTEM_NAMESPACE, "service/enginewright-metrics", 8080, "metrics")
    (mean,) = re.findall(rf'^enginewright_quality_agreement{{bound="mean",namespace="{bench.namespace}",.*}} (.*)$',
                         shown, re.MULTILINE)
    assert 0 <= float(mean) < 0.8
    return str(drifted["revision"])


def in_memory_alone(bench: Bench) -> None:
    """What was sampled lies in memory, and neither log nor page has any of it."""
    (pod,) = bench.get("pod", SERVERS)
    name = pod["metadata"]["name"]
    inside = ("exec", "-n", bench.namespace, name, "-c", "quality", "--", "cat")
    (mount,) = [line.split() for line in bench.kube(*inside, "/proc/mounts").splitlines() if " /traces " in line]
    assert mount[2] == "tmpfs"
    assert "size=65536k" in mount[3]
    assert len(bench.kube("logs", "-n", bench.namespace, name, "-c", "quality").splitlines()) == 1
    report = QualityReport.from_json(page(bench.kube, bench.namespace, f"pod/{name}", 8003, "quality"))
    assert (report.samples >= 31, report.problem) == (True, "")


def page(kube: Kube, namespace: str, target: str, port: int, path: str) -> str:
    with forwarded(kube, namespace, target, port) as address:
        return httpx.get(f"http://{address}/{path}", trust_env=False).raise_for_status().text
