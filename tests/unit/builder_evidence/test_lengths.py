"""Padding is tried on the source model and on the engine before anything is joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import Interface, Padding, TensorSpec
from enginewright_builder.data.lengths import alone, load_samples, size
from enginewright_builder.data.sets import SampleSet
from enginewright_builder.engines.base import Joined
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.evidence.joining import counted, to_longest
from enginewright_builder.evidence.lengths import borne_by, buckets, run_positions, settle, steps
from enginewright_builder.padding import Fill
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.prove import similarity

TABLE = np.random.default_rng(0).standard_normal((50, 4))
INTERFACE = Interface(
    inputs=tuple(TensorSpec(name=name, dtype="int64", shape=("batch", "1..64")) for name in ("input_ids",
                                                                                            "attention_mask")),
    outputs=(TensorSpec(name="tokens", dtype="float64", shape=("batch", "n", 4)),
             TensorSpec(name="mean", dtype="float64", shape=("batch", 4))))


class Source:
    """A vector a token, and their mean; ``heeds`` the mask or not."""

    interface, pad_token = INTERFACE, 7

    def __init__(self, *, heeds: bool = True) -> None:
        self.heeds = heeds

    def run(self, inputs: Tensors) -> dict[str, Any]:
        tokens, mask = TABLE[inputs["input_ids"]], inputs["attention_mask"][:, :, None]
        kept = mask if self.heeds else np.ones_like(mask)
        return {"tokens": tokens, "mean": (tokens * kept).sum(axis=1) / kept.sum(axis=1)}


def texts(*lengths: int, longest: int = 0) -> SampleSet:
    """One batch of ids of these lengths, padded as a tokenizer does."""
    longest = longest or max(lengths)
    rng, mask = np.random.default_rng(1), (np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64)
    return SampleSet(batches=[{"input_ids": rng.integers(1, 50, mask.shape) * mask, "attention_mask": mask}],
                     count=len(lengths), origin="held-out")


def settled(source: Any, evaluation: SampleSet, stated: Padding | None = None, **options: Any) -> Any:
    return settle(source, stated, evaluation, **options)


def test_a_model_that_heeds_its_mask_is_joined_and_what_is_as_long_is_cut() -> None:
    found = settled(Source(), texts(3, 9, 30))
    assert found.joined == Joined(mask="attention_mask", fill={"input_ids": 7.0, "attention_mask": 0.0},
                                  cut={"tokens": (1,)}, buckets=(9, 30, 64))
    assert [sample["input_ids"].shape for sample in found.samples] == [(1, 3), (1, 9), (1, 30)]
    assert found.notes == ()


def test_one_that_does_not_is_not_joined_and_the_report_says_why() -> None:
    found = settled(Source(heeds=False), texts(3, 9, 30))
    assert (found.joined, found.samples) == (None, ())
    assert "Requests of different length are not joined: padded, output 'mean' differs by" in found.notes[0]


def test_what_the_user_asks_for_and_the_source_does_not_bear_is_an_error() -> None:
    with pytest.raises(UserError) as caught:
        settled(Source(heeds=False), texts(3, 9, 30), Padding(mask="attention_mask"))
    assert (caught.value.reason, caught.value.field) == ("InterfaceInvalid", "spec.interface.padding")
    assert "output 'mean' differs" in caught.value.message


class Part(Source):
    """Answers some of the tokens alone."""

    def __init__(self, kept: Callable[[Any], Any]) -> None:
        super().__init__()
        self.kept = kept

    def run(self, inputs: Tensors) -> dict[str, Any]:
        return {"tokens": self.kept(super().run(inputs)["tokens"])}


def test_an_output_of_a_length_of_its_own_is_not_joined() -> None:
    root = Part(lambda tokens: tokens[:, :int(tokens.shape[1] ** 0.5)])
    assert "has the shape [5, 4], and alone [1, 4]" in settled(root, texts(3, 9, 30)).notes[0]


def test_an_output_of_every_other_position_is_cut_by_that() -> None:
    found = settled(Part(lambda tokens: tokens[:, ::2]), texts(3, 9, 30))
    assert found.joined.frames == {"tokens": ((1, 2, 1),)}


def test_data_of_one_length_are_cut_into_parts() -> None:
    found = settled(Source(), texts(30, 30, 30))
    assert [sample["input_ids"].shape for sample in found.samples] == [(1, 10), (1, 20), (1, 30)]
    assert found.joined is not None


def test_parts_of_a_text_end_as_it_does() -> None:
    """Some models answer at the token that ends a text, and fail without one."""
    end = len(TABLE) - 1

    class Ended(Source):
        def run(self, inputs: Tensors) -> dict[str, Any]:
            assert ((inputs["input_ids"] == end).sum(axis=1) == 1).all()
            return super().run(inputs)

    data = texts(30, 30)
    for ids in (batch["input_ids"] for batch in data.batches):
        ids[ids == end] = 1
        ids[:, -1] = end
    assert len(settled(Ended(), data).samples) == 3


def test_lengths_are_rounded_where_asked() -> None:
    assert settled(Source(), texts(3, 9, 30), rounded=True).joined.steps == (8, 9, 12, 16, 24, 30, 32, 48, 64)


def test_a_model_without_a_mask_is_left_alone() -> None:
    class Plain(Source):
        interface = dataclasses.replace(INTERFACE, inputs=INTERFACE.inputs[:1])

    assert settled(Plain(), texts(3)).joined is None


# Sounds

SOUND = Interface(inputs=(TensorSpec(name="sound", dtype="float32", shape=("batch", "8..4000")),),
                  outputs=(TensorSpec(name="logits", dtype="float64", shape=("batch", "frames", 4)),))
KERNEL, STRIDE = 8, 3
WEIGHTS = np.random.default_rng(3).standard_normal((KERNEL, 4))


class Hears:
    """Convolves a sound; what ``after`` makes of the frames."""

    interface, pad_token = SOUND, 0

    def __init__(self, after: Callable[[Any], Any] = lambda frames: frames) -> None:
        self.after = after

    def run(self, inputs: Tensors) -> dict[str, Any]:
        windows = np.lib.stride_tricks.sliding_window_view(inputs["sound"], KERNEL, axis=1)[:, ::STRIDE]
        return {"logits": self.after(windows.astype(np.float64) @ WEIGHTS)}


def sounds(*lengths: int) -> SampleSet:
    rng = np.random.default_rng(4)
    rows = [rng.standard_normal((1, length)).astype(np.float32) for length in lengths]
    rows[0][:, -2:] = 0  # silence at its end belongs to a sound
    return SampleSet(batches=[{"sound": row} for row in rows], count=len(rows), origin="held-out")


def test_sounds_are_joined_where_each_frame_is_of_what_is_near_it() -> None:
    found = settled(Hears(), sounds(40, 90, 200))
    assert found.joined == Joined(mask="sound", fill={"sound": 0.0}, frames={"logits": ((1, 3, -5),)}, marked=False,
                                  buckets=(90, 200, 4000))
    assert [sample["sound"].shape[1] for sample in found.samples] == [40, 90, 200]


@pytest.mark.parametrize("after", [
    lambda frames: frames / np.abs(frames).mean(axis=(1, 2), keepdims=True),
    lambda frames: np.exp(frames) / np.exp(frames).sum(axis=1, keepdims=True),
    lambda frames: frames.mean(axis=1), lambda frames: frames.sum(axis=1),
    lambda frames: np.maximum(frames, 0).max(axis=1), lambda frames: np.cumsum(frames[:, ::-1], axis=1)[:, ::-1]],
    ids=["normalised", "attention", "mean", "sum", "maximum", "looks back from the end"])
def test_sounds_whose_answers_padding_changes_are_not_joined(after: Callable[[Any], Any]) -> None:
    found = settled(Hears(after), sounds(40, 90, 200))
    assert (found.joined, found.samples) == (None, ())
    assert found.notes[0].startswith("Requests of different length are not joined: padded, ")
    assert "output 'logits' differs by" in found.notes[0]


def test_silence_that_is_harmless_by_chance_is_told_by_louder_padding() -> None:
    """Padding adds nothing to a maximum above zero, until a sound has none."""
    found = settled(Hears(lambda frames: np.maximum(frames, 0).max(axis=1)), sounds(40, 90, 200))
    assert "in the place of silence" in found.notes[0]


def test_a_model_that_takes_some_lengths_alone_is_left_as_it_is() -> None:
    def even(frames: Any) -> Any:
        if frames.shape[1] % 2:
            raise RuntimeError("cannot add 7 to 8 frames")
        return frames

    found = settled(Hears(even), sounds(41, 41, 41))
    assert found.joined is None
    assert "does not answer parts of its data: cannot add 7 to 8 frames" in found.notes[0]


def test_memory_that_is_short_is_not_blamed_on_the_model() -> None:
    def large(frames: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    with pytest.raises(TransientError, match="ran out of memory"):
        settled(Hears(large), sounds(40, 90, 200))


def test_an_engine_is_held_to_the_frames_of_each_sound() -> None:
    found = settled(Hears(), sounds(40, 90, 200))
    # A product of several rows may be rounded otherwise than one of a single row: it depends on the processor.
    assert borne_by(Hears().run, found.joined, found.samples, 1e-6) == ""
    loud = Hears(lambda frames: frames / np.abs(frames).mean(axis=(1, 2), keepdims=True) + frames.mean())
    assert "output 'logits' agrees by" in borne_by(loud.run, found.joined, found.samples, 0.001)


JOINED = Joined(mask="attention_mask", fill={"input_ids": 7.0, "attention_mask": 0.0}, cut={"tokens": (1,)})


def test_an_engine_is_held_to_the_tolerance_of_the_gate() -> None:
    samples = settled(Source(), texts(3, 9, 30)).samples
    assert borne_by(Source().run, JOINED, samples, 0.0) == ""
    assert "output 'mean' agrees by" in borne_by(Source(heeds=False).run, JOINED, samples, 0.01)


@pytest.mark.parametrize(("seconds", "expected"), [
    (lambda positions: 4.0 + 0.1 * positions, 40.0),  # a run costs as much as 40 positions
    (lambda positions: 0.1 * positions, 0.0),
    (lambda positions: 4.0, 72.0),  # nothing but the run: as much as all that was tried
])
def test_what_a_run_costs_is_told_in_positions(seconds: Callable[[int], float], expected: float,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def run(inputs: Tensors) -> Tensors:
        now[0] += seconds(inputs["input_ids"].size)
        return {}

    monkeypatch.setattr("enginewright_builder.evidence.lengths.time.perf_counter", lambda: now[0])
    samples = settled(Source(), texts(3, 9, 30)).samples
    assert run_positions(run, JOINED, samples, 8) == pytest.approx(expected)


def known(high: int | None) -> Fill:
    return Fill(mask="m", values={"m": 0}, low=1, high=high)


@pytest.mark.parametrize(("own", "high", "expected"), [
    ([5, 20, 90], 512, (20, 90, 512)), ([5, 20, 90], None, (20, 90, 180)), ([64], 64, (64,)), ([8, 8], 64, (8, 64))])
def test_buckets_are_the_median_the_longest_and_the_rest(own: list[int], high: int | None,
                                                         expected: tuple[int, ...]) -> None:
    assert buckets(np.array(own), known(high)) == expected


@pytest.mark.parametrize(("longest", "high", "expected"), [
    (20, 100, (8, 12, 16, 24, 32, 48, 64, 96, 100)), (6, None, (8, 12)), (3, 5, (5,))])
def test_steps_end_with_what_the_model_takes(longest: int, high: int | None, expected: tuple[int, ...]) -> None:
    assert steps(longest, known(high)) == expected


def test_numbers_of_classes_are_as_alike_as_many_are_equal() -> None:
    assert similarity(np.array([[1, 2, 3, 4]]), np.array([[1, 2, 3, 9]])) == 0.75


# What a load sends

def test_samples_of_a_load_stand_alone_and_have_the_lengths_of_the_data() -> None:
    samples = load_samples(texts(*range(1, 201)), "attention_mask")
    found = [sample["input_ids"].shape[1] for sample in samples]
    assert (len(found), min(found), max(found)) == (64, 1, 200)
    assert abs(found[0] - 100) <= 3, "the first has the median length"
    assert found != sorted(found)
    assert all(sample["attention_mask"].all() for sample in samples)
    again = load_samples(texts(*range(1, 201)), "attention_mask")
    assert [size(sample) for sample in again] == [size(sample) for sample in samples]


def test_samples_of_one_shape_are_few() -> None:
    assert len(load_samples(texts(*[5] * 40), "attention_mask")) == 16


def test_data_without_a_mask_keep_their_shapes() -> None:
    rows = [{"x": np.zeros((2, length))} for length in (4, 9)]
    found = alone(SampleSet(batches=rows, count=4, origin="held-out"), "attention_mask")
    assert [sample["x"].shape for sample in found] == [(1, 4), (1, 4), (1, 9), (1, 9)]


def test_clients_may_fill_everything_up_to_the_longest() -> None:
    samples = settled(Source(), texts(3, 9, 30)).samples
    assert {one["input_ids"].shape for one in to_longest(JOINED, samples)} == {(1, 30)}


def test_positions_are_read_from_the_servers_metrics() -> None:
    page = ('# HELP enginewright_positions_total x\n'
            'enginewright_positions_total{model="m",version="1"} 120\nenginewright_positions_total{model="n"} 30.0\n'
            'enginewright_padding_positions_total{model="m",version="1"} 12\n')
    assert counted(page) == (150.0, 12.0)
    assert counted("") == (0.0, 0.0)


@pytest.mark.parametrize(("served", "expected", "alike"), [
    ([1.0, 2.0], [1.0, 2.0], 1.0), ([1.0, 0.0], [0.0, 1.0], 0.0), ([0.0], [0.0], 1.0), ([1.0], [0.0], 0.0),
    ([1.0], [1.0, 1.0], -np.inf), ([np.nan, 1.0], [1.0, 1.0], -np.inf), ([-np.inf, 1.0], [-np.inf, 1.0], 1.0)])
def test_answers_are_as_alike_as_their_directions(served: list[float], expected: list[float], alike: float) -> None:
    assert similarity(np.array(served), np.array(expected)) == pytest.approx(alike)
    assert similarity(None, np.array(expected)) == -np.inf
