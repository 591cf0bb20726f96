"""The model that stands before an engine and keeps its answers, held against Triton's own schema."""

from __future__ import annotations

import pytest

from enginewright_builder.contract import Interface, ServingChoice, TensorSpec
from enginewright_builder.queue_policy import UnreadableConfigError
from enginewright_builder.response_cache import UncacheableError, front
from enginewright_builder.triton.model_config import ServedModel, model_config, parse_text, to_text

Shape = tuple[str | int, ...]


def published(*inputs: Shape, outputs: int = 1, largest: int = 8, dtype: str = "float32") -> str:
    """Inputs ``x0 "``, ``x1 "`` and so on: names are text of the user's."""
    shape: Shape = ("batch", 4) if largest else (1, 4)
    return to_text(model_config(ServedModel(
        name="", triton_backend="python", serving=ServingChoice(max_batch_size=largest), ragged=frozenset({'x0 "'}),
        parameters={"note": 'input {\n  name: "z"\n}\n'},
        interface=Interface(
            inputs=tuple(TensorSpec(name=f'x{at} "', dtype=dtype, shape=one) for at, one in enumerate(inputs)),
            outputs=tuple(TensorSpec(name=f"y{at}", dtype="float32", shape=shape) for at in range(outputs))))))


@pytest.mark.parametrize("text", [
    published(("batch", 4)), published(("batch", 4), ("batch", "length")), published((1, "length"), largest=0),
    published(("batch", "length"), largest=1), published(("batch", 1), dtype="string"), published(("batch",)),
])
def test_it_has_the_engines_interface_and_asks_it_under_its_other_name(text: str) -> None:
    engine, made = parse_text(text), parse_text(front(text, "minilm_computed"))
    assert (made.platform, made.max_batch_size, made.response_cache.enable) == ("ensemble", engine.max_batch_size, True)
    assert "max_batch_size:" in front(text, "minilm_computed"), "Triton guesses where it is left out"
    for one, other in zip((*engine.input, *engine.output), (*made.input, *made.output), strict=True):
        assert (one.name, one.data_type, list(one.dims)) == (other.name, other.data_type, list(other.dims))
    assert not any(tensor.allow_ragged_batch or tensor.HasField("reshape") for tensor in made.input)
    [step] = made.ensemble_scheduling.step
    assert (step.model_name, step.model_version) == ("minilm_computed", -1)
    assert dict(step.input_map) == {tensor.name: tensor.name for tensor in engine.input}
    assert dict(step.output_map) == {tensor.name: tensor.name for tensor in engine.output}


@pytest.mark.parametrize(("text", "words"), [
    (published(("batch", "length")), r"input x0 .* has 2 sizes that requests choose"),
    (published(("batch", "length"), ("batch", "length")), "does not look at shapes"),
    (published((1, "rows", "columns"), largest=0), "has 2 sizes"),
    (published(("batch", 4), ("batch", "rows", "columns")), r"input x1 .* has 2 sizes"),
    (published(("batch", 4), outputs=2), r"has 2 outputs \(y0, y1\): .* which of them a request asks for"),
])
def test_an_engine_of_which_the_bytes_of_a_request_do_not_say_the_answer_is_refused(text: str, words: str) -> None:
    with pytest.raises(UncacheableError, match=words):
        front(text, "minilm_computed")


@pytest.mark.parametrize("text", ["", "max_batch_size: 8\n", "max_batch_size: 8\ninput { name: 'x' }\n"])
def test_a_file_that_the_builder_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(UnreadableConfigError, match="not as the builder writes it"):
        front(text, "minilm_computed")
