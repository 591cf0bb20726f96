"""What the study of the gate of language models does to weights: sound changes leave the function as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch
LAYERS, HEADS, GROUPS, WIDTH = 3, 4, 2, 8


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    import transformers

    torch.manual_seed(3)
    library: Any = transformers
    return library.LlamaForCausalLM(library.LlamaConfig(
        vocab_size=97, hidden_size=HEADS * WIDTH, intermediate_size=48, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=GROUPS, head_dim=WIDTH, initializer_range=0.3,
        tie_word_embeddings=True)).double().eval()


def lost(model: Any, change: Any, seed: int) -> float:
    """The largest change of a logit, as a part of the largest logit."""
    import torch

    from language_gate.shape import Shape

    weights = {name: value.clone() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    tokens = torch.arange(1, 40).unsqueeze(0)
    before = dict(weights)
    with torch.no_grad():
        was = model(tokens).logits
        change(weights, Shape(layers=LAYERS, heads=HEADS, groups=GROUPS, width=WIDTH), np.random.default_rng(seed))
        model.load_state_dict(weights, strict=False)
        now = model(tokens).logits
        model.load_state_dict(before, strict=False)
    return float((now - was).abs().max() / was.abs().max())


@pytest.mark.parametrize("seed", [0, 1])
def test_sound_changes_leave_the_function_as_it_was(model: Any, seed: int) -> None:
    from language_gate.sound import SOUND

    assert {change.__name__: lost(model, change, seed) < 1e-9 for change in SOUND} == {
        change.__name__: True for change in SOUND}


def test_broken_ones_do_not(model: Any) -> None:
    from language_gate.sabotage import SABOTAGES

    # Norms of a model that was never trained are ones already.
    kinds = [change for change in SABOTAGES if change.__name__ != "lost_norm"]
    assert {change.__name__: lost(model, change, 0) > 1e-3 for change in kinds} == {
        change.__name__: True for change in kinds}


def test_names_and_shape_are_those_of_a_real_model(tmp_path: Path) -> None:
    from language_gate.shape import Shape

    (tmp_path / "config.json").write_text('{"num_hidden_layers": 1, "num_attention_heads": 9, "head_dim": 64, '
                                          '"num_key_value_heads": 3}')
    found = Shape.of(tmp_path)
    assert found == Shape(layers=1, heads=9, groups=3, width=64)
    assert found.matrices("down_proj") == ["model.layers.0.mlp.down_proj.weight"]
    assert found.matrix(np.random.default_rng(0)) in found.matrices()


def test_a_tally_counts_by_kind_and_tells_what_was_left_out() -> None:
    from language_gate.__main__ import tally
    from language_gate.study import BARS, POPULATION, Trial, prompts

    def trial(kind: str, *, counts: bool, passed: bool) -> Trial:
        return Trial(kind=kind, tolerance=0.1, prompts=61, counts=counts, passed=passed, lost=0.2)

    found = tally([trial("noise", counts=True, passed=False), trial("noise", counts=False, passed=True),
                   trial("clipped", counts=True, passed=True), trial("clipped", counts=False, passed=False)])
    assert (found["counted"], found["passed"], found["tried"], found["passed_without_effect"]) == (2, 1, 4, 1)
    assert found["kinds"] == {"clipped": {"counted": 1, "passed": 1}, "noise": {"counted": 1, "passed": 0}}
    assert found["left_out"] == {"clipped": 1, "noise": 1}
    assert len({str(one) for one in prompts()}) == len(prompts()) >= POPULATION + max(count for _, count in BARS)


def test_a_further_run_adds_to_an_earlier_one_of_the_same_study() -> None:
    from language_gate.__main__ import added

    def run(gpu: str, kind: str, counted: int) -> dict[str, Any]:
        side = {"counted": counted, "passed": 0, "tried": counted + 1, "left_out": {}, "passed_without_effect": 1,
                "kinds": {kind: {"counted": counted, "passed": 0}}, "tolerances": {"0.1": counted}}
        return {"command": "make study", "model": "m", "bars": [], "tokens": 8, "population": 150,
                "hardware": {"gpu": gpu}, "versions": {"vllm": "1"}, "seconds": 60, "broken": side, "sound": side}

    earlier = run("H200", "noise", 3)
    assert added({}, earlier) == earlier
    found = added(earlier, run("H200", "clipped", 4))
    assert (found["seconds"], found["broken"]["counted"], found["broken"]["tried"]) == (120, 7, 9)
    assert found["sound"]["kinds"] == {"noise": {"counted": 3, "passed": 0}, "clipped": {"counted": 4, "passed": 0}}
    assert found["sound"]["tolerances"] == {"0.1": 7}
    with pytest.raises(ValueError, match="gpu: H200 in the earlier run, A100 in this one"):
        added(earlier, run("A100", "noise", 4))
