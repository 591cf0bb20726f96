"""What the GPUs of replicas draw, by Triton's counters: shared GPUs once, restarts and silence without a jump."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from enginewright.clients.signals import GpuMetrics, ReplicaMetrics
from enginewright.clients.triton import parse_metrics
from enginewright.observe.keys import Key
from enginewright.observe.power import OVER, STALE, Drawn, Power
from enginewright.reconcile.metered import Metered

PODS = ("a", "b")
# As tritonserver 2.51 writes it on an H200, one model.
PAGE = b"""nv_inference_pending_request_count{model="m",version="1"} 0
nv_inference_count{model="m",version="1"} 640
nv_inference_exec_count{model="m",version="1"} 20
# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-0a"} 0.37
# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-0a"} 150754820096
nv_gpu_memory_used_bytes{gpu_uuid="GPU-0a"} 1895825408
nv_gpu_power_usage{gpu_uuid="GPU-0a"} 121.5
nv_gpu_power_limit{gpu_uuid="GPU-0a"} 700
nv_energy_consumption{gpu_uuid="GPU-0a"} 3141.25
nv_energy_consumption{gpu_uuid="GPU-0b"} nan
"""


def replica(inferences: float, **joules: float | None) -> ReplicaMetrics:
    return ReplicaMetrics(pending={}, inferences=inferences,
                          gpus={uuid: GpuMetrics(joules=one, watts=300.0, utilisation=0.5, memory_bytes=7.0)
                                for uuid, one in joules.items()})


def rounds(*seen: dict[str, ReplicaMetrics], every: float = 1.0) -> Drawn:
    power, time = Power(), 0.0
    for scraped in seen:
        time += every
        power.update(time, scraped, PODS)
    return power.drawn(time)


def test_a_page_of_a_gpu_server() -> None:
    metrics = parse_metrics(PAGE)
    assert metrics.inferences == 640
    assert metrics.gpus == {
        "GPU-0a": GpuMetrics(joules=3141.25, watts=121.5, utilisation=0.37, memory_bytes=1895825408)}


def test_a_page_without_gpus_has_none() -> None:
    assert parse_metrics(b'nv_inference_pending_request_count{model="m"} 0\nnv_gpu_power_usage 5\n').gpus == {}


@pytest.mark.parametrize(("seen", "rate"), [
    (({"a": replica(0, x=0)}, {"a": replica(100, x=50)}), 2.0),
    (({"a": replica(0, x=0)},), None),
    (({"a": replica(0, x=0)}, {"a": replica(0, x=50)}), 0.0),
    # Two replicas on two GPUs, and on one.
    (({"a": replica(0, x=0), "b": replica(5, y=3)}, {"a": replica(100, x=50), "b": replica(105, y=53)}), 2.0),
    (({"a": replica(0, x=0), "b": replica(5, x=3)}, {"a": replica(100, x=50), "b": replica(105, x=53)}), 4.0),
    # A server that began anew, and one that was silent for a round.
    (({"a": replica(900, x=800)}, {"a": replica(10, x=5)}, {"a": replica(110, x=55)}), 2.0),
    (({"a": replica(0, x=0)}, {}, {"a": replica(100, x=50)}), 2.0),
    # A GPU that tells of no energy, beside one that does; and a server without one.
    (({"a": replica(0, x=0, y=None)}, {"a": replica(100, x=50, y=None)}), None),
    (({"a": replica(0), "b": replica(0, x=0)}, {"a": replica(900), "b": replica(100, x=50)}), 2.0),
])
def test_inferences_for_each_joule(seen: tuple[dict[str, ReplicaMetrics], ...], rate: float | None) -> None:
    assert rounds(*seen).inferences_per_joule == rate


def test_what_gpus_do_now_is_said_once_for_each() -> None:
    both = {"a": replica(0, x=0, y=0), "b": replica(0, x=0)}
    assert rounds(both) == Drawn(utilisation=0.5, watts=600.0, memory_bytes=14.0)


def test_the_last_minute_counts_and_silence_is_not_taken_for_now() -> None:
    power = Power()
    power.update(0.0, {"a": replica(0, x=0)}, PODS)
    power.update(1.0, {"a": replica(1000, x=10)}, PODS)
    power.update(1.0 + OVER, {"a": replica(1000 + 50, x=60)}, PODS)
    assert power.drawn(1.0 + OVER).inferences_per_joule == 1050 / 60
    assert power.drawn(1.1 + OVER).inferences_per_joule == 1.0
    later = 1.1 + OVER + STALE
    assert power.drawn(later) == Drawn(inferences_per_joule=1.0)
    assert power.drawn(later + OVER) == Drawn()


def test_a_pod_of_an_old_name_begins_anew() -> None:
    power = Power()
    power.update(0.0, {"a": replica(0, x=0)}, PODS)
    power.update(1.0, {}, ("b",))
    power.update(2.0, {"a": replica(100, x=50)}, PODS)
    assert power.drawn(2.0).inferences_per_joule is None


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1e6), st.floats(0, 1e6)), max_size=30))
def test_silence_loses_nothing_of_what_was_drawn(steps: list[tuple[bool, float, float]]) -> None:
    """Within the minute: whatever rounds a replica did not answer, all that it did until its last answer counts."""
    inferences, joules, told = 0.0, 0.0, (0.0, 0.0)
    power = Power()
    power.update(0.0, {"a": replica(0, x=0)}, PODS)
    for number, (answers, more, drawn) in enumerate(steps, start=1):
        inferences, joules = inferences + more, joules + drawn
        if answers:
            power.update(float(number), {"a": replica(inferences, x=joules)}, PODS)
            told = inferences, joules
        else:
            power.update(float(number), {}, PODS)
    rate = power.drawn(float(len(steps))).inferences_per_joule
    assert rate == (pytest.approx(told[0] / told[1]) if told[1] else None)


def test_each_object_has_its_series_and_none_of_what_is_not_told() -> None:
    registry = CollectorRegistry()
    found = {Key("prod", "bert"): Drawn(utilisation=0.5, watts=300.0, memory_bytes=7.0, inferences_per_joule=2.5),
             Key("prod", "new"): Drawn()}
    registry.register(Metered(lambda: found))
    samples = {(sample.name, sample.labels["optimisedmodel"]): sample.value
               for metric in registry.collect() for sample in metric.samples}
    assert samples == {("enginewright_gpu_utilisation", "bert"): 0.5, ("enginewright_gpu_power_watts", "bert"): 300.0,
                       ("enginewright_gpu_memory_bytes", "bert"): 7.0,
                       ("enginewright_inferences_per_joule", "bert"): 2.5}
