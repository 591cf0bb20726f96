"""Histograms counted by PyTorch hold what NumPy's do, also as ONNX Runtime's quantiser merges them batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from enginewright_builder.engines import modelopt_histograms
from enginewright_builder.engines.modelopt_histograms import count_on_gpu, histogram_on

pytestmark = pytest.mark.torch
COUNTED = histogram_on("cpu")
NUMPY = np.histogram


def same(first: Any, second: Any) -> bool:
    pairs = zip(first, second, strict=True)
    return all(np.array_equal(one, other) and one.dtype == other.dtype for one, other in pairs)


def single(*values: float) -> Any:
    return np.array(values, np.float32)


@given(reach=st.floats(0.0009765625, 1024, width=32), bins=st.integers(1, 300),
       values=arrays.arrays(np.float32, st.integers(0, 200), elements=st.floats(-1200, 1200, width=32)))
def test_counts_are_numpys(values: Any, reach: float, bins: int) -> None:
    edges = np.histogram_bin_edges(values, bins, (-reach, reach))
    # On an edge, and a number beside it on either side: where a rounding would show.
    values = np.concatenate([values, edges, np.nextafter(edges, np.float32(np.inf)),
                             np.nextafter(edges, np.float32(-np.inf)), single(np.nan, np.inf)])
    assert same(COUNTED(values, bins, range=(-reach, reach)), NUMPY(values, bins, range=(-reach, reach)))


def test_values_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelopt_histograms, "_CHUNK", 7)
    values = np.random.default_rng(3).standard_normal((5, 20)).astype(np.float32)
    assert same(COUNTED(values, 16, range=(-2.0, 2.0)), NUMPY(values, 16, range=(-2.0, 2.0)))


@pytest.mark.parametrize(("values", "arguments"), [
    (single(1, 2, 3), {"bins": 4}),
    (single(1, 2, 3), {"bins": single(0, 2, 4), "range": (0, 4)}),
    (single(1, 2, 3).astype(np.float64), {"bins": 4, "range": (0, 4)}),
    (single(1, 2, 3).astype(np.float16), {"bins": 4, "range": (np.float32(0), np.float32(4))}),
    (single(1, 2, 3), {"bins": 4, "range": (0, 4), "density": True}),
    (single(1, 2, 3), {"bins": 4, "range": (0, 4), "weights": single(1, 2, 3)}),
])
def test_what_else_is_asked_for_is_numpys(values: Any, arguments: dict[str, Any]) -> None:
    assert same(COUNTED(values, **arguments), NUMPY(values, **arguments))


def test_batches_merge_into_the_same_histograms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch, a narrower and two wider ones, as ONNX Runtime's collector keeps them for its thresholds."""
    from onnxruntime.quantization.calibrate import HistogramCollector

    normal = np.random.default_rng(5).standard_normal
    batches = [scale * normal((2, 300)).astype(np.float32) for scale in (1, 0.5, 3, 4)]

    def collected() -> dict[str, Any]:
        collector = HistogramCollector("entropy", False, 128, 128, 99.9, "same")
        for batch in batches:
            collector.collect({"x": [batch]})
        found: dict[str, Any] = collector.histogram_dict
        return found

    in_numpy = collected()["x"]
    asked: list[Any] = []

    def counted(*arguments: Any, **named: Any) -> Any:
        asked.append(arguments)
        return COUNTED(*arguments, **named)

    monkeypatch.setattr(np, "histogram", counted)
    found = collected()["x"]
    assert len(asked) == len(batches)
    assert same(found[:2], in_numpy[:2])
    assert found[2:] == in_numpy[2:]


def test_a_gpu_that_cannot_count_leaves_it_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no memory beside the model")

    monkeypatch.setattr(modelopt_histograms, "_counts", full)
    values = single(1, 2, 3)
    assert same(COUNTED(values, 4, range=(0, 4)), NUMPY(values, 4, range=(0, 4)))


@pytest.mark.parametrize("there_is_one", [False, True])
def test_only_where_there_is_a_gpu(there_is_one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(np, "histogram", NUMPY)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there_is_one)
    count_on_gpu()
    assert (np.histogram is not NUMPY) == there_is_one
