"""One replica against queues whose waiting is known in closed form, and Triton's batcher by hand."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import accumulate

import pytest

from enginewright_simulation.curve import Service
from enginewright_simulation.server import Ledger, Replica

NEVER = float("inf")


def poisson(rate: float, count: int, seed: int) -> list[float]:
    draw = random.Random(seed)
    return list(accumulate(draw.expovariate(rate) for _ in range(count)))


def serve(arrivals: list[float], service: Service, *, step: float = NEVER, exponential: bool = False) -> Ledger:
    """Latencies in the order of service; ``step`` is how far it is taken forward at a time."""
    ledger, draw = Ledger(slo=NEVER), random.Random(7)
    replica = Replica("one", service, ledger, 0.0, 0.0, (lambda: draw.expovariate(1.0)) if exponential else None)
    now, waiting = 0.0, list(arrivals)
    while waiting:
        now = min(now + step, arrivals[-1])
        here = [came for came in waiting if came <= now] if step < NEVER else waiting
        replica.queue.extend(here)
        waiting = waiting[len(here):]
        replica.advance(now)
    replica.advance(NEVER)
    return ledger


def mean(values: object) -> float:
    listed = list(values)  # type: ignore[call-overload]
    return float(sum(listed) / len(listed))


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_constant_service_waits_as_pollaczek_and_khinchin_say(load: float) -> None:
    ledger = serve(poisson(load, 60_000, 1), Service(seconds=(0.0, 1.0)))
    waited = load / (2 * (1 - load))  # M/D/1
    assert mean(ledger.latencies) == pytest.approx(1.0 + waited, rel=0.06)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_exponential_service_takes_as_long_as_in_mm1(load: float) -> None:
    ledger = serve(poisson(load, 60_000, 2), Service(seconds=(0.0, 1.0)), exponential=True)
    assert mean(ledger.latencies) == pytest.approx(1 / (1 - load), rel=0.08)
    over = sum(latency > 3 for latency in ledger.latencies) / len(ledger.latencies)
    assert over == pytest.approx(2.718281828 ** (-3 * (1 - load)), rel=0.1)


def test_two_instances_share_one_queue_as_in_mm2() -> None:
    load = 0.7
    ledger = serve(poisson(2 * load, 60_000, 3), Service(seconds=(0.0, 1.0), instances=2), exponential=True)
    assert mean(ledger.latencies) == pytest.approx(1 / (1 - load**2), rel=0.08)


def test_it_does_not_matter_in_which_steps_a_replica_is_taken_forward() -> None:
    arrivals = poisson(30.0, 400, 4)
    for service in (
        Service(seconds=(0.0, 0.03)),
        Service(seconds=(0.0, 0.05, 0.06, 0.07, 0.08), instances=2),
        Service(seconds=(0.0, 0.05, 0.06, 0.07, 0.08), queue_delay=0.04),
        Service(seconds=(0.0, 0.05, 0.06, 0.07, 0.08), queue_delay=0.04, preferred=(2, 4), instances=2),
    ):
        whole, parts = serve(arrivals, service), serve(arrivals, service, step=0.05)
        assert list(whole.latencies) == list(parts.latencies)
        assert len(whole.latencies) == len(arrivals)


BATCHES = (0.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("service", "arrivals", "answered"),
    [
        pytest.param(Service(seconds=BATCHES), [0.0, 0.1, 0.2], [1.0, 2.0, 2.0], id="what queued goes together"),
        pytest.param(Service(seconds=BATCHES), [0.0] * 6, [1.0] * 4 + [2.0] * 2, id="not more than the maximum"),
        pytest.param(Service(seconds=BATCHES, queue_delay=0.5), [0.0, 0.1], [1.5, 1.5], id="waits for company"),
        pytest.param(Service(seconds=BATCHES, queue_delay=0.5), [0.0, 0.1, 0.2, 0.3], [1.3] * 4,
                     id="a full batch does not wait"),
        pytest.param(Service(seconds=BATCHES, queue_delay=0.5, preferred=(2,)), [0.0, 0.1, 0.2], [1.1, 1.1, 2.1],
                     id="a preferred size goes at once"),
        pytest.param(Service(seconds=BATCHES, preferred=(2,)), [0.0] * 3, [1.0, 1.0, 2.0],
                     id="the largest preferred size that there is"),
        pytest.param(Service(seconds=BATCHES, preferred=(4,)), [0.0] * 3, [1.0] * 3,
                     id="without a delay nothing waits for a preferred size"),
        pytest.param(Service(seconds=(0.0, 0.2), pause=0.8), [0.0, 0.0], [0.2, 1.2], id="taken after it has answered"),
        pytest.param(Service(seconds=(0.0, 0.2), transport=0.1), [0.0, 0.0, 0.1], [0.3, 0.5, 0.7],
                     id="one by one, answers are on their way while the next is computed"),
        pytest.param(Service(seconds=(0.0, 0.2), wake=0.1), [0.0, 1.0, 1.1], [0.2, 1.3, 1.5],
                     id="longer where there was nothing to do"),
        pytest.param(Service(seconds=BATCHES, wake=0.1), [0.0, 0.5, 3.0], [1.0, 2.0, 4.1],
                     id="a batch takes longer where there was nothing to do"),
        pytest.param(Service(seconds=BATCHES, transport=0.1), [0.0, 0.1, 0.2], [1.1, 2.1, 2.1],
                     id="answers are on their way while the next batch is computed"),
    ],
)
def test_batches_are_formed_as_tritons_batcher_forms_them(
    service: Service, arrivals: list[float], answered: list[float]
) -> None:
    ledger = serve(arrivals, service)
    done = [came + latency for came, latency in zip(arrivals, ledger.latencies, strict=True)]
    assert done == pytest.approx(answered)


def test_an_answer_at_the_objective_is_in_time() -> None:
    ledger = Ledger(slo=0.1)
    replica = Replica("one", Service(seconds=(0.0, 0.1)), ledger, 0.0, 0.0)
    for came in (0.1 + 0.7 * number for number in range(2000)):
        replica.queue.append(came)
    replica.queue.append(5000.0)
    replica.queue.append(5000.001)
    replica.advance(NEVER)
    assert list(ledger.late) == [5000.001]


def test_what_is_queued_and_what_is_computed_are_told_apart() -> None:
    replica = Replica("one", Service(seconds=BATCHES, instances=2), Ledger(slo=NEVER), 0.0, 0.0)
    replica.queue.extend([0.0, 0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    replica.advance(0.7)
    assert (replica.executing(0.7), len(replica.queue)) == (3, 5)
    replica.advance(1.0)
    assert (replica.executing(1.05), len(replica.queue)) == (6, 1)


@pytest.mark.parametrize("service", [
    Service(seconds=(0.0, 0.02), pause=0.03), Service(seconds=BATCHES, instances=2),
    Service(seconds=(0.0, 0.05, 0.06, 0.07, 0.08), queue_delay=0.04, preferred=(2, 4), instances=2),
])
def test_it_counts_as_triton_does(service: Service) -> None:
    """At any moment those that were answered by then, each with the whole time of its batch."""
    ledger = Ledger(slo=NEVER)
    replica = Replica("one", service, ledger, 0.0, 0.0)
    came, sent, before = poisson(12.0, 300, 5), 0, replica.spent(0.0)
    for second in range(1, 120):
        due = bisect_right(came, second)
        replica.queue.extend(came[sent:due])
        replica.advance(float(second))
        sent = due
        now = replica.spent(float(second))
        done = [one + latency for one, latency in zip(came, ledger.latencies, strict=False)]
        assert now.answered == sum(one <= second for one in done)
        assert now.since(before) is not None
        before = now
    assert before.answered == len(came)
    assert before.waited + before.computed == pytest.approx(sum(ledger.latencies))
    assert before.computed == pytest.approx(service.seconds[1] * len(came)) or service.max_batch > 1
    assert before.executions == len(came) if service.max_batch == 1 else before.executions < len(came)
