"""Which configurations compete on which device, with what, and why others do not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from enginewright_builder.errors import UserError
from enginewright_builder.generate.ability import Ability
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.candidates import (
    candidates,
    drafted,
    ground,
    listed,
    reference,
    reference_dtype,
    together,
)
from enginewright_builder.sources.causal import Causal

GIB = 1 << 30
# Of SmolLM2-135M: 30 layers with 3 heads of 64 that have keys and values of their own.
MODEL = Causal(path=Path("m"), architecture="LlamaForCausalLM", vocabulary=49152, context=8192, quantised="", chat=True,
               dtype="bfloat16", heads=9, cached=2 * 30 * 3 * 64)
OLD_CPU = Ability(flags=frozenset({"avx2"}), cores=2, memory_bytes=8 * GIB)
NEW_CPU = dataclasses.replace(OLD_CPU, flags=frozenset({"avx2", "avx512_bf16"}))
H100 = Ability(gpu=True, capability=(9, 0), gpus=1, memory_bytes=80 * GIB)
A100 = dataclasses.replace(H100, capability=(8, 0))


def base(where: Ability, model: Causal = MODEL) -> ServerArguments:
    return ground(model, where, longest=200, context=0, weights=270 << 20)


@pytest.mark.parametrize(("source", "where", "expected"), [
    ("bfloat16", OLD_CPU, "float32"), ("bfloat16", NEW_CPU, "bfloat16"), ("bfloat16", A100, "bfloat16"),
    ("float32", H100, "float32"), ("float16", H100, "float16"), ("float16", NEW_CPU, "float32"),
    ("", OLD_CPU, "float32"), ("", H100, "bfloat16")])
def test_the_reference_is_what_holds_the_sources_own_values(source: str, where: Ability, expected: str) -> None:
    assert reference_dtype(dataclasses.replace(MODEL, dtype=source), where) == expected


def able(where: Ability, model: Causal = MODEL) -> dict[str, str]:
    """By name, why not."""
    return {one.name: one.unavailable for one in candidates(model, where, base(where, model))}


def test_a_cpu_without_bf16_arithmetic_says_what_it_cannot_do() -> None:
    found = able(OLD_CPU)
    assert {name for name, why in found.items() if not why} == {"fp32, cache in fp8", "fp32, n-grams", "fp16"}
    assert "avx512_bf16" in found["bf16"]
    assert "on GPUs alone" in found["fp8"]
    assert "quantised already" in found["int8"]


def test_a_gpu_with_fp8_tries_it() -> None:
    assert {name for name, why in able(H100).items() if not why} == {"fp8", "bf16, cache in fp8", "bf16, n-grams",
                                                                     "fp16"}
    assert able(A100)["fp8"] == "FP8 takes compute capability 8.9, and the GPU has 8.0"
    assert able(dataclasses.replace(H100, capability=None))["fp8"] == "the GPU's compute capability is unknown"


def test_several_gpus_share_a_model_where_its_heads_are_divisible() -> None:
    eight = dataclasses.replace(H100, gpus=8)
    found = able(eight, dataclasses.replace(MODEL, heads=12))
    assert found["bf16, 2 GPUs"] == found["bf16, 4 GPUs"] == ""
    assert found["bf16, 8 GPUs"] == "12 attention heads are not divisible by 8"
    assert "bf16, 3 GPUs" not in found


@pytest.mark.parametrize(("weights", "gpus", "size"), [(60, 4, 1), (100, 4, 2), (200, 4, 4), (60, 1, 1), (100, 3, 3)])
def test_a_model_that_one_gpu_does_not_hold_is_served_by_as_few_as_do(weights: int, gpus: int, size: int) -> None:
    model, several = dataclasses.replace(MODEL, heads=12), dataclasses.replace(H100, gpus=gpus)
    found = ground(model, several, longest=200, context=0, weights=weights * GIB)
    assert found.tensor_parallel_size == size
    more = [one.arguments.tensor_parallel_size for one in candidates(model, several, found) if "GPUs" in one.name]
    assert more == [each for each in range(size + 1, gpus + 1) if gpus % each == 0]


def test_a_model_that_all_gpus_do_not_hold_is_refused_with_their_number() -> None:
    two = dataclasses.replace(H100, gpus=2)
    with pytest.raises(UserError, match=r"there is room for 0\.0 on 2 GPUs"):
        ground(dataclasses.replace(MODEL, heads=12), two, longest=200, context=0, weights=200 * GIB)
    # Nine heads cannot be divided among two.
    with pytest.raises(UserError, match=r"there is room for 0\.0$"):
        ground(MODEL, two, longest=200, context=0, weights=100 * GIB)


def test_the_ground_of_a_cpu_has_room_for_one_whole_context() -> None:
    found = base(OLD_CPU)
    assert (found.threads, found.enforce_eager, found.max_model_len) == (2, True, None)
    # 8,192 tokens of 46 KB each: 0.36 GiB.
    assert found.cache_gib == 1
    assert base(H100).cache_gib is None
    assert ground(MODEL, OLD_CPU, longest=200, context=1024, weights=0).max_model_len == 1024


@pytest.mark.parametrize(("where", "context", "said"), [
    (OLD_CPU, 9000, "the model was made for 8192"),
    (dataclasses.replace(OLD_CPU, memory_bytes=GIB), 0, "its cache takes 0.4 GiB"),
    (dataclasses.replace(H100, memory_bytes=4 * GIB // 10), 8192, "its cache takes 0.2 GiB")])
def test_a_context_that_memory_does_not_hold_is_refused(where: Ability, context: int, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        ground(MODEL, where, longest=200, context=context, weights=270 << 20)
    assert caught.value.reason == "ContextTooLong"
    assert caught.value.field == "spec.engine.contextTokens"
    assert caught.value.remedy


def test_what_passed_alone_is_put_together_unless_both_set_the_same() -> None:
    named = {one.name: one for one in candidates(MODEL, H100, base(H100))}
    merged = together([named["fp8"], named["bf16, n-grams"]], base(H100))
    assert merged is not None
    assert (merged.name, merged.precision) == ("fp8 + bf16, n-grams", "fp8")
    assert merged.arguments == dataclasses.replace(base(H100), quantization="fp8", speculative_tokens=4)
    assert together([named["fp8"]], base(H100)) is None
    assert together([named["fp16"], dataclasses.replace(named["fp16"], name="other")], base(H100)) is None


def test_the_reference_is_named_after_its_precision() -> None:
    assert reference(base(OLD_CPU)).name == "fp32"
    assert reference(base(H100)).name == "bf16"


def test_of_a_gpu_that_others_use_a_server_gets_what_is_free() -> None:
    assert base(H100).memory_share is None
    assert base(dataclasses.replace(H100, free_share=0.95)).memory_share is None
    assert base(dataclasses.replace(H100, free_share=0.6)).memory_share == 0.58
    with pytest.raises(UserError, match=r"there is room for 0\.0"):
        ground(MODEL, dataclasses.replace(H100, free_share=0.06), longest=200, context=8192, weights=4 * GIB)


def test_a_checkpoint_is_served_as_the_source_is_and_a_quantised_one_says_its_type_itself() -> None:
    on = base(H100)
    plain, awq = listed({"tuned": MODEL, "awq": dataclasses.replace(MODEL, quantised="awq")}, on)
    assert (plain.name, plain.checkpoint, plain.precision, plain.arguments) == ("checkpoint tuned", "tuned", "bf16", on)
    assert (awq.name, awq.precision, awq.arguments.dtype, awq.arguments.quantization) == (
        "checkpoint awq", "awq", "auto", None)
    assert plain.other_weights
    assert not reference(on).other_weights


def test_a_checkpoint_goes_together_with_settings() -> None:
    on = base(H100)
    [awq] = listed({"awq": dataclasses.replace(MODEL, quantised="awq")}, on)
    grams = next(one for one in candidates(MODEL, H100, on) if one.name == "bf16, n-grams")
    merged = together([awq, grams], on)
    assert merged is not None
    assert (merged.checkpoint, merged.precision, merged.arguments.dtype, merged.arguments.speculative_tokens) == (
        "awq", "awq", "auto", 4)


def test_the_source_with_each_draft_is_a_candidate_of_its_own_weights() -> None:
    on = base(H100)
    [small] = drafted({"small": dataclasses.replace(MODEL, heads=4)}, MODEL, on)
    assert (small.name, small.precision, small.unavailable) == ("draft small, 4 tokens", "bf16", "")
    assert small.arguments == dataclasses.replace(on, draft="small", speculative_tokens=4)
    assert small.speculates
    assert not small.other_weights


def test_a_draft_whose_heads_the_gpus_do_not_share_is_not_tried() -> None:
    four = dataclasses.replace(base(H100), tensor_parallel_size=4)
    named = drafted({"nine": MODEL, "eight": dataclasses.replace(MODEL, heads=8)}, MODEL, four)
    assert [one.unavailable for one in named] == [
        "the draft's 9 attention heads are not divisible by 4, the number of GPUs", ""]


@pytest.mark.parametrize(("cached", "expected"), [(MODEL.cached, 8), (MODEL.cached // 4, 5), (0, 4)])
def test_on_a_cpu_as_many_tokens_fit_into_the_cache_as_without_the_draft(cached: int, expected: int) -> None:
    four = dataclasses.replace(base(OLD_CPU), cache_gib=4)
    [small] = drafted({"small": dataclasses.replace(MODEL, cached=cached)}, MODEL, four)
    assert small.arguments.cache_gib == expected
    assert drafted({"small": MODEL}, dataclasses.replace(MODEL, cached=0), four)[0].arguments.cache_gib == 4
