"""What of the TensorRT session needs no GPU: which profile answers, and what is read from DLPack capsules."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.pod.python_model.trt_session import (
    HostTensor,
    Lent,
    Profile,
    ShapeNotCoveredError,
    as_tensor,
    choose,
    read_capsule,
)


def profile(index: int, low: tuple[int, ...], best: tuple[int, ...], high: tuple[int, ...]) -> Profile:
    return Profile(0, index, {"x": (low, best, high)})


EXACT = profile(0, (8, 40), (8, 40), (8, 40))
RANGED = profile(1, (2, 1), (8, 40), (8, 512))
ONE = profile(2, (1, 1), (1, 40), (1, 512))
WIDE = profile(3, (1, 1), (32, 40), (32, 512))


@pytest.mark.parametrize(("profiles", "shape", "chosen", "run_at"), [
    ([EXACT, RANGED], (8, 40), EXACT, (8, 40)),
    ([EXACT, RANGED], (8, 41), RANGED, (8, 41)),
    ([EXACT, RANGED], (3, 40), RANGED, (3, 40)),
    ([EXACT, RANGED], (1, 40), RANGED, (2, 40)),
    ([EXACT], (1, 40), EXACT, (8, 40)),
    ([WIDE, ONE], (1, 40), ONE, (1, 40)),
    ([WIDE, ONE], (2, 40), WIDE, (2, 40)),
    ([EXACT, RANGED, ONE, WIDE], (1, 40), ONE, (1, 40)),
    ([RANGED, WIDE], (31, 500), WIDE, (31, 500)),
])
def test_the_nearest_profile_that_adds_the_fewest_rows_answers(profiles: list[Profile], shape: tuple[int, ...],
                                                               chosen: Profile, run_at: tuple[int, ...]) -> None:
    assert choose(profiles, {"x": shape}) == (chosen, {"x": run_at})


@pytest.mark.parametrize("shape", [(33, 40), (1, 513), (1, 0), (1, 40, 1), (1,)])
def test_a_shape_outside_every_profile_is_refused_with_the_ranges(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeNotCoveredError) as caught:
        choose([ONE, WIDE], {"x": shape})
    assert f"x{list(shape)}" in str(caught.value)
    assert "x[1, 1..512] or x[1..32, 1..512]" in str(caught.value)


def test_inputs_must_agree_in_their_batch() -> None:
    pair = Profile(0, 0, dict.fromkeys("xy", ((1, 1), (8, 8), (8, 8))))
    with pytest.raises(ValueError, match=r"x\[1, 4\], y\[2, 4\]"):
        choose([pair], {"x": (1, 4), "y": (2, 4)})


@given(batch=st.integers(1, 64), size=st.integers(1, 64), bounds=st.lists(
    st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.integers(1, 64)), min_size=1, max_size=5))
def test_what_is_chosen_always_covers(batch: int, size: int, bounds: list[tuple[int, int, int, int]]) -> None:
    profiles = [profile(index, (min(a, b), min(c, d)), (max(a, b), max(c, d)), (max(a, b), max(c, d)))
                for index, (a, b, c, d) in enumerate(bounds)]
    coverable = [one for one in profiles
                 if batch <= one.ranges["x"][2][0] and one.ranges["x"][0][1] <= size <= one.ranges["x"][2][1]]
    if not coverable:
        with pytest.raises(ShapeNotCoveredError):
            choose(profiles, {"x": (batch, size)})
        return
    chosen, shapes = choose(profiles, {"x": (batch, size)})
    low, _, high = chosen.ranges["x"]
    assert all(a <= one <= b for a, one, b in zip(low, shapes["x"], high, strict=True))
    assert shapes["x"][0] - batch == min(max(0, one.ranges["x"][0][0] - batch) for one in coverable)


@pytest.mark.parametrize("array", [
    np.arange(24, dtype=np.int64).reshape(2, 3, 4), np.ones((5, 1), np.float32), np.zeros((1, 7), np.float16),
    np.array([[True, False]]), np.arange(8, dtype=np.uint8)[4:].reshape(2, 2), np.empty((0, 3), np.int32),
], ids=lambda array: str(array.dtype))
def test_a_capsule_tells_address_shape_and_type(array: Any) -> None:
    pointer, shape, dtype = read_capsule(array.__dlpack__())
    assert (shape, dtype) == (array.shape, array.dtype)
    assert not array.size or pointer == array.ctypes.data


@pytest.mark.parametrize("view", [np.ones((4, 6), np.float32).T, np.ones((4, 6), np.float32)[:, ::2]])
def test_a_tensor_that_is_not_contiguous_is_refused(view: Any) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        read_capsule(view.__dlpack__())


@pytest.mark.torch
def test_a_type_that_numpy_lacks_is_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="NumPy lacks"):
        read_capsule(torch.zeros(2, 2, dtype=torch.bfloat16).__dlpack__())


def test_reading_a_capsule_leaves_it_to_its_maker() -> None:
    """NumPy frees a capsule that nobody consumed, and takes one that was read as if it were new."""
    array = np.arange(6)
    capsule = array.__dlpack__()
    read_capsule(capsule)
    read_capsule(capsule)
    assert "dltensor" in repr(capsule)


class Speaking:
    """A tensor of the CPU that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("wrap", [lambda array: array, Speaking])
def test_tensors_of_the_host_become_arrays(wrap: Any) -> None:
    array = np.arange(6.0).reshape(2, 3)
    tensor = as_tensor(wrap(array), stream=0)
    assert isinstance(tensor, HostTensor)
    np.testing.assert_array_equal(tensor.array, array)
    assert (tensor.shape, tensor.dtype) == ((2, 3), np.dtype(np.float64))


def test_contexts_and_graphs_are_kept_by_profile() -> None:
    assert {ONE: "one", WIDE: "wide"}[ONE] == "one"


class Heap:
    """Memory of this process, in place of page-locked memory."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.made = 0

    def allocate(self, size: int) -> int:
        block = (ctypes.c_uint8 * size)()
        self.held[ctypes.addressof(block)] = block
        self.made += 1
        return ctypes.addressof(block)

    def free(self, pointer: int) -> None:
        del self.held[pointer]


def test_memory_is_lent_again_once_no_view_of_it_is_left() -> None:
    heap = Heap()
    lent, kind = Lent(heap.allocate, heap.free), np.dtype(np.float32)
    first = lent.lend((4, 8), kind)
    first[...] = 1.0
    row = first[2:3]
    del first
    second = lent.lend((4, 8), kind)
    second[...] = 2.0
    np.testing.assert_array_equal(row, np.ones((1, 8)), "a view keeps its memory")
    del row
    third = lent.lend((2, 8), kind)
    third[...] = 3.0
    assert heap.made == 2
    np.testing.assert_array_equal(second, np.full((4, 8), 2.0))


@pytest.mark.parametrize("rows", [(1, 8), (8, 1), (1, 8, 4), (4, 4)])
def test_answers_of_several_sizes_find_their_memory_again(rows: tuple[int, ...]) -> None:
    heap = Heap()
    lent, kind = Lent(heap.allocate, heap.free), np.dtype(np.float32)
    for _ in range(5):
        arrays = [lent.lend((count, 8), kind) for count in rows]
        assert len({array.__array_interface__["data"][0] for array in arrays}) == len(rows)
        del arrays
    assert heap.made == len(rows)


def test_memory_that_is_too_small_is_given_back() -> None:
    heap = Heap()
    lent, kind = Lent(heap.allocate, heap.free), np.dtype(np.float32)
    for rows in (1, 2, 4, 8):
        assert lent.lend((rows, 8), kind).shape == (rows, 8)
        assert len(heap.held) == 1
    assert lent.lend((0, 8), kind).shape == (0, 8)
    assert lent.lend((), kind).shape == ()
    lent.close()
    lent.close()
    assert not heap.held
