"""Finding 3: every pass parses all engine records of the namespace again, and the event loop stands still meanwhile."""

from __future__ import annotations

import json
import typing
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest

from enginewright.clients.errors import TooLargeError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import CONFIG_MAP, Resource
from enginewright.core.manifests import engine_record, read_record, record_name
from enginewright.core.manifests.record import OUTCOME_BYTES
from enginewright.core.needed import needed_engines
from enginewright.observe import parsed
from enginewright.observe.parsed import ENTRY, Parsed
from enginewright.observe.records import ANSWER_BYTES, RecordReader
from enginewright_builder.contract import CandidateSummary, ContractError, Outcome
from enginewright_builder.contract import load as contract_load
from support.cluster import SPEC, Cluster

STORE = "pvc://enginewright-store"


def outcome(fingerprint: str, *candidates: CandidateSummary) -> Outcome:
    cluster = Cluster(spec=SPEC)
    cluster.settle()
    (record,) = cluster.records.values()
    return replace(record.outcome, fingerprint=fingerprint, candidates=candidates or record.outcome.candidates)


GOOD = outcome("f" * 64)


def config_map(made: Outcome = GOOD, version: str = "1", data: dict[str, str] | None = None) -> Object:
    raw = engine_record("prod", None, STORE, made)
    raw["metadata"] |= {"uid": f"uid of {raw['metadata']['name']}", "resourceVersion": version}
    return {**raw, "data": data or raw["data"]}


@dataclass
class Kube(KubeClient):
    """ConfigMaps by name; ``asked`` are the names that it was asked for. As the real one it refuses large answers."""

    held: dict[str, Object]
    asked: list[str] = field(default_factory=list)

    async def find(self, resource: Resource, namespace: str, name: str, *, most: int = 0, labels: str = "") -> Any:
        assert (resource, namespace, labels) == (CONFIG_MAP, "prod", "enginewright.io/engine=true")
        self.asked.append(name)
        found = self.held.get(name)
        if found is not None and len(json.dumps(found)) > most:
            raise TooLargeError("too large")
        return found


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that the contract was made to parse."""
    seen: list[str] = []
    load = contract_load

    def counted(kind: Any, text: str) -> Any:
        seen.append(text)
        return load(kind, text)

    monkeypatch.setattr("enginewright_builder.contract.outcome.load", counted)
    return seen


class Reading:
    def __init__(self, *held: Object) -> None:
        self.kube = Kube({raw["metadata"]["name"]: raw for raw in held})
        self.skipped: Counter[str] = Counter()
        self._reader = RecordReader(self.kube, lambda why: self.skipped.update([why]))

    async def records(self, *fingerprints: str) -> dict[str, Outcome]:
        found = await self._reader.records("prod", STORE, fingerprints or ("f" * 64,))
        return {key: record.outcome for key, record in found.items()}


async def test_the_second_pass_parses_nothing(loads: list[str]) -> None:
    reading = Reading(config_map())
    first = await reading.records()
    assert first == {"f" * 64: GOOD}
    assert len(loads) == 1
    assert await reading.records() == first
    assert len(loads) == 1


async def test_what_has_changed_is_parsed_again(loads: list[str]) -> None:
    reading = Reading(config_map())
    await reading.records()
    changed = replace(GOOD, build_seconds=7.0)
    reading.kube.held |= Reading(config_map(changed, version="2")).kube.held
    assert await reading.records() == {"f" * 64: changed}
    assert len(loads) == 2


async def test_records_of_others_are_neither_read_nor_parsed(loads: list[str]) -> None:
    others = [config_map(replace(GOOD, fingerprint=f"{number:064x}")) for number in range(1000)]
    reading = Reading(config_map(), *others)
    assert await reading.records() == {"f" * 64: GOOD}
    assert reading.kube.asked == [record_name("f" * 64, STORE)]
    assert len(loads) == 1


def many_candidates() -> str:
    cheap = '{"backend":"","precision":"","batch":1,"verdict":"Failed"}'
    return GOOD.to_json().replace('"candidates":[', f'"candidates":[{",".join([cheap] * 10_000)},')


HOSTILE = {
    "ten thousand candidates": many_candidates(),
    "a name of 300 KiB": replace(GOOD, built="x" * (300 << 10)).to_json(),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_record_that_is_too_large_is_never_parsed(text: str, loads: list[str]) -> None:
    reading = Reading(config_map(data={"outcome.json": text}))
    assert await reading.records() == {}
    assert loads == []
    assert sum(reading.skipped.values()) == 1


async def test_one_that_the_client_refuses_is_skipped_and_counted(loads: list[str]) -> None:
    reading = Reading(config_map(data={"other.txt": "x" * ANSWER_BYTES}))
    assert await reading.records() == {}
    assert (loads, reading.skipped) == ([], Counter(large=1))


@pytest.mark.parametrize("text", ["[" * 60_000, '{"a":' * 10_000, "9" * 60_000, "", "{}", '{"kind": "build"}'])
async def test_one_that_is_malformed_costs_one_attempt(text: str, loads: list[str]) -> None:
    reading = Reading(config_map(data={"outcome.json": text}))
    for _ in range(3):
        assert await reading.records() == {}
    assert len(loads) == 1
    assert reading.skipped == Counter(unreadable=1)


async def test_one_that_says_another_engine_is_not_taken() -> None:
    """Under the name of the wanted engine's record, whose first 32 digits are all that the name has."""
    another = "f" * 32 + "0" * 32
    reading = Reading(config_map(replace(GOOD, fingerprint=another)))
    assert await reading.records() == {}
    assert await reading.records(another) == {another: replace(GOOD, fingerprint=another)}


@pytest.mark.parametrize("text", [
    "f" * 63, "F" * 64, "f" * 64 + "\n", "x,metadata.namespace!=prod", "../secrets/key", "",
])
async def test_what_is_no_fingerprint_is_not_asked_for(text: str) -> None:
    """A status or an annotation may say anything, and the name becomes a field selector."""
    reading = Reading(config_map())
    assert await reading.records(text) == {}
    assert reading.kube.asked == []


def test_what_is_remembered_is_bounded() -> None:
    refused: list[str] = []
    cache = Parsed(lambda raw: raw["metadata"]["uid"], lambda raw: refused.append(raw["metadata"]["uid"]),
                   most=10 * (ENTRY + 100))
    raws = [{"metadata": {"uid": str(number), "resourceVersion": "1"}, "data": {"a": "x" * 100}}
            for number in range(1000)]
    for raw in raws:
        assert cache.of(raw) == raw["metadata"]["uid"]
    assert len(cache._known) == 10
    assert list(cache._known) == [(str(number), "1") for number in range(990, 1000)]
    assert parsed.BYTES == 4 << 20


def test_the_operator_writes_no_record_that_it_would_not_read() -> None:
    long = [CandidateSummary(backend="b", precision="p", batch=1, verdict="Slower", reason="why " * 100)
            for _ in range(1000)]
    raw = config_map(outcome("f" * 64, *long))
    assert len(raw["data"]["outcome.json"].encode()) <= OUTCOME_BYTES
    record = read_record(raw)
    assert record is not None
    assert record.outcome.engine == GOOD.engine


def test_types_are_looked_up_once_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once a record and once for each of its candidates."""
    text = outcome("f" * 64, *GOOD.candidates * 20).to_json()
    Outcome.from_json(text)
    hints = Mock(wraps=typing.get_type_hints)
    monkeypatch.setattr(typing, "get_type_hints", hints)
    Outcome.from_json(text)
    assert not hints.called


def test_a_union_of_wrong_types_is_still_refused() -> None:
    with pytest.raises(ContractError, match=r"Outcome.engine"):
        Outcome.from_json(json.dumps({"kind": "build", "ok": True, "engine": 3}))


def test_a_pass_wants_the_records_of_its_own_engines_alone() -> None:
    cluster = Cluster(spec=SPEC)
    cluster.settle()
    mine = set(cluster.records)
    seen = cluster.observe()
    assert needed_engines(cluster.view(), seen, cluster.config).records == mine
    cluster.edit(engine={"maxBatchSize": 16})
    wanted = needed_engines(cluster.view(), cluster.observe(), cluster.config).records
    assert mine < wanted
    assert len(wanted) == 2


def test_of_a_choice_among_slices_every_one_is_wanted() -> None:
    auto = {**SPEC, "placement": {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"},
                                  "mig": {"profile": "auto"}}}
    cluster = Cluster(spec=auto)
    cluster.settle()
    assert len(needed_engines(cluster.view(), cluster.observe(), cluster.config).records) > 2
