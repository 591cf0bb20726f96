"""Hugging Face models of many tasks, each as small as its configuration allows and with weights of chance: opened,
exported, and the export answers as the model does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import Interface, Padding, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.models.base import SourceModel, end_token, pad_token, table_rows
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.torch_base import TorchModel
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Tensors
from support.detectors import rt_detr

pytestmark = pytest.mark.torch
transformers = pytest.importorskip("transformers")
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": 60, "max_position_embeddings": 20}
IMAGE = {**SMALL, "image_size": 32, "patch_size": 8}
HALVES = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
          "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
# Architecture, configuration, inputs and outputs with their sizes after the batch.
Task = tuple[str, Any, dict[str, tuple[int | str, ...]], dict[str, tuple[int | str, ...]]]


def clip() -> Any:
    return transformers.CLIPConfig(
        text_config={**TEXT, "projection_dim": 16, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
        vision_config={**IMAGE, "projection_dim": 16}, projection_dim=16)


def sound() -> Any:
    return transformers.Wav2Vec2Config(**SMALL, conv_dim=(16,) * 7, num_conv_pos_embeddings=16,
                                       num_conv_pos_embedding_groups=4, vocab_size=32)


def layered() -> Any:
    """Normalises each frame by itself, and was trained with a mask, as the large models of speech."""
    return transformers.Wav2Vec2Config(**{**sound().to_dict(), "feat_extract_norm": "layer",
                                          "do_stable_layer_norm": True})


def whisper() -> Any:
    return transformers.WhisperConfig(
        **HALVES, vocab_size=60, d_model=32, num_mel_bins=16, max_source_positions=30, max_target_positions=20,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)


def reader() -> Any:
    return transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(**IMAGE), transformers.TrOCRConfig(
            vocab_size=60, d_model=32, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=32))


def bart() -> Any:
    return transformers.BartConfig(**HALVES, vocab_size=60, d_model=32, max_position_embeddings=64)


def series(**settings: Any) -> Any:
    return transformers.TimeSeriesTransformerConfig(**HALVES, prediction_length=4, context_length=8, d_model=16,
                                                    lags_sequence=[1, 2], num_time_features=2, **settings)


TASKS: dict[str, Task] = {
    "encoder of a text generator": (
        "T5ForConditionalGeneration",
        lambda: transformers.T5Config(vocab_size=60, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2,
                                      decoder_start_token_id=0),
        {"input_ids": ("1..512",), "attention_mask": ("1..512",)}, {"last_hidden_state": ("last_hidden_state_1", 32)}),
    "texts and images": (
        "CLIPModel", clip,
        {"input_ids": ("1..20",), "attention_mask": ("1..20",), "pixel_values": (3, 32, 32)},
        {"text_embeds": (16,), "image_embeds": (16,)}),
    "speech to letters, of frames in pairs": (
        "SEWForCTC",
        lambda: transformers.SEWConfig(**SMALL, conv_dim=(16, 16), conv_kernel=(10, 8), conv_stride=(5, 4),
                                       num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, vocab_size=32),
        {"input_values": ("65..480000",)}, {"logits": ("logits_1", 32)}),
    "speech to letters": ("Wav2Vec2ForCTC", sound, {"input_values": ("400..480000",)}, {"logits": ("logits_1", 32)}),
    "speakers": (
        "WavLMForXVector",
        # What its first layer makes of positions the second one takes.
        lambda: transformers.WavLMConfig(**{**SMALL, "num_hidden_layers": 2}, conv_dim=(16,) * 7,
                                         num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
                                         tdnn_dim=(16,) * 5, xvector_output_dim=8),
        {"input_values": ("5200..480000",)}, {"logits": (8,), "embeddings": (8,)}),
    "encoder of speech": ("WhisperForConditionalGeneration", whisper, {"input_features": (16, 60)},
                          {"last_hidden_state": (30, 32)}),
    "classes of sound": (
        "ASTForAudioClassification",
        lambda: transformers.ASTConfig(**SMALL, max_length=64, num_mel_bins=32),
        {"input_values": (64, 32)}, {"logits": (2,)}),
    "objects": (
        "YolosForObjectDetection",
        # What it knows of places is there once for each layer but the last.
        lambda: transformers.YolosConfig(**{**IMAGE, "image_size": [32, 48], "num_hidden_layers": 2},
                                         num_detection_tokens=5),
        {"pixel_values": (3, 32, 48)},
        {"logits": (5, 3), "pred_boxes": (5, 4), "last_hidden_state": (30, 32)}),
    "characters, and parts of words, as a tuple of tensors": (
        "MgpstrForSceneTextRecognition",
        lambda: transformers.MgpstrConfig(**SMALL, image_size=[16, 32], patch_size=8, max_token_length=5,
                                          num_character_labels=11, num_bpe_labels=12, num_wordpiece_labels=13),
        {"pixel_values": (3, 16, 32)}, {"logits.0": (5, 11), "logits.1": (5, 12), "logits.2": (5, 13)}),
    "depth": (
        "DPTForDepthEstimation",
        lambda: transformers.DPTConfig(**{**IMAGE, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3],
                                       neck_hidden_sizes=[16] * 4, fusion_hidden_size=16),
        {"pixel_values": (3, 32, 32)}, {"predicted_depth": (64, 64)}),
    "videos": (
        "VideoMAEForVideoClassification", lambda: transformers.VideoMAEConfig(**IMAGE, num_frames=4, tubelet_size=2),
        {"pixel_values": (4, 3, 32, 32)}, {"logits": (2,)}),
    "a text about an image": (
        "BlipForImageTextRetrieval",
        lambda: transformers.BlipConfig(text_config={**TEXT, "encoder_hidden_size": 32, "pad_token_id": 0,
                                                     "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2},
                                        vision_config=IMAGE, projection_dim=16, image_text_hidden_size=16),
        {"input_ids": ("1..20",), "attention_mask": ("1..20",), "pixel_values": (3, 32, 32)},
        {"itm_score": (2,), "last_hidden_state": (17, 32), "question_embeds": ("question_embeds_1", 32)}),
    "encoder of what reads images aloud": (
        "VisionEncoderDecoderModel", reader, {"pixel_values": (3, 32, 32)},
        {"last_hidden_state": (17, 32), "pooler_output": (32,)}),
    "positions that are counted from behind the padding": (
        "EsmForTokenClassification", lambda: transformers.EsmConfig(**TEXT, pad_token_id=1, mask_token_id=3),
        {"input_ids": ("1..18",), "attention_mask": ("1..18",)}, {"logits": ("logits_1", 2)}),
    "series of numbers": (
        "PatchTSTForPrediction",
        lambda: transformers.PatchTSTConfig(num_input_channels=2, context_length=32, patch_length=8, patch_stride=8,
                                            d_model=16, num_attention_heads=2, num_hidden_layers=1, ffn_dim=32,
                                            prediction_length=8),
        {"past_values": (32, 2)}, {"prediction_outputs": (8, 2), "loc": (1, 2), "scale": (1, 2)}),
    "encoder of speech of any length": (
        "Speech2TextForConditionalGeneration",
        lambda: transformers.Speech2TextConfig(**HALVES, vocab_size=60, d_model=32, conv_channels=32,
                                               input_feat_per_channel=16, max_source_positions=1500),
        {"input_features": ("4..1500", 16)}, {"last_hidden_state": ("last_hidden_state_1", 32)}),
    "series of numbers beside their own past, with what is known of each time and of all": (
        "TimeSeriesTransformerForPrediction",
        lambda: series(num_static_categorical_features=1, cardinality=[3], embedding_dimension=[2],
                       num_static_real_features=2, num_dynamic_real_features=1),
        {"past_values": (10,), "past_time_features": (10, 3), "past_observed_mask": (10,),
         "static_categorical_features": (1,), "static_real_features": (2,)},
        {"encoder_last_hidden_state": (8, 16), "loc": (1,), "scale": (1,), "static_features": (6,)}),
    "images by a name of the model's own, and by their usual one": (
        "PerceiverForImageClassificationLearned",
        lambda: transformers.PerceiverConfig(num_latents=4, d_latents=16, num_blocks=1, num_self_attends_per_block=1,
                                             num_self_attention_heads=2, num_cross_attention_heads=1, image_size=16),
        {"pixel_values": (3, 16, 16)}, {"logits": (2,)}),
    "videos by a name and a number of frames of their own": (
        "VJEPA2ForVideoClassification",
        lambda: transformers.VJEPA2Config(
            **SMALL, crop_size=32, frames_per_clip=4, patch_size=16, mlp_ratio=2.0, num_pooler_layers=1,
            pred_hidden_size=32, pred_num_attention_heads=2, pred_num_hidden_layers=1),
        {"pixel_values_videos": (4, 3, 32, 32)}, {"logits": (2,)}),
    "classes of spectra of any length": (
        "Wav2Vec2BertForSequenceClassification",
        lambda: transformers.Wav2Vec2BertConfig(**SMALL, feature_projection_input_dim=16, conv_depthwise_kernel_size=3),
        {"input_features": ("1..3000", 16)}, {"logits": (2,)}),
    "letters of spectra that an encoder thins out": (
        "ParakeetForCTC",
        lambda: transformers.ParakeetCTCConfig(vocab_size=30, encoder_config={
            **SMALL, "num_mel_bins": 16, "subsampling_conv_channels": 8, "conv_kernel_size": 3}),
        {"input_features": ("8..3000", 16)}, {"logits": ("logits_1", 30)}),
    "classes by a few of many experts": (
        "MixtralForSequenceClassification",
        lambda: transformers.MixtralConfig(**TEXT, num_key_value_heads=1, num_local_experts=8, pad_token_id=0),
        {"input_ids": ("1..20",), "attention_mask": ("1..20",)}, {"logits": (2,)}),
    "a class at the token that ends a text": (
        "BartForSequenceClassification", bart, {"input_ids": ("1..64",), "attention_mask": ("1..64",)},
        {"logits": (3,), "encoder_last_hidden_state": ("encoder_last_hidden_state_1", 32)}),
}


def saved(architecture: str, config: Any, folder: Path) -> Path:
    import torch

    torch.manual_seed(0)
    getattr(transformers, architecture)(config).eval().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_model_of_this_task_is_opened_and_exported(task: Task, tmp_path: Path) -> None:
    architecture, config, inputs, outputs = task
    model = load_model(locate(saved(architecture, config(), tmp_path / "source")), None, tmp_path)
    assert {spec.name: spec.shape[1:] for spec in model.interface.inputs} == inputs
    assert {spec.name: spec.shape[1:] for spec in model.interface.outputs} == outputs
    assert ("the encoder of" in model.name) == ("Generation" in architecture or "Decoder" in architecture)
    checks = [made_up(model, batch, size) for batch, size in ((1, 9), (3, 1500))]
    export_model(model, tmp_path / "export", checks)  # raises where the answers differ


def test_a_series_by_itself_has_no_size_for_how_many_there_are(tmp_path: Path) -> None:
    config = transformers.TimesFm2_5Config(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        head_dim=16, patch_length=8, context_length=32, horizon_length=8, output_quantile_len=8)
    model = load_model(locate(saved("TimesFm2_5ModelForPrediction", config, tmp_path / "source")), None, tmp_path)
    assert {spec.name: spec.shape for spec in model.interface.inputs} == {"past_values": ("batch", 32)}
    assert {spec.name: spec.shape for spec in model.interface.outputs}["mean_predictions"] == ("batch", 8)


def test_positions_behind_the_padding_are_counted_in_a_table_of_the_models_own_class(tmp_path: Path) -> None:
    config = transformers.IBertConfig(**TEXT, pad_token_id=1, quant_mode=True)
    model = load_model(locate(saved("IBertForSequenceClassification", config, tmp_path / "source")), None, tmp_path)
    assert {spec.shape for spec in model.interface.inputs} == {("batch", "1..18")}


def made_up(model: SourceModel, batch: int, size: int) -> Tensors:
    return example_inputs(model.interface, batch, seed=batch, size=size, vocabulary=model.vocabulary,
                          end_token=end_token(model), pad_token=pad_token(model), rows=table_rows(model))


def sent(**shapes: tuple[int | str, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, dtype="int64" if "input_ids" in name or name == "timesteps" else "float32",
                            shape=("batch", *shape)) for name, shape in shapes.items())


STATED: dict[str, tuple[str, Any, tuple[TensorSpec, ...], dict[str, tuple[int | str, ...]]]] = {
    "the whole of a text generator": (
        "BartForConditionalGeneration", bart, sent(input_ids=("1..40",), decoder_input_ids=("1..20",)),
        {"logits": ("logits_1", 60)}),
    "texts of several choices": (
        "ElectraForMultipleChoice", lambda: transformers.ElectraConfig(**TEXT, embedding_size=16),
        sent(input_ids=(4, 9)), {"logits": (4,)}),
    "actions at times, which a table has 12 rows for": (
        "DecisionTransformerModel",
        lambda: transformers.DecisionTransformerConfig(
            vocab_size=60, hidden_size=32, n_layer=1, n_head=2, n_positions=60, max_ep_len=12, state_dim=3, act_dim=2),
        sent(states=(8, 3), actions=(8, 2), rewards=(8, 1), returns_to_go=(8, 1), timesteps=(8,)),
        {"action_preds": (8, 2)}),
    "series of numbers with features of time": (
        "TimeSeriesTransformerForPrediction", series,
        sent(past_values=(10,), past_time_features=(10, 2), past_observed_mask=(10,), future_values=(4,),
             future_time_features=(4, 2)), {"loc": (1,)}),
}


@pytest.mark.parametrize("task", STATED.values(), ids=STATED)
def test_a_model_takes_what_the_user_lists_and_gives_the_outputs_that_are_listed(task: Any, tmp_path: Path) -> None:
    architecture, config, inputs, outputs = task
    stated = Interface(inputs=inputs, outputs=tuple(TensorSpec(name=name, dtype="float32") for name in outputs))
    model = load_model(locate(saved(architecture, config(), tmp_path / "source")), stated, tmp_path)
    assert model.interface.inputs == inputs
    assert {spec.name: spec.shape[1:] for spec in model.interface.outputs} == outputs
    export_model(model, tmp_path / "export", [made_up(model, batch, 9) for batch in (1, 3)])


@pytest.mark.parametrize(("stated", "told"), [
    (Interface(inputs=sent(input_ids=(9,), pixels=(9,))), "BartForConditionalGeneration has no input 'pixels'"),
    (Interface(inputs=sent(input_ids=(9,)), outputs=sent(scores=())), "has no output 'scores'; it gives "),
], ids=["input", "output"])
def test_names_that_the_model_does_not_have_are_told(stated: Interface, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as caught:
        load_model(locate(saved("BartForConditionalGeneration", bart(), tmp_path / "source")), stated, tmp_path)
    assert caught.value.reason == "InterfaceInvalid"


def test_data_that_a_model_fails_on_is_told(tmp_path: Path) -> None:
    model = load_model(locate(saved("BartForConditionalGeneration", bart(), tmp_path / "source")), None, tmp_path)
    with pytest.raises(UserError, match=r"fails on input_ids \[1, 4\], attention_mask \[1, 4\]: index out") as caught:
        model.run({"input_ids": np.full((1, 4), 60), "attention_mask": np.ones((1, 4), np.int64)})
    assert (caught.value.reason, caught.value.field) == ("UnsupportedModel", "spec.interface.inputs")


SENT = {"input_values": ("400..480000",), "attention_mask": ("400..480000",)}


@pytest.mark.parametrize("stated", [
    Interface(padding=Padding(mask="attention_mask")),
    Interface(inputs=tuple(TensorSpec(name=name, dtype=dtype, shape=("batch", "400..480000"))
                           for name, dtype in (("input_values", "float32"), ("attention_mask", "int64"))))],
    ids=["by padding", "by inputs"])
def test_sounds_come_with_a_mask_where_the_user_names_it(stated: Interface, tmp_path: Path) -> None:
    folder = saved("Wav2Vec2ForCTC", layered(), tmp_path / "source")
    model = load_model(locate(folder), stated, tmp_path)
    assert {spec.name: spec.shape[1:] for spec in model.interface.inputs} == SENT
    checks = [example_inputs(model.interface, batch, seed=batch, size=size) for batch, size in ((1, 900), (3, 3000))]
    checks[1]["attention_mask"][0, 2000:] = 0
    export_model(model, tmp_path / "export", checks)  # raises where the answers differ


@pytest.mark.parametrize(("processor", "noted"), [({"return_attention_mask": True}, True), ({}, False), (None, False)])
def test_a_mask_that_the_sources_processor_makes_is_told(processor: dict[str, Any] | None, noted: bool,
                                                         tmp_path: Path) -> None:
    folder = saved("Wav2Vec2ForCTC", layered(), tmp_path / "source")
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    model = load_model(locate(folder), None, tmp_path)
    assert [spec.name for spec in model.interface.inputs] == ["input_values"]
    assert any("write spec.interface.padding" in note for note in model.notes) is noted


@pytest.mark.parametrize("version", ["", "V2"])
def test_a_detector_that_picks_its_queries_says_what_may_differ(version: str, tmp_path: Path) -> None:
    """Where scores are close, PyTorch and ONNX Runtime pick in another order."""
    model = load_model(locate(rt_detr(tmp_path / "source", version)), None, tmp_path)
    assert isinstance(model, TorchModel)
    assert {spec.name: spec.shape[1:] for spec in model.interface.outputs} == {
        "logits": (12, 5), "pred_boxes": (12, 4), "last_hidden_state": (12, 32)}
    assert "declare objectDetection" in model.if_mismatched


def checked(kind: type[TorchModel] = TorchModel) -> TorchModel:
    """``y = 2 · x``, which checks the sizes of its input as RT-DETRv2 does."""
    import torch

    class Checked(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._check_tensor_all(torch.tensor([x.shape[1]]).sum() == x.shape[1])
            return 2 * x

    x, y = (TensorSpec(name=name, dtype="float32", shape=("batch", 4)) for name in "xy")
    return kind(Checked().eval(), Interface(inputs=(x,), outputs=(y,)), name="checked")


def test_a_check_of_a_tensor_is_exported(tmp_path: Path) -> None:
    model = checked()
    export_model(model, tmp_path, [example_inputs(model.interface, batch) for batch in (1, 3)])


class Other(TorchModel):
    """Answers what its module does not."""

    def run(self, inputs: Tensors) -> Tensors:
        return {"y": inputs["x"]}


def test_an_export_that_differs_has_the_models_own_remedy(tmp_path: Path) -> None:
    model = checked(Other)
    model.if_mismatched = "declare objectDetection"
    with pytest.raises(UserError) as caught:
        export_model(model, tmp_path, [example_inputs(model.interface, 3)])
    assert (caught.value.reason, caught.value.remedy) == ("ExportMismatch", "declare objectDetection")


def refusals() -> dict[str, tuple[str, Callable[[], Any], str]]:
    return {
        "an input that nothing is known of": (
            "UnivNetModel",
            lambda: transformers.UnivNetConfig(
                model_in_channels=8, model_hidden_channels=8, num_mel_bins=16, resblock_kernel_sizes=[3],
                resblock_stride_sizes=[2], resblock_dilation_sizes=[[1, 3]], kernel_predictor_num_blocks=1,
                kernel_predictor_hidden_channels=8),
            "takes 'input_features'"),
        "more than one call": (
            "LxmertModel",
            lambda: transformers.LxmertConfig(
                vocab_size=60, hidden_size=32, num_attention_heads=2, intermediate_size=64, max_position_embeddings=64,
                l_layers=1, x_layers=1, r_layers=1),
            "does not answer one call with input_ids [batch, 1..63], attention_mask [batch, 1..63]: "
            "`visual_feats` cannot be `None`"),
        "texts of one length alone, and none that are filled up": (
            "NystromformerForSequenceClassification",
            lambda: transformers.NystromformerConfig(**TEXT, segment_means_seq_len=16, num_landmarks=4),
            "does not answer one call with input_ids [batch, 1..20]"),
    }


@pytest.mark.parametrize("refusal", refusals().values(), ids=refusals())
def test_a_model_that_cannot_be_served_is_refused_by_name(refusal: tuple[str, Callable[[], Any], str],
                                                          tmp_path: Path) -> None:
    architecture, config, words = refusal
    with pytest.raises(UserError) as caught:
        load_model(locate(saved(architecture, config(), tmp_path / "source")), None, tmp_path)
    assert caught.value.reason == "UnsupportedModel"
    assert architecture in caught.value.message
    assert words in caught.value.message
    assert "list what its forward takes in spec.interface.inputs" in caught.value.remedy
    assert "torch.export.save" in caught.value.remedy
