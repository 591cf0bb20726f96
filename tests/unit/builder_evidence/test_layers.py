"""Layers that sum to what the client saw, and a sentence for each."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import Bound, ServingChoice
from enginewright_builder.measure.layers import NAMES, Folded, Layer, Layers, advice, split
from enginewright_builder.triton.own_metrics import held_back, waited_ms

SERVING = ServingChoice(max_batch_size=8)
PARTS = ("queue", "compute_input", "compute_infer", "compute_output")


def statistics(count: int, **milliseconds: float) -> dict[str, Any]:
    """Triton's cumulative counters after ``count`` requests of these mean times; it writes them as numbers or text."""
    return {part: {"count": str(count), "ns": str(int(milliseconds.get(part, 0.0) * 1e6 * count))} for part in PARTS}


def test_layers_are_what_was_added_within_the_window() -> None:
    before = statistics(100, queue=50.0, compute_infer=50.0)
    after = statistics(100, queue=50.0, compute_infer=50.0)
    for part, ms in (("queue", 2.0), ("compute_input", 0.5), ("compute_infer", 6.0), ("compute_output", 0.25)):
        after[part] = {"count": 110, "ns": int(before[part]["ns"]) + int(ms * 1e6 * 10)}
    found = split(before, after, client_mean_ms=10.0)
    assert found == Layers(queue_ms=2.0, compute_ms=6.0, input_output_ms=0.75, transport_ms=1.25)


def test_a_window_without_requests_has_transport_only() -> None:
    same = statistics(5, queue=1.0)
    assert split(same, same, 4.0) == Layers(queue_ms=0, compute_ms=0, input_output_ms=0, transport_ms=4.0)


def test_clocks_that_disagree_are_told_and_the_sum_still_holds() -> None:
    found = split(statistics(0), statistics(10, queue=2.0, compute_infer=9.0, compute_input=1.0), client_mean_ms=10.0)
    assert found.transport_ms == 0.0
    assert found.disagreement_ms == pytest.approx(2.0)
    assert found.total_ms == pytest.approx(10.0)
    assert found.compute_ms == pytest.approx(7.5)


@pytest.mark.parametrize(("waited", "folded", "compute", "ahead", "behind"), [
    ((2.0, None), None, 8.0, 2.0, None),
    ((None, None), Folded(batch=1, preprocess=0.25), 7.5, 2.5, None),
    ((None, None), Folded(batch=1, postprocess=0.25), 7.5, None, 2.5),
    ((2.0, None), Folded(batch=1, preprocess=0.5, postprocess=0.25), 2.0, 6.0, 2.0),
    ((1.0, 1.0), Folded(batch=1, postprocess=0.25), 6.0, 1.0, 3.0),
    ((None, 4.0), None, 6.0, None, 4.0),
    ((None, None), Folded(batch=1), 10.0, None, None),
    ((12.0, 1.0), None, 0.0, 10.0, 0.0),  # clocks differ
])
def test_what_is_done_before_and_after_the_model_is_taken_out_of_compute(
    waited: tuple[float | None, float | None], folded: Folded | None, compute: float, ahead: float | None,
    behind: float | None
) -> None:
    first, last = waited
    found = split(statistics(0), statistics(10, compute_infer=10.0), 11.0, ahead_ms=first, behind_ms=last,
                  folded=folded)
    assert found == Layers(queue_ms=0.0, compute_ms=compute, input_output_ms=0.0, transport_ms=1.0, preprocess_ms=ahead,
                           postprocess_ms=behind)
    assert ("preprocess" in found.known, "postprocess" in found.known) == (ahead is not None, behind is not None)
    assert found.total_ms == pytest.approx(11.0)


def test_the_tokenizers_time_is_read_from_the_servers_metrics() -> None:
    page = ('enginewright_tokenising_seconds_total{{model="m",version="1"}} {}\n'
            'enginewright_tokenised_requests_total{{model="m",version="1"}} {}\n')
    assert list(waited_ms(page.format(1.5, 100), page.format(1.75, 150))) == [pytest.approx(5.0), None]
    assert list(waited_ms("", page.format(0.5, 100))) == [pytest.approx(5.0), None]
    assert waited_ms("", "") == (None, None)
    assert waited_ms(page.format(1.5, 100), page.format(1.5, 100)) == (None, None)


def test_a_replica_that_counts_and_has_told_of_no_request_is_seen() -> None:
    page = 'enginewright_python_steps_requests_total{{model="m",version="1"}} {}\n'
    assert held_back(page.format(100), page.format(100))
    assert not held_back(page.format(100), page.format(101))
    assert not held_back("nv_inference_count 1\n", "nv_inference_count 2\n")


def test_so_is_the_time_of_functions_of_the_users_own() -> None:
    page = ('enginewright_preprocessing_seconds_total{{model="m",version="1"}} {}\n'
            'enginewright_postprocessing_seconds_total{{model="m",version="1"}} {}\n'
            'enginewright_python_steps_requests_total{{model="m",version="1"}} {}\n')
    assert list(waited_ms("", page.format(0.5, 0.2, 100))) == [pytest.approx(5.0), pytest.approx(2.0)]
    assert list(waited_ms(page.format(0.5, 0, 100), page.format(0.75, 0, 150))) == [pytest.approx(5.0), None]
    texts = ('enginewright_tokenising_seconds_total{model="m",version="1"} 0.1\n'
             'enginewright_tokenised_requests_total{model="m",version="1"} 100\n')
    assert list(waited_ms("", texts + page.format(0, 0.2, 100))) == [pytest.approx(1.0), pytest.approx(2.0)]


times = st.floats(0.0, 1e4)
shares = st.one_of(st.none(), st.floats(0.0, 0.5))


@given(queue=times, put=times, infer=times, out=times, client=st.floats(0.01, 1e5),
       waited=st.one_of(st.none(), times), last=st.one_of(st.none(), times), ahead=shares, behind=shares)
def test_layers_sum_to_the_clients_time_and_none_is_negative(
    queue: float, put: float, infer: float, out: float, client: float, waited: float | None, last: float | None,
    ahead: float | None, behind: float | None
) -> None:
    after = statistics(100, queue=queue, compute_input=put, compute_infer=infer, compute_output=out)
    found = split(statistics(0), after, client, ahead_ms=waited, behind_ms=last,
                  folded=Folded(batch=1, preprocess=ahead, postprocess=behind))
    assert found.total_ms == pytest.approx(client, rel=1e-6)
    assert min(found.of(layer) for layer in NAMES) >= -1e-9
    assert sum(found.share(layer) for layer in NAMES) == pytest.approx(1.0)
    assert (found.disagreement_ms > 0) <= (found.transport_ms == 0)


EVEN = Layers(queue_ms=1.0, compute_ms=1.0, input_output_ms=1.0, transport_ms=1.0, preprocess_ms=1.0,
              postprocess_ms=1.0)


@pytest.mark.parametrize(
    ("layer", "layers", "options", "says"),
    [
        ("compute", EVEN, {"bound": "compute"}, "less arithmetic"),
        ("compute", EVEN, {"bound": "bandwidth"}, "narrower types"),
        ("compute", EVEN, {"bound": "overhead"}, "captured graphs on a GPU"),
        ("compute", EVEN, {}, "A lower precision"),
        ("input_output", EVEN, {"triton_backend": "python"}, "native backend"),
        ("input_output", EVEN, {"triton_backend": "tensorrt"}, "between host and device"),
        ("queue", EVEN, {}, "another replica"),
        ("queue", EVEN, {"delay": 1000}, "up to 1000 µs"),
        ("queue", EVEN, {"delay": 100}, "another replica"),
        ("preprocess", EVEN, {}, "what clients send"),
        ("postprocess", EVEN, {}, "fewer steps"),
        ("transport", EVEN, {}, "Serialising"),
        ("transport", Layers(queue_ms=0, compute_ms=99, input_output_ms=0, transport_ms=1), {}, "Nothing to gain"),
    ],
)
def test_advice(layer: Layer, layers: Layers, options: dict[str, Any], says: str) -> None:
    serving = ServingChoice(max_batch_size=8, max_queue_delay_us=options.pop("delay", 0))
    assert says in advice(layers, serving, **options)[layer]


@pytest.mark.parametrize("bound", get_args(Bound))
def test_advice_is_one_sentence_for_every_layer(bound: Bound) -> None:
    said = advice(EVEN, SERVING, bound=bound)
    assert list(said) == list(NAMES)
    assert all(text.endswith(".") and text.count(". ") == 0 for text in said.values())


def test_advice_of_a_request_that_took_no_time() -> None:
    assert list(advice(Layers(queue_ms=1, compute_ms=1, input_output_ms=1, transport_ms=1), SERVING)) == [
        "compute", "input_output", "queue", "transport"], "what was not measured has none"
    nothing = Layers(queue_ms=0, compute_ms=0, input_output_ms=0, transport_ms=0)
    assert set(advice(nothing, SERVING).values()) == {"Nothing to gain here."}
