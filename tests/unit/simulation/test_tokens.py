"""A simulated replica of a language model, what a build would measure of it, and traces with token counts."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.cli import main
from enginewright.core.scaling import ScaleLimits
from enginewright.core.spec.engine import TokensSpec
from enginewright_simulation.contest import Contest
from enginewright_simulation.policies.enginewright import Enginewright
from enginewright_simulation.policies.hpa import Hpa, HpaSettings
from enginewright_simulation.run import Scenario, simulate
from enginewright_simulation.scale import scaled
from enginewright_simulation.server import Ledger
from enginewright_simulation.sweep import measured
from enginewright_simulation.tokens import Asked, TokenReplica, TokenService
from enginewright_simulation.trace import read_trace

# A step alone takes 11 ms, with ten requests 20; a thousand tokens of a prompt take 100.
SERVICE = TokenService(step_seconds=0.01, request_seconds=0.001, input_seconds=1e-4, at_once=16)
ASKED = TokensSpec(ttft_milliseconds=1000, tpot_milliseconds=40, percentile=95)


def answered(asked: list[Asked], service: TokenService = SERVICE, slo: float = 1.0, tpot: float = math.inf
             ) -> tuple[Ledger, TokenReplica]:
    ledger = Ledger(slo, tpot)
    replica = TokenReplica("a", service, ledger, 0.0, 0.0)
    replica.queue.extend(asked)
    replica.advance(math.inf)
    return ledger, replica


def test_one_request_is_read_and_then_written_token_by_token() -> None:
    ledger, replica = answered([Asked.at(0.0, 1000, 11)], slo=0.1)
    assert list(ledger.latencies) == pytest.approx([0.11])
    assert list(ledger.late) == [0.0]
    assert replica.drained_at() == pytest.approx(0.11 + 10 * 0.011)
    found = replica.metrics()
    assert (found.prompt_tokens, found.generated_tokens, found.timed, found.running) == (1000, 11, 1, 0)


def test_tokens_of_requests_side_by_side_take_longer_and_are_late_by_their_own_objective() -> None:
    ten = [Asked.at(0.0, 1, 50) for _ in range(10)]
    assert not answered(ten, tpot=0.021)[0].late
    assert len(answered(ten, tpot=0.019)[0].late) == 10


def test_a_long_prompt_is_read_in_parts_and_those_that_write_go_on() -> None:
    ledger, replica = answered([Asked.at(0.0, 1, 3), Asked.at(0.011, 5000, 1)])
    assert len(ledger.latencies) == 2
    # The first has two tokens more in the first two of three parts, each with less room for the prompt.
    assert replica.drained_at() == pytest.approx(0.0101 + 0.0009 + 3 * 0.01 + 0.001 * 2 + 0.5, abs=0.02)


@pytest.mark.parametrize("service", [
    TokenService(step_seconds=0.01, request_seconds=0.0, input_seconds=1e-4, at_once=1),
    TokenService(step_seconds=0.01, request_seconds=0.0, input_seconds=1e-4, cache_tokens=150)])
def test_without_a_place_or_room_in_the_cache_a_request_waits(service: TokenService) -> None:
    ledger = Ledger(1.0)
    replica = TokenReplica("a", service, ledger, 0.0, 0.0)
    replica.queue.extend([Asked.at(0.0, 100, 50), Asked.at(0.0, 100, 50)])
    replica.advance(0.1)
    found = replica.metrics()
    assert (found.queued, found.running) == (1, 1)
    replica.advance(math.inf)
    assert len(ledger.latencies) == 2
    assert replica.metrics().cache_used == 0.0


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5000), st.integers(0, 50)), min_size=1, max_size=30))
def test_every_request_is_answered_once_with_all_its_tokens(raw: list[tuple[float, int, int]]) -> None:
    asked = [Asked.at(*one) for one in sorted(raw)]
    ledger, replica = answered(asked)
    found = replica.metrics()
    assert len(ledger.latencies) == len(asked)
    assert found.prompt_tokens == sum(one.read for one in asked)
    assert found.generated_tokens == sum(one.written for one in asked)
    assert min(ledger.latencies) >= SERVICE.step_seconds
    assert found.cache_used == 0.0


def sizes(draw: random.Random, count: int, rate: float) -> list[Asked]:
    now, made = 0.0, []
    for _ in range(count):
        now += draw.expovariate(rate)
        made.append(Asked.at(now, draw.randint(100, 900), draw.randint(20, 180)))
    return made


def test_a_build_would_measure_work_that_fills_the_replica() -> None:
    found = measured(SERVICE, sizes(random.Random(1), 100, 1.0), ASKED, 30.0)
    assert found is not None
    assert found.work is not None
    assert found.work.input_seconds == pytest.approx(SERVICE.input_seconds)
    assert (found.instances, found.cold_start_seconds) == (4, 30.0)
    assert 0 < found.throughput < 1 / (found.work.input_seconds * found.work.input_tokens)
    assert measured(SERVICE, [Asked.at(0.0, 20_000, 5)], ASKED, 30.0) is None, "2 s until the first token"


def test_on_bursts_demand_in_work_is_late_less_often_than_an_hpa_on_waiting_requests_for_no_more() -> None:
    """Ratios only: docs/benchmarks/scaling.md has the figures."""
    draw = random.Random(5)
    made = [one for one in sizes(draw, 9000, 9.0) if one % 300 < 60 or draw.random() < 0.4]
    capacity = measured(SERVICE, made, ASKED, 30.0)
    assert capacity is not None
    scenario = Scenario(service=SERVICE, slo=1.0, tpot=0.04, percentile=95, cold_start=30.0, capacity=capacity)
    ours, hpa = (simulate(made, policy, scenario) for policy in (
        Enginewright(ScaleLimits(max_replicas=20), capacity), Hpa(HpaSettings())))
    assert 2 * len(ours.ledger.late) < len(hpa.ledger.late)
    assert ours.replica_seconds <= hpa.replica_seconds
    assert len(ours.ledger.latencies) == len(hpa.ledger.latencies) == len(made)


def test_larger_requests_than_were_measured_get_more_replicas() -> None:
    draw = random.Random(2)
    small = sizes(draw, 2400, 4.0)
    large = [Asked.at(one, 3 * one.read, 3 * one.written) for one in small]
    capacity = measured(SERVICE, small, ASKED, 30.0)
    assert capacity is not None
    scenario = Scenario(service=SERVICE, slo=1.0, tpot=0.04, percentile=95, cold_start=30.0, capacity=capacity)
    few, many = (simulate(made, Enginewright(ScaleLimits(max_replicas=20), capacity), scenario)
                 for made in (small, large))
    assert max(one.replicas for one in many.moments) > max(one.replicas for one in few.moments)


def test_the_oracle_knows_no_language_model() -> None:
    with pytest.raises(ValueError, match="no language model"):
        Contest([Asked.at(0.0, 1, 1)], Scenario(service=SERVICE)).run("oracle")


def test_requests_that_are_moved_keep_their_tokens() -> None:
    made = sizes(random.Random(3), 50, 1.0)
    twice = scaled(made, 2.0, 1)
    assert len(twice) == 100
    counted = sorted((one.read, one.written) for one in twice if isinstance(one, Asked))
    assert counted == sorted((one.read, one.written) for one in made for _ in range(2))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "conversations.csv"
    lines = [f"{1700000000 + one},{one.read},{one.written}" for one in sizes(random.Random(4), 300, 3.0)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    return path


REPLICA = ["--step-ms", "11", "--request-ms", "1", "--input-ms", "100", "--cold-start-seconds", "10"]
OBJECTIVE = ["--ttft-ms", "1000", "--tpot-ms", "40", "--percentile", "95"]


@pytest.mark.parametrize("form", ["json", "table", "html"])
def test_a_trace_with_token_counts_is_replayed(trace: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert main(["simulate", "--trace", str(trace), *REPLICA, *OBJECTIVE, "--format", form]) == 0
    said = capsys.readouterr().out
    if form == "json":
        answer = json.loads(said)
        assert list(answer["policies"]) == ["enginewright", "hpa", "keda", "knative"]
        assert {row["requests"] for row in answer["policies"].values()} == {300}
        assert answer["settings"]["ttft_ms"] == 1000.0
    if form == "html":
        assert "first token 1000 ms, each after it 40 ms at p95" in said


@pytest.mark.parametrize(("options", "words"), [
    (["--step-ms", "11"], "--request-ms: is missing"),
    (["--at-once", "4"], "--at-once: applies to a language model"),
    ([*REPLICA, "--slo-ms", "5", *OBJECTIVE], "--slo-ms: applies to whole answers"),
    (REPLICA, "--ttft-ms, --tpot-ms: are missing"),
    ([*REPLICA, "--ttft-ms", "-1"], "--ttft-ms: got -1; write a number above 0"),
    ([*REPLICA, "--ttft-ms", "12"], "--ttft-ms, --tpot-ms: not one request at a time keeps them at p99"),
    ([*REPLICA, *OBJECTIVE, "--percentile", "5"], "--percentile: got 5"),
    ([*REPLICA, *OBJECTIVE, "--policies", "oracle"], "the oracle knows no language model"),
])
def test_what_does_not_go_together_is_refused(trace: Path, options: list[str], words: str,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--trace", str(trace), *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("text", "words"), [
    ("TIMESTAMP\n1\n", "has no columns ContextTokens and GeneratedTokens"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,\n", "trace.csv:2: GeneratedTokens: got ''; write a number"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,-2,4\n", "trace.csv:2: ContextTokens: got '-2'; write a number"),
])
def test_a_trace_without_token_counts_is_refused(tmp_path: Path, text: str, words: str,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert main(["simulate", "--trace", str(path), *REPLICA, *OBJECTIVE]) == 2
    assert words in capsys.readouterr().err
    assert not read_trace(path).sizes
