"""What the next optimisation would buy, or that a replica is the cheaper step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import Bound
from enginewright_builder.measure.layers import Layers
from enginewright_builder.measure.runway import WORTHWHILE, Step, amdahl, next_step


def layers(queue: float, compute: float, copies: float, transport: float) -> Layers:
    return Layers(queue_ms=queue, compute_ms=compute, input_output_ms=copies, transport_ms=transport)


@pytest.mark.parametrize(
    ("measured", "attained", "bound", "step", "gain", "says"),
    [
        (layers(0, 8, 1, 1), 0.25, "overhead", "engine", 2.5, "outside of its matrix products"),
        (layers(0, 8, 1, 1), 0.25, "bandwidth", "engine", 2.5, "runs at 25% of what the roofline allows"),
        (layers(0, 9, 0.5, 0.5), 0.9, "compute", "replica", 1.0, "runway is exhausted"),
        (layers(0, 9, 0.5, 0.5), 1.4, "bandwidth", "replica", 1.0, "at most 1.05×"),
        (layers(0, 2, 1, 7), 0.9, "compute", "transport", 10 / 3, "way to the server"),
        (layers(0, 2, 7, 1), 0.9, "compute", "copies", 10 / 3, "copying of tensors"),
        (layers(8, 2, 0, 0), 0.9, "compute", "replica", 1.0, "80% of a request's time is queueing"),
        (layers(0, 9, 0.5, 0.5), None, "", "replica", 1.0, "the engine's own limit was not measured"),
        (layers(0, 0, 0, 0), 0.5, "", "replica", 1.0, "runway is exhausted"),
    ],
)
def test_next_step(
    measured: Layers, attained: float | None, bound: Bound, step: Step, gain: float, says: str
) -> None:
    found = next_step(measured, attained=attained, bound=bound)
    assert found.step == step
    assert found.gain == pytest.approx(gain)
    assert says in found.text


parts = st.floats(0.0, 1e3)


@given(parts, parts, parts, parts, st.none() | st.floats(0.0, 2.0))
def test_no_step_promises_more_than_taking_its_whole_layer_away(
    queue: float, compute: float, copies: float, transport: float, attained: float | None
) -> None:
    measured = layers(queue, compute, copies, transport)
    found = next_step(measured, attained=attained)
    saved = {"engine": compute, "copies": copies, "transport": transport, "replica": 0.0}[found.step]
    assert found.gain <= amdahl(measured.total_ms, saved) * (1 + 1e-9) or saved >= measured.total_ms
    assert found.step == "replica" or found.gain >= WORTHWHILE


def test_amdahl() -> None:
    assert amdahl(10, 5) == 2
    assert amdahl(10, 0) == 1
    assert amdahl(0, 0) == 1
