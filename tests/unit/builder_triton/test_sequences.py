"""The state that a replica keeps of each sequence, and what Triton is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import Interface, SequenceBatching, ServingChoice, StateTensor, TensorSpec
from enginewright_builder.pod.python_model.sequences import END, SLACK, START, Sequences
from enginewright_builder.sequences import described_state
from enginewright_builder.triton.model_config import ServedModel, model_config, parse_text, to_text

IDLE, MOST = 2.0, 4
LSTM = Interface(
    inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 16)), TensorSpec(name="h", dtype="float32",
                                                                            shape=(1, 1, 8))),
    outputs=(TensorSpec(name="y", dtype="float32", shape=(1, 4)), TensorSpec(name="hn", dtype="float32",
                                                                            shape=(1, 1, 8))),
    sequence_batching=SequenceBatching(state=(StateTensor(input_name="h", output_name="hn"),),
                                       max_sequence_idle_us=int(IDLE * 1e6), max_candidate_sequences=MOST // 2))
# The same, with the batch in front of its state.
JOINED = Interface(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 16)),
            TensorSpec(name="h", dtype="float32", shape=("batch", 1, 8))),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 4)),
             TensorSpec(name="hn", dtype="float32", shape=("batch", 1, 8))),
    sequence_batching=LSTM.sequence_batching)


@dataclass
class Request:
    """As Triton's Python backend has it."""

    sequence: int | str
    bits: int = 0

    def correlation_id(self) -> int | str:
        return self.sequence

    def flags(self) -> int:
        return self.bits


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Adding:
    """Adds one to the state with each request, and answers it."""

    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.kept = Sequences(described_state(LSTM), self.clock)

    def step(self, sequence: int | str, bits: int = 0) -> float:
        request = Request(sequence, bits)
        state = self.kept.state(request)["h"] + 1
        self.kept.keep(request, {"hn": state})
        return float(state.max())


def test_what_triton_is_told() -> None:
    config = to_text(model_config(ServedModel(name="", triton_backend="python", interface=LSTM,
                                              serving=ServingChoice(max_batch_size=0))))
    assert config == """max_batch_size: 0
input {
  name: "x"
  data_type: TYPE_FP32
  dims: 1
  dims: 16
}
output {
  name: "y"
  data_type: TYPE_FP32
  dims: 1
  dims: 4
}
instance_group {
  count: 1
  kind: KIND_CPU
}
sequence_batching {
  max_sequence_idle_microseconds: 2000000
  oldest {
    max_candidate_sequences: 2
  }
}
backend: "python"
"""
    assert parse_text(config).sequence_batching.oldest.max_candidate_sequences == 2


def test_what_triton_is_told_where_steps_are_joined() -> None:
    """The same request as without: a batch of 1 stands in front of it."""
    config = model_config(ServedModel(name="", triton_backend="python", interface=JOINED, serving=ServingChoice(
        max_batch_size=8, preferred_batch_sizes=(4,), max_queue_delay_us=200)))
    oldest = config.sequence_batching.oldest
    assert (config.max_batch_size, list(config.input[0].dims), config.HasField("dynamic_batching")) == (8, [16], False)
    assert (oldest.max_candidate_sequences, list(oldest.preferred_batch_size), oldest.max_queue_delay_microseconds
            ) == (2, [4], 200)


def test_state_that_is_joined_has_a_batch_of_one_and_holds_no_memory_of_others() -> None:
    kept = Sequences(described_state(JOINED))
    assert kept.state(Request(1, START))["h"].shape == (1, 1, 8)
    together = np.arange(24, dtype=np.float32).reshape(3, 1, 8)
    kept.keep(Request(1, START), {"hn": together[1:2]})
    state = kept.state(Request(1))["h"]
    np.testing.assert_array_equal(state, together[1:2])
    assert state.base is None


def test_each_sequence_has_a_state_of_its_own() -> None:
    model = Adding()
    assert [model.step(1, START), model.step("one", START), model.step(1), model.step("one"), model.step(1)
            ] == [1, 1, 2, 2, 3]


def test_a_sequence_that_begins_again_begins_with_zeros() -> None:
    model = Adding()
    assert [model.step(1, START), model.step(1), model.step(1, START), model.step(1)] == [1, 2, 1, 2]


@pytest.mark.parametrize("bits", [END, START | END])
def test_nothing_is_kept_of_a_sequence_that_ended(bits: int) -> None:
    model = Adding()
    model.step(1, START)
    model.step(1, bits)
    assert not len(model.kept)
    with pytest.raises(ValueError, match=r"sequence 1 has no state in this replica.*with the START flag"):
        model.step(1)


def test_a_request_that_failed_changes_no_state() -> None:
    model = Adding()
    model.step(1, START)
    model.kept.keep(Request(1), None)
    assert model.step(1) == 2
    model.kept.keep(Request(1, END), None)
    assert not len(model.kept)


def test_the_zeros_of_the_next_sequence_cannot_be_written_over() -> None:
    state = Adding().kept.state(Request(1, START))["h"]
    with pytest.raises(ValueError, match="read-only"):
        state += 1


def test_what_was_idle_for_longer_than_triton_waits_is_dropped_with_the_next_answer() -> None:
    model = Adding()
    model.step(1, START)
    model.clock.now = IDLE + SLACK
    model.step(2, START)
    assert len(model.kept) == 2
    model.clock.now += 0.1
    model.step(2)
    assert len(model.kept) == 1


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0, 0, START, END, START | END])), max_size=60))
def test_any_requests_keep_bounded_state_and_no_other_sequences(steps: list[tuple[int, int]]) -> None:
    model, known = Adding(), dict[int, int]()
    for sequence, bits in steps:
        before = 0 if bits & START else known.get(sequence)
        try:
            answer: Any = model.step(sequence, bits)
        except ValueError:
            answer = None
        assert len(model.kept) <= MOST
        if before is None:
            assert answer is None
        elif answer is not None:  # else it was among the oldest
            assert answer == before + 1
        if answer is None or bits & END:
            known.pop(sequence, None)
        else:
            known[sequence] = int(answer)


def test_zeros_are_of_the_states_own_type() -> None:
    state = Sequences({"state": [{"input": "n", "output": "m", "dtype": "int64", "shape": [2]}], "most": 1, "idle": 1})
    zeros = state.state(Request(1, START))["n"]
    assert (str(zeros.dtype), zeros.tolist()) == ("int64", [0, 0])
