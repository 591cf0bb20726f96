"""Which inputs are filled up with what, of the interface and what the user says."""

from __future__ import annotations

import dataclasses

import pytest

from enginewright_builder.contract import Interface, Padding, PadValue, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.padding import fill


def spec(name: str, *shape: int | str, dtype: str = "int64") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=("batch", *shape))


TEXT = Interface(inputs=(spec("input_ids", "1..128"), spec("attention_mask", "1..128"),
                         spec("token_type_ids", "1..128"), spec("language", 1)),
                 outputs=(spec("y", 8, dtype="float32"),))


def with_mask(mask: TensorSpec) -> Interface:
    return Interface(inputs=(spec("input_ids", "1..128"), mask), outputs=TEXT.outputs)


def test_a_mask_of_the_usual_name_tells_the_length() -> None:
    found = fill(TEXT, None, pad_token=1)
    assert found is not None
    assert found.values == {"input_ids": 1, "attention_mask": 0, "token_type_ids": 0}
    assert (found.mask, found.low, found.high) == ("attention_mask", 1, 128)


@pytest.mark.parametrize("beside", [spec("decoder_input_ids", "1..128"), spec("frames", "1..30", 80)])
def test_inputs_with_lengths_of_their_own_are_not_joined(beside: TensorSpec) -> None:
    interface = Interface(inputs=(*TEXT.inputs, beside), outputs=TEXT.outputs)
    assert fill(interface, None) is None
    with pytest.raises(UserError, match=f"{beside.name!r} is, which has a length of its own") as raised:
        fill(interface, Padding(mask="attention_mask"))
    assert raised.value.field == "spec.interface.padding.mask"


def test_a_free_length_without_a_range_has_no_end() -> None:
    found = fill(with_mask(spec("attention_mask", "sequence")), None)
    assert found is not None
    assert found.high is None


@pytest.mark.parametrize("interface", [
    Interface(inputs=(spec("input_ids", "1..128"),)), with_mask(spec("attention_mask", 128)),
    with_mask(spec("attention_mask", "1..128", dtype="float32")), with_mask(spec("attention_mask", "1..9", "1..9")),
    with_mask(TensorSpec(name="attention_mask", dtype="int64", shape=(1, "sequence"))),
], ids=["no mask", "one length", "numbers", "pairs", "no batch"])
def test_without_a_mask_of_free_length_nothing_is_joined(interface: Interface) -> None:
    assert fill(interface, None) is None


@pytest.mark.parametrize("shape", [("400..480000",), ("frames", 80)])
def test_a_sound_without_a_mask_is_as_long_as_it_is(shape: tuple[int | str, ...]) -> None:
    found = fill(Interface(inputs=(spec("sound", *shape, dtype="float32"), spec("language", 1)),
                           outputs=TEXT.outputs), None)
    assert found is not None
    assert (found.mask, found.values, found.marked) == ("sound", {"sound": 0.0}, False)
    assert (found.low, found.high) == ((400, 480_000) if len(shape) == 1 else (1, None))


@pytest.mark.parametrize("inputs", [
    (spec("image", 3, "height", "width", dtype="float32"),), (spec("mel", 80, "frames", dtype="float32"),),
    (spec("volume", "n", 3, 4, dtype="float32"),), (spec("pairs", "n", "m", dtype="float32"),),
    (spec("a", "n", dtype="float32"), spec("b", "n", dtype="float32")), (spec("sound", 400, dtype="float32"),),
    (TensorSpec(name="sound", dtype="float32", shape=(1, "n")),)],
    ids=["images", "time last", "more than a sound", "two free sizes", "two inputs", "one length", "no batch"])
def test_what_is_no_sound_is_left_alone(inputs: tuple[TensorSpec, ...]) -> None:
    assert fill(Interface(inputs=inputs, outputs=TEXT.outputs), None) is None


def test_the_user_names_another_mask_and_other_values() -> None:
    inputs = (spec("ids", "n"), spec("real", "n", dtype="bool"), spec("wave", "n", dtype="float32"))
    found = fill(Interface(inputs=inputs, outputs=TEXT.outputs),
                 Padding(mask="real", values=(PadValue(input="wave", value=-0.5), PadValue(input="ids", value=3))))
    assert found is not None
    assert found.values == {"ids": 3, "real": 0, "wave": -0.5}


@pytest.mark.parametrize(("padding", "interface", "field", "told"), [
    (Padding(mask="mask"), TEXT, "mask", "'mask' is no input of the model"),
    (Padding(mask="language"), TEXT, "mask", "a mask is of integers or bool, [batch, free]"),
    (Padding(mask="attention_mask"), with_mask(spec("attention_mask", "n", dtype="float32")), "mask", "is float32"),
    (Padding(mask="attention_mask"), with_mask(TensorSpec(name="attention_mask", dtype="int64", shape=(1, "n"))),
     "mask", "takes each request by itself"),
    (Padding(mask="attention_mask", values=(PadValue(input="language", value=1),)), TEXT, "values[0].input",
     "'language' is no input that is filled up"),
    (Padding(mask="attention_mask", values=(PadValue(input="attention_mask", value=1),)), TEXT, "values[0].input",
     "is no input that is filled up"),
    (Padding(mask="attention_mask", values=(PadValue(input="input_ids", value=0.5),)), TEXT, "values[0].value",
     "is int64, which does not hold 0.5"),
    (Padding(mask="attention_mask", values=(PadValue(input="input_ids", value=-1),)),
     dataclasses.replace(TEXT, inputs=(spec("input_ids", "1..128", dtype="uint8"), *TEXT.inputs[1:])),
     "values[0].value", "is uint8, which does not hold -1"),
])
def test_what_does_not_fit_the_inputs_is_refused_with_the_field(padding: Padding, interface: Interface, field: str,
                                                                told: str) -> None:
    with pytest.raises(UserError) as caught:
        fill(interface, padding)
    assert (caught.value.reason, caught.value.field) == ("InterfaceInvalid", f"spec.interface.padding.{field}")
    assert told in caught.value.message
    assert caught.value.remedy
