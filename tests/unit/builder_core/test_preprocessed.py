"""Images of the client's own size: what Pillow and the processors of Hugging Face make of them, engines make, too."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from enginewright_builder.contract import Interface, Normalise, Preprocess, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model, largest_difference
from enginewright_builder.models import load_model
from enginewright_builder.models.processors import processor
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.normalise import taken
from enginewright_builder.onnx_preprocess import fold
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.preprocess import by_products, check, matrix
from enginewright_builder.sources.formats import locate

HOW = Normalise(scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
FREE = TensorSpec(name="image", dtype="uint8", shape=("batch", "20..90", "24..70", 3),
                  normalise=dataclasses.replace(HOW, channels="last"), preprocess=Preprocess(height=16, width=18))
EXACT = {"height": 16, "width": 18}
SHORTEST = {"shortest_edge": 20, "crop_height": 16, "crop_width": 18}
CROPPED = {"height": 23, "width": 25, "crop_height": 16, "crop_width": 18}
STEP = 1 / 255 / 0.224
LAYOUTS = pytest.mark.parametrize("spec", [
    FREE, dataclasses.replace(FREE, shape=("batch", 3, "20..90", "24..70"), normalise=HOW),
    dataclasses.replace(FREE, shape=("batch", 33, 61, 3)), dataclasses.replace(FREE, shape=("batch", 33, "30..61", 3)),
    dataclasses.replace(FREE, shape=("batch", "5..9", 7, 3))], ids=["last", "first", "fixed", "one free", "larger"])
HOWS = pytest.mark.parametrize("how", [
    Preprocess(resample=resample, **sizes) for resample in ("bilinear", "bicubic")  # type: ignore[arg-type]
    for sizes in (EXACT, SHORTEST, CROPPED)], ids=lambda how: f"{how.resample} {how.shortest_edge or how.height}")


def identity(folder: Path) -> Path:
    """A graph that answers with the source's input."""
    graph = helper.make_graph([helper.make_node("Identity", ["image"], ["pixels"])], "net",
                              [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 16, 18])],
                              [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, 16, 18])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    return folder / "m.onnx"


def images(spec: TensorSpec, seed: int = 0) -> Any:
    """Noise over a slope: pixels that differ from their neighbours, and differ on the whole."""
    noise = example_inputs(Interface(inputs=(spec,)), 2, seed)[spec.name]
    slope = np.linspace(0, 160, noise.shape[1])[None, :, None, None]
    return (noise * 0.4 + slope).clip(0, 255).astype(np.uint8)


def assert_same(one: Any, other: Any, share: float, most: float = 1.1) -> None:
    """No pixel is further apart than ``most`` of 255, and no more than ``share`` of them are apart."""
    apart = np.abs(one - other) / STEP
    assert apart.max() < most
    assert np.mean(apart > 0.5) < share


@LAYOUTS
@HOWS
def test_the_graph_makes_what_pillow_makes(spec: TensorSpec, how: Preprocess, tmp_path: Path) -> None:
    spec = dataclasses.replace(spec, preprocess=how)
    path = identity(tmp_path)
    fold(path, [spec])
    onnx.checker.check_model(str(path), full_check=True)
    runner = OrtRunner(path)
    for seed in range(3):
        sent = images(spec, seed)
        made = runner({"image": sent})["pixels"]
        assert_same(made, by_products(spec, sent), 0.01)  # between two whole numbers it may be rounded either way
        assert_same(made, processor(spec)(sent), 0.35, 2.1)  # Pillow may begin with the other side


@LAYOUTS
@HOWS
@pytest.mark.torch
def test_the_traced_program_makes_what_pillow_makes(spec: TensorSpec, how: Preprocess) -> None:
    import torch

    from enginewright_builder.models.torch_resize import resized
    from enginewright_builder.normalise import factors, order

    spec = dataclasses.replace(spec, preprocess=how)
    assert spec.normalise is not None
    sent = images(spec)
    scale, shift = factors(spec.normalise, 4)
    made = resized(how, torch.from_numpy(sent.transpose(order(spec))).to(torch.float32)).numpy() * scale + shift
    assert_same(made, by_products(spec, sent), 0.01)


@pytest.mark.parametrize("resample", ["bilinear", "bicubic"])
def test_a_resize_to_the_same_size_changes_nothing(resample: str) -> None:
    np.testing.assert_array_equal(matrix(7, 7, 7, resample), np.eye(7, dtype=np.float32))
    np.testing.assert_array_equal(matrix(7, 7, 3, resample), np.eye(7, dtype=np.float32)[2:5])


def test_what_the_source_takes_and_clients_send() -> None:
    own, = taken(Interface(inputs=(FREE,))).inputs
    assert own == TensorSpec(name="image", dtype="float32", shape=("batch", 3, 16, 18))


def vit(folder: Path, **settings: Any) -> Path:
    import torch
    import transformers

    torch.manual_seed(0)
    library: Any = transformers  # its classes have half of their types
    model = library.ViTForImageClassification(library.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8,
        num_labels=5))
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 32, "width": 32},
        "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3,
        "image_std": [0.5, 0.4, 0.3], **settings}))
    return folder


CLIENTS = TensorSpec(name="pixel_values", dtype="uint8", shape=("batch", "32..90", "40..100", 3),
                     preprocess=Preprocess(from_source=True))
OF_CLIP = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 40}, "resample": 3,
           "do_center_crop": True, "crop_size": 32}


@pytest.mark.torch
@pytest.mark.parametrize("settings", [{}, {"resample": 3}, OF_CLIP, {"do_normalize": False}, {"size": 32}],
                         ids=["ViT's", "bicubic", "CLIP's", "as numbers from 0 to 1", "a size of old"])
def test_the_export_answers_as_the_source_behind_its_own_processor(settings: dict[str, Any], tmp_path: Path) -> None:
    import transformers

    folder, library = vit(tmp_path, **settings), cast(Any, transformers)
    model = load_model(locate(folder), Interface(inputs=(CLIENTS,)))
    sent = example_inputs(model.interface, 3)
    assert model.interface.inputs[0].shape == CLIENTS.shape
    exported = export_model(model, tmp_path / "export", [sent, example_inputs(model.interface, 1, 1)])
    own = library.AutoImageProcessor.from_pretrained(folder, backend="pil")
    import torch

    with torch.no_grad():
        expected = library.ViTForImageClassification.from_pretrained(folder).eval()(
            **own(list(sent["pixel_values"]), return_tensors="pt")).logits.numpy()
    np.testing.assert_allclose(model.run(sent)["logits"], expected, rtol=1e-4, atol=1e-5)
    answers = OrtRunner(exported.path)(sent)["logits"]
    assert largest_difference(expected, answers) < 2e-2


@pytest.mark.torch
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_pytorch_traces_free_sizes(precision: str, tmp_path: Path) -> None:
    import torch

    model = load_model(locate(vit(tmp_path, **OF_CLIP)), Interface(inputs=(CLIENTS,)))
    program = model.torch_program(precision)
    assert program is not None
    module = torch.export.export(program.module, program.args, dynamic_shapes=program.dynamic_shapes).module()
    for seed in range(2):
        sent = example_inputs(model.interface, 2, seed)
        with torch.no_grad():
            answer = module(torch.from_numpy(sent["pixel_values"]))[0].numpy()
        np.testing.assert_allclose(answer, model.run(sent)["logits"], rtol=0.1, atol=5e-2)


@pytest.mark.torch
@pytest.mark.parametrize(("settings", "told"), [
    ({"do_resize": False}, "does not resize"), ({"resample": 1}, "neither bilinear nor bicubic"),
    ({"size": {"shortest_edge": 32}, "image_processor_type": "CLIPImageProcessor", "do_center_crop": False},
     "stay of different sizes"),
    ({"image_processor_type": "NoSuchProcessor"}, "cannot be loaded"),
    ({"image_processor_type": "BeitImageProcessor", "do_reduce_labels": False, "size": 32, "crop_size": 40,
      "do_center_crop": True}, "cut to more"),
])
def test_a_processor_that_does_something_else_is_refused(settings: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_model(locate(vit(tmp_path, **settings)), Interface(inputs=(CLIENTS,)))
    assert caught.value.reason == "InterfaceInvalid"
    assert told in caught.value.message


@pytest.mark.torch
def test_without_the_file_the_error_says_what_to_do(tmp_path: Path) -> None:
    folder = vit(tmp_path)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(UserError) as caught:
        load_model(locate(folder), Interface(inputs=(CLIENTS,)))
    assert caught.value.field == "spec.interface.inputs[pixel_values].preprocess.fromSource"
    with pytest.raises(UserError, match="is onnx, not huggingface"):
        load_model(locate(identity(tmp_path)), Interface(inputs=(dataclasses.replace(CLIENTS, name="image"),)))


@pytest.mark.torch
def test_the_source_and_the_user_cannot_both_say_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="says twice"):
        load_model(locate(vit(tmp_path)), Interface(inputs=(dataclasses.replace(CLIENTS, normalise=FREE.normalise),)))


@pytest.mark.torch
def test_images_of_another_size_than_the_model_takes_are_refused(tmp_path: Path) -> None:
    spec = dataclasses.replace(FREE, preprocess=Preprocess(height=16, width=16))
    with pytest.raises(UserError) as caught:
        load_model(locate(identity(tmp_path)), Interface(inputs=(spec,)))
    assert caught.value.reason == "InterfaceInvalid"


@pytest.mark.parametrize(("changes", "field"), [
    ({"shape": ("batch", 3, 20)}, "shape"), ({"normalise": None}, "normalise"),
    ({"shape": ("batch", "height", 20, 3)}, "shape"), ({"shape": ("batch", "20..5000", 20, 3)}, "shape"),
    ({"preprocess": Preprocess()}, "preprocess.size"), ({"preprocess": Preprocess(height=3)}, "preprocess.size"),
    ({"preprocess": Preprocess(shortest_edge=3)}, "preprocess.size"),
    ({"preprocess": Preprocess(height=8, width=8, crop_height=9, crop_width=8)}, "preprocess.cropSize"),
    ({"preprocess": Preprocess(shortest_edge=8, crop_height=8, crop_width=9)}, "preprocess.cropSize"),
])
def test_what_no_engine_can_make_of_images_is_refused_with_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UserError) as caught:
        check(dataclasses.replace(FREE, **changes))
    assert (caught.value.reason, caught.value.field) == ("InterfaceInvalid", f"spec.interface.inputs[image].{field}")


def test_a_graph_too_old_is_refused(tmp_path: Path) -> None:
    path = identity(tmp_path)
    model = onnx.load(str(path))
    model.opset_import[0].version = 12
    onnx.save(model, str(path))
    with pytest.raises(UserError, match="opset 12"):
        fold(path, [FREE])
