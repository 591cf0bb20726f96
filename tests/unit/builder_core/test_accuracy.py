"""Metrics and their bounds: known values, and what must hold for all."""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from enginewright_builder.accuracy.gate import Accuracy, compare
from enginewright_builder.accuracy.rules import METRICS
from enginewright_builder.errors import UserError
from enginewright_builder.tensors import Array, Tensors

RNG = np.random.default_rng(0)
OUTPUTS = RNG.normal(size=(40, 10))
# Enough samples to prove 1 %.
VARIED = RNG.normal(size=(1000, 10))


def one_by_one(array: Array) -> list[Tensors]:
    return [{"y": array[place:place + 1]} for place in range(len(array))]


def score(metric: str, reference: Array, candidate: Array) -> Accuracy:
    return compare(metric, [{"y": reference}], [{"y": candidate}])


@pytest.mark.parametrize("metric", METRICS)
def test_equal_answers_score_one(metric: str) -> None:
    got = score(metric, OUTPUTS, OUTPUTS.copy())
    assert got.value == pytest.approx(1.0)
    assert got.samples == 40
    assert got.passes(0.1)


@pytest.mark.parametrize(("metric", "candidate", "value"), [
    ("cosine", -OUTPUTS, 0.0), ("cosine", OUTPUTS * 3, 1.0), ("cosine", np.zeros_like(OUTPUTS), 0.0),
    ("relative-error", OUTPUTS * 1.1, 0.9), ("relative-error", -OUTPUTS, 0.0),
    ("spearman", -OUTPUTS, 0.0), ("spearman", np.exp(OUTPUTS), 1.0),
    ("top1", -OUTPUTS, 0.0), ("top1", OUTPUTS * 2, 1.0),
])
def test_known_values(metric: str, candidate: Array, value: float) -> None:
    assert score(metric, OUTPUTS, candidate).value == pytest.approx(value)


def test_zero_vectors_agree_with_each_other_only() -> None:
    zeros, ones = np.zeros((8, 3)), np.ones((8, 3))
    assert score("cosine", zeros, zeros).value == 1.0
    assert score("cosine", zeros, ones).value == 0.0


def test_of_several_outputs_the_worst_counts() -> None:
    reference = [{"a": OUTPUTS, "b": OUTPUTS}]
    assert compare("cosine", reference, [{"a": OUTPUTS, "b": -OUTPUTS}]).value == 0.0


def test_batches_are_of_all_samples() -> None:
    halves = [{"y": OUTPUTS[:16]}, {"y": OUTPUTS[16:]}]
    mirrored = [{"y": OUTPUTS[:16]}, {"y": -OUTPUTS[16:]}]
    assert compare("cosine", halves, mirrored).value == pytest.approx(16 / 40)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_candidate_that_is_not_finite_never_passes(bad: float) -> None:
    candidate = OUTPUTS.copy()
    candidate[3, 3] = bad
    got = score("cosine", OUTPUTS, candidate)
    assert not got.finite
    assert not got.passes(0.999)
    assert got.broken == (0, 3)
    assert "NaN or infinity" in got.refusal(0.999)


def test_a_reference_that_is_not_finite_is_the_users_to_mend() -> None:
    reference = OUTPUTS.copy()
    reference[0, 0] = math.nan
    with pytest.raises(UserError) as caught:
        score("cosine", reference, OUTPUTS)
    assert caught.value.reason == "ReferenceNotFinite"


def test_spearman_of_single_numbers_is_taken_over_the_samples() -> None:
    reference = np.arange(50.0)[:, None]
    swapped = reference.copy()
    swapped[[10, 11]] = swapped[[11, 10]]
    got = score("spearman", reference, swapped)
    assert 0.999 < got.value < 1
    assert got.low < got.value


class TestGuards:
    """What a metric is blind to."""

    @pytest.mark.parametrize("metric", ["cosine", "top1", "spearman"])
    @pytest.mark.parametrize("scale", [2.0, 0.5, 1.5])
    def test_answers_of_another_size(self, metric: str, scale: float) -> None:
        got = score(metric, VARIED, VARIED * scale)
        assert got.low > 0.99
        assert f"{scale:.3g} times" in got.refusal(0.01)

    @pytest.mark.parametrize("metric", METRICS)
    def test_the_same_answer_to_everything(self, metric: str) -> None:
        """Where all answers have much in common, their mean is close to each of them."""
        alike = 10 + np.arange(10.0) * 5 + 0.01 * VARIED
        got = score(metric, alike, np.broadcast_to(alike.mean(axis=0), alike.shape))
        assert got.low > 0.99
        assert got.drowned == pytest.approx(1.0)
        assert "one sample from another" in got.refusal(0.01)

    @pytest.mark.parametrize("metric", METRICS)
    def test_a_neighbours_answer(self, metric: str) -> None:
        alike = 10 + np.arange(10.0) * 5 + 0.01 * VARIED
        got = score(metric, alike, np.roll(alike, 1, axis=0))
        assert got.low > 0.99
        assert not got.passes(0.01)

    @pytest.mark.parametrize("metric", METRICS)
    def test_a_little_noise_passes(self, metric: str) -> None:
        noisy = VARIED * (1 + 1e-3 * RNG.normal(size=VARIED.shape))
        assert score(metric, VARIED, noisy).refusal(0.02) == ""

    @pytest.mark.parametrize("metric", METRICS)
    @pytest.mark.parametrize("wrong", [lambda alike: np.broadcast_to(alike.mean(axis=0), alike.shape),
                                       lambda alike: np.roll(alike, 1, axis=0)], ids=["the same", "a neighbour's"])
    def test_samples_that_come_one_by_one(self, metric: str, wrong: Callable[[Array], Array]) -> None:
        """As sentences of many lengths do, whose embeddings are of one size."""
        alike = 10 + np.arange(10.0) * 5 + 0.01 * VARIED
        got = compare(metric, one_by_one(alike), one_by_one(wrong(alike)))
        assert got.low > 0.99
        assert "one sample from another" in got.refusal(0.01)
        assert got.drowned == pytest.approx(score(metric, alike, wrong(alike)).drowned, rel=0.2)
        assert compare(metric, one_by_one(VARIED), one_by_one(VARIED * 1.001)).refusal(0.01) == ""

    def test_each_output_has_neighbours_of_its_own(self) -> None:
        """Of a model that answers each token, and the sentence as well."""
        alike = 10 + np.arange(10.0) * 5 + 0.01 * VARIED
        constant = np.broadcast_to(alike.mean(axis=0), alike.shape)
        tokens = [RNG.normal(size=(1, 1 + place, 4)) for place in range(400)]
        references, candidates = ([{"tokens": one, "sentence": sentences[place][None]} for place, one
                                   in enumerate(tokens)] for sentences in (alike, constant))
        got = compare("cosine", references, candidates)
        assert "one sample from another" in got.refusal(0.01)
        sound = compare("cosine", references, references)
        assert sound.refusal(0.01) == ""
        assert sound.untold == "contrast of tokens unknown: no two samples beside each other are of one shape"

    def test_answers_of_one_size_and_another_form_are_no_neighbours(self) -> None:
        forms = [RNG.normal(size=(1, *form)) for form in ((2, 6), (3, 4)) * 20]
        got = compare("cosine", [{"y": one} for one in forms], [{"y": one} for one in forms])
        assert "contrast of y" in got.untold
        assert score("cosine", OUTPUTS, OUTPUTS).untold == ""

    def test_answers_that_are_all_the_same_in_the_reference_are_no_fault(self) -> None:
        same = np.broadcast_to(np.arange(1.0, 11), VARIED.shape)
        assert score("cosine", same, same * 1.0001).passes(0.01)

    @pytest.mark.parametrize(("candidate", "told"), [
        ({"y": VARIED[:, :1]}, r"answers y as \[1000, 1\], the source as \[1000, 10\]"),
        ({"y": VARIED[:1]}, "answers y as"), ({"z": VARIED}, "does not answer y"),
    ])
    def test_answers_of_another_shape_are_never_broadcast(self, candidate: Tensors, told: str) -> None:
        got = compare("cosine", [{"y": VARIED}], [candidate])
        assert re.search(told, got.refusal(0.25))

    def test_two_outputs_swapped(self) -> None:
        other = RNG.normal(size=VARIED.shape)
        assert not compare("cosine", [{"a": VARIED, "b": other}], [{"a": other, "b": VARIED}]).passes(0.25)

    def test_one_output_among_several_cannot_hide(self) -> None:
        got = compare("top1", [{"a": VARIED, "b": VARIED}], [{"a": VARIED, "b": VARIED * 2}])
        assert "another size" in got.refusal(0.1)

    def test_a_whole_numbered_answer_is_finite(self) -> None:
        labels = RNG.integers(0, 9, (600, 4))
        assert score("cosine", labels, labels.copy()).passes(0.01)

    def test_few_samples_pass_nothing_by_luck(self) -> None:
        """An engine that is right on 97 % of inputs, judged on few: allowed to pass at 1 % in at most 5 % of tries."""
        rng, passed = np.random.default_rng(4), 0
        for _ in range(200):
            count = int(rng.choice([8, 16, 64, 128, 299]))
            reference = rng.normal(size=(count, 10))
            candidate = np.where(rng.random((count, 1)) < 0.03, -reference, reference)
            passed += score("cosine", reference, candidate).passes(0.01)
        assert passed == 0


def test_spearman_judges_every_column_and_every_output() -> None:
    rng = np.random.default_rng(1)
    narrow, wide = rng.normal(size=(200, 2)), rng.normal(size=(200, 12))
    second_wrong = np.column_stack([narrow[:, 0], -narrow[:, 1]])
    assert compare("spearman", [{"n": narrow, "w": wide}], [{"n": second_wrong, "w": wide}]).value == 0
    assert compare("spearman", [{"n": narrow, "w": wide}], [{"n": narrow, "w": -wide}]).value == 0
    assert compare("spearman", [{"n": narrow, "w": wide}], [{"n": narrow, "w": wide}]).passes(0.1)


def test_spearman_leaves_out_samples_too_short_for_ranks() -> None:
    """Of scores of tokens: the shortest sample comes first."""
    rng = np.random.default_rng(1)
    sizes = [1, 2, *(3 + place % 40 for place in range(400))]
    references = [{"y": rng.normal(size=(1, size))} for size in sizes]
    got = compare("spearman", references, references)
    assert len(got.scores) == 400
    assert got.passes(0.01)
    swapped = [{"y": -one["y"]} for one in references]
    assert compare("spearman", references, swapped).value == 0
    short = [{"y": rng.normal(size=(1, 1 + place % 2))} for place in range(400)]
    assert compare("spearman", short, short).passes(0.05)
    assert compare("spearman", short, [{"y": -one["y"]} for one in short]).value == 0


@pytest.mark.parametrize("metric", ["cosine", "relative-error"])
def test_noise_upon_next_to_nothing_is_no_loss(metric: str) -> None:
    reference = VARIED.copy()
    reference[:500] = 0
    candidate = reference + 1e-5 * RNG.normal(size=reference.shape)
    assert score(metric, reference, candidate).value > 0.98


def test_large_answers_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = score("cosine", VARIED, VARIED + 0.1)
    monkeypatch.setattr("enginewright_builder.accuracy.gate._ENTRIES_AT_ONCE", 70)
    parts = score("cosine", VARIED, VARIED + 0.1)
    assert parts.scores == pytest.approx(whole.scores)
    assert parts.low == pytest.approx(whole.low)


def test_candidates_are_looked_at_one_batch_at_a_time() -> None:
    """Only the newest of the candidate's batches are still there when the next is asked for."""
    earlier: list[weakref.ref[Array]] = []

    def answers() -> Iterator[Tensors]:
        for start in range(0, 1000, 100):
            assert all(one() is None for one in earlier[:-2])
            batch = VARIED[start:start + 100].copy()
            earlier.append(weakref.ref(batch))
            yield {"y": batch}

    references = [{"y": VARIED[start:start + 100]} for start in range(0, 1000, 100)]
    assert compare("cosine", references, answers()).passes(0.01)
    assert len(earlier) == 10


@pytest.mark.parametrize("references", [[], [{"y": np.zeros((0, 3))}], [{"y": np.zeros((5, 0))}]],
                         ids=["nothing", "no samples", "no entries"])
def test_nothing_to_compare_is_never_a_pass(references: list[Tensors]) -> None:
    with pytest.raises(UserError) as caught:
        compare("cosine", references, references)
    assert caught.value.reason == "EvaluationEmpty"


def test_agreement_by_position_of_sequences() -> None:
    reference = RNG.normal(size=(10, 4, 3))
    candidate = reference.copy()
    candidate[:, 0] = -candidate[:, 0]
    assert score("top1", reference, candidate).value == pytest.approx(0.75)


class TestSingleNumbers:
    """Which have no direction, so that their cosine is 1 whatever they are."""

    PRICES = np.random.default_rng(8).lognormal(3, 0.5, (1000, 1))

    @pytest.mark.parametrize("shape", [(1000,), (1000, 1), (1000, 1, 1)])
    def test_all_answers_a_little_too_large(self, shape: tuple[int, ...]) -> None:
        prices = self.PRICES.reshape(shape)
        got = score("cosine", prices, prices * 1.08)
        assert 0.92 < got.value < 0.95
        assert "mean cosine 0.9" in got.refusal(0.01)
        assert score("cosine", prices, prices * 1.001).refusal(0.01) == ""

    def test_as_relative_error_scores_what_is_of_usual_size(self) -> None:
        usual = np.full((100, 1), 7.0)
        assert score("cosine", usual, usual * 1.08).scores == score("relative-error", usual, usual * 1.08).scores

    @pytest.mark.parametrize("share", [0.5, 0.03])
    def test_probabilities_near_nothing_may_be_off_by_rounding(self, share: float) -> None:
        """Relative to itself such an answer would be off by half."""
        rng = np.random.default_rng(9)
        high, low = rng.uniform(0.6, 1, (1000, 1)), rng.uniform(0, 1e-3, (1000, 1))
        chances = np.where(rng.random((1000, 1)) < share, high, low)
        rounded = np.clip(chances + rng.normal(0, 3e-4, chances.shape), 0, 1)
        assert score("relative-error", chances, rounded).value < 0.9
        for metric in ("cosine", "top1"):
            assert score(metric, chances, rounded).refusal(0.01) == ""
        moved = np.where(chances > 0.5, chances - 0.3, chances)
        assert not score("cosine", chances, moved).passes(0.01)

    def test_answers_that_are_all_nothing(self) -> None:
        zeros = np.zeros((40, 1))
        assert score("cosine", zeros, zeros).value == 1.0
        assert score("cosine", zeros, zeros + 1).value == 0.0

    def test_one_of_several_outputs(self) -> None:
        reference = {"y": VARIED, "price": self.PRICES}
        got = compare("cosine", [reference], [{"y": VARIED, "price": self.PRICES * 1.08}])
        assert not got.passes(0.01)
        assert compare("cosine", [reference], [reference]).passes(0.01)


@pytest.mark.parametrize("shape", [(1000,), (1000, 1)])
def test_of_a_probability_a_half_divides_yes_from_no(shape: tuple[int, ...]) -> None:
    """A seventh of the answers are near a half, and change sides."""
    chances = np.linspace(0, 1, 1000).reshape(shape)
    near = np.abs(chances - 0.5) < 0.0725
    flipped = np.where(near, 1 - chances, chances)
    got = score("top1", chances, flipped)
    assert got.value == pytest.approx(1 - near.mean())
    assert "mean top1 0.856" in got.refusal(0.01)
    assert score("top1", chances, np.clip(chances * 1.0001, 0, 1)).refusal(0.01) == ""
    logits = (chances - 0.5) * 8
    assert score("top1", logits, np.where(near, -logits, logits)).value == got.value


def test_all_answers_of_the_source_say_what_divides_yes_from_no() -> None:
    """Not those of a batch, nor the candidate's."""
    batches = [{"y": np.full((20, 1), value)} for value in (0.2, 0.8, 1.5)]
    moved = [{"y": one["y"] + 0.4} for one in batches]
    assert compare("top1", batches, moved).value == 1.0
    assert compare("top1", batches[:2], moved[:2]).value == 0.5


def test_sign_is_the_class_of_a_single_number() -> None:
    assert score("top1", np.array([[1.0]] * 8), np.array([[-1.0]] * 4 + [[2.0]] * 4)).value == 0.5
