"""TorchScript whose forward takes and answers lists, tuples and dicts of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.sources.formats import locate
from support.inputs import programs

pytestmark = pytest.mark.torch
FITTING = ("pair.a", "pair.b", "more.0", "more.1", "state.0", "state.1")


def stated(*names: str) -> Interface:
    return Interface(inputs=tuple(TensorSpec(name=name, dtype="float32", shape=("batch", 4)) for name in names))


def test_each_tensor_is_an_input_and_an_output(tmp_path: Path) -> None:
    path = programs.scripted_structures(tmp_path)
    source = load_model(locate(path), stated(*FITTING), tmp_path)
    assert [spec.name for spec in source.interface.outputs] == ["total.0", "kept.0", "kept.1"]
    sent = {name: np.random.default_rng(seed).normal(size=(3, 4)).astype(np.float32)
            for seed, name in enumerate(FITTING)}
    for name, expected in zip(("total.0", "kept.0", "kept.1"), programs.answers(path, sent), strict=True):
        np.testing.assert_allclose(source.run(sent)[name], expected, rtol=1e-5, atol=1e-6)
    export_model(source, tmp_path / "export", [sent])  # raises where the answers differ


def test_names_of_the_users_own_for_outputs(tmp_path: Path) -> None:
    named = Interface(inputs=stated(*FITTING).inputs, outputs=stated("one", "two", "three").inputs)
    source = load_model(locate(programs.scripted_structures(tmp_path)), named, tmp_path)
    assert [spec.name for spec in source.interface.outputs] == ["one", "two", "three"]


def test_one_value_for_a_tensor_of_a_dict(tmp_path: Path) -> None:
    given = (TensorSpec(name="pair.b", dtype="float32", shape=(1, 4), value=(2.0,)),)
    left, right = stated("pair.a").inputs, stated(*FITTING[2:]).inputs
    source = load_model(locate(programs.scripted_structures(tmp_path)), Interface(inputs=(*left, *given, *right)),
                        tmp_path)
    assert "pair.b" not in {spec.name for spec in source.interface.inputs}
    ones = {spec.name: np.ones((2, 4), np.float32) for spec in source.interface.inputs}
    assert source.run(ones)["total.0"].tolist() == [[1.0] * 4] * 2


@pytest.mark.parametrize(("names", "value", "remedy"), [
    (("pair", "more.0", "state.0", "state.1"), "pair", "name the tensors pair.key and pair.other"),
    (("pair.a", "pair.b", "more", "state.0", "state.1"), "more", "name the tensors more.0 and more.1"),
    (("pair.a", "pair.b", "more.1", "state.0", "state.1"), "more.1", "name the tensors more.0 and more.1"),
    (("pair.a", "pair.b", "more.0", "state.0"), "state.0", "name the tensors state.0 and state.1"),
    ((*FITTING, "extra"), 7, "name pair.key, more.0, state.0, in this order"),
])
def test_names_that_do_not_fit_are_refused_with_those_that_do(names: tuple[str, ...], value: object, remedy: str,
                                                              tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        load_model(locate(programs.scripted_structures(tmp_path)), stated(*names), tmp_path)
    error = raised.value
    assert (error.reason, error.field, error.value) == ("InterfaceInvalid", "spec.interface.inputs", str(value))
    assert error.remedy == remedy


def test_what_no_tensors_make_is_refused(tmp_path: Path) -> None:
    path = programs.scripted("def forward(self, x: Tensor, words: List[str]):\n    return x * len(words)\n", tmp_path)
    with pytest.raises(UserError, match=r"takes 'words' as List\[str\]") as raised:
        load_model(locate(path), stated("x", "words"), tmp_path)
    assert raised.value.reason == "UnsupportedModel"
