"""A source that is named by digests and whose engine is on record needs no Job that looks at it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.needed import needed_engines
from support.cluster import SPEC, Cluster, resolved

SOURCE = resolved().source
assert SOURCE is not None
DIGEST = SOURCE.digest


def spec(**source: Any) -> dict[str, Any]:
    return {**SPEC, "source": {**SPEC["source"], "digest": DIGEST, **source}}


def on_record(wanted: dict[str, Any]) -> Cluster:
    """A cluster in which another object has had an engine built, from the same source without any data."""
    first = Cluster(spec=spec())
    first.settle()
    records = {name: replace(one, outcome=replace(one.outcome, source=SOURCE)) for name, one in first.records.items()}
    return Cluster(spec=wanted, records=records)


def jobs(cluster: Cluster) -> list[str]:
    """Those that were made until the model serves, by what they do."""
    made = set()
    for _ in range(60):
        cluster.step()
        cluster.settle_jobs()
        made |= {job.name.split("-")[1] for job in cluster.jobs.values()}
    assert cluster.says("Ready") == "True/Serving"
    return sorted(made)


@pytest.mark.parametrize("named", ["auto", "huggingface"])
def test_no_job_where_the_engine_is_on_record(named: str) -> None:
    cluster = on_record(spec(format=named))
    assert jobs(cluster) == []
    assert cluster.says("SourceResolved") == "True/Resolved"
    found = cluster.status["source"]
    assert (found["digest"], found["format"], found["sizeBytes"]) == (DIGEST, "huggingface", 90_000_000)
    assert cluster.status["engine"]["cacheHit"] is True


def test_another_format_is_another_engine() -> None:
    cluster = on_record(spec(format="onnx"))
    cluster.operate()
    assert [job.name.split("-")[1] for job in cluster.jobs.values()] == ["resolve"]


@pytest.mark.parametrize("wanted", [
    spec(digest=""),
    spec(signature={"configMapKeyRef": {"name": "key", "key": "pub"}}),
    {**spec(), "accuracy": {"evaluation": {"uri": "pvc://models/e.jsonl"}}},
    {**spec(), "engine": {"calibration": {"uri": "pvc://models/e.jsonl"}}},
], ids=["no digest", "a signature to check", "evaluation data", "calibration data"])
def test_a_job_looks_where_something_is_unknown(wanted: dict[str, Any]) -> None:
    cluster = on_record(wanted)
    cluster.operate()
    assert [job.name.split("-")[1] for job in cluster.jobs.values()] == ["resolve"]


@pytest.mark.parametrize("block", [("accuracy", "evaluation"), ("engine", "calibration")])
def test_data_with_a_digest_is_known(block: tuple[str, str]) -> None:
    assert SOURCE
    data = {"uri": "pvc://models/e.jsonl", "digest": "sha256:" + "b" * 64}
    cluster = Cluster(spec={**spec(format="huggingface"), block[0]: {block[1]: data}})
    (wanted,) = needed_engines(cluster.view(), cluster.observe(), cluster.config).records
    (record,) = on_record(spec()).records.values()
    digests: dict[str, Any] = {f"{block[1]}_digest": data["digest"]}
    source = replace(SOURCE, **digests)
    outcome = replace(record.outcome, fingerprint=wanted, source=source)
    cluster.records = {wanted: replace(record, outcome=outcome)}
    cluster.operate()
    assert not cluster.jobs
    assert (cluster.says("SourceResolved"), cluster.says("EngineBuilt")) == ("True/Resolved", "True/CacheHit")


def test_a_job_looks_where_no_engine_is_on_record() -> None:
    cluster = Cluster(spec=spec())
    assert jobs(cluster) == ["build", "resolve"]


def test_a_record_that_tells_of_no_source_does_not_do() -> None:
    first = Cluster(spec=spec())
    first.settle()
    cluster = Cluster(spec=spec(), records=first.records)
    cluster.operate()
    assert [job.name.split("-")[1] for job in cluster.jobs.values()] == ["resolve"]


def test_a_failure_to_look_ends_once_the_engine_is_on_record() -> None:
    """Another object built it meanwhile."""
    done = on_record(spec())
    cluster = Cluster(spec=spec())
    cluster.operate()
    cluster.fail()
    cluster.operate()
    assert cluster.says("SourceResolved") != "True/Resolved"
    cluster.records = done.records
    cluster.operate()
    assert cluster.says("SourceResolved") == "True/Resolved"
