"""Models of transformers with random weights, each of a small configuration.

``MODELS``: the class, its task, its configuration where :data:`_SMALL` does not say enough, the interface that a user
has to state, and the inputs that the study gives the class itself where it needs more than the interface tells."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import torch
import transformers

# Taken by each configuration that has a setting of that name.
_SMALL: dict[str, Any] = {
    "hidden_size": 32, "embedding_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 99, "max_position_embeddings": 72, "image_size": 64, "patch_size": 16,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "d_model": 32, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "num_queries": 12, "conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 8),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
    "head_dim": 8, "d_ff": 64, "d_kv": 8, "num_heads": 4, "projection_dim": 16, "use_pretrained_backbone": False}


@dataclasses.dataclass(frozen=True)
class HuggingFace:
    """One model of transformers. ``stated`` lists inputs as ``spec.interface`` has them, where they must be stated."""

    kind: str
    task: str
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    stated: dict[str, str] = dataclasses.field(default_factory=dict)
    asked: dict[str, str] = dataclasses.field(default_factory=dict)


def _text(kind: str, task: str, /, stated: dict[str, str] | None = None, **config: Any) -> HuggingFace:
    return HuggingFace(kind, task, config, stated or {}, {"input_ids": "int64 2,16", "attention_mask": "int64 2,16"})


def _image(kind: str, task: str, /, asked: str = "float32 2,3,64,64", **config: Any) -> HuggingFace:
    return HuggingFace(kind, task, config, {}, {"pixel_values": asked})


def _sound(kind: str, task: str, /, **config: Any) -> HuggingFace:
    return HuggingFace(kind, task, config, {}, {"input_values": "float32 2,8000"})


_SWIN = {"model_type": "swin", "embed_dim": 16, "depths": [1, 1, 1, 1], "num_heads": [2, 2, 2, 2], "image_size": 64,
         "window_size": 2, "out_features": ["stage1", "stage2", "stage3", "stage4"]}
_RESNET = {"model_type": "resnet", "embedding_size": 16, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1],
           "out_features": ["stage4"]}
_TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
         "max_position_embeddings": 72, "projection_dim": 16}
_VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
           "image_size": 64, "patch_size": 16, "projection_dim": 16}
_VIT = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "image_size": 64, "patch_size": 16}
_IDS, _MASK = "int64 batch,1..64", "int64 batch,1..64"

MODELS = (
    _text("MPNetForTokenClassification", "token classification"),
    _text("DebertaV2ForSequenceClassification", "text classification", relative_attention=True,
          pos_att_type=["p2c", "c2p"], position_buckets=16),
    _text("MobileBertForQuestionAnswering", "question answering", intra_bottleneck_size=32, num_feedforward_networks=2),
    _text("RoFormerForMaskedLM", "fill-mask"),
    _text("BigBirdForSequenceClassification", "text classification", block_size=8),
    HuggingFace("ElectraForMultipleChoice", "multiple choice", {},
                {"input_ids": "int64 batch,4,32", "attention_mask": "int64 batch,4,32"}),
    _text("SqueezeBertModel", "text embedding"),
    _text("ReformerForSequenceClassification", "text classification", attn_layers=["local", "lsh"],
          axial_pos_shape=[4, 4], axial_pos_embds_dim=[16, 16], attention_head_size=8, feed_forward_size=64,
          num_buckets=2, is_decoder=False),
    _text("IBertForSequenceClassification", "text classification", quant_mode=True),
    _text("ModernBertForMaskedLM", "fill-mask", global_attn_every_n_layers=2, local_attention=8, cls_token_id=3,
          sep_token_id=4),
    _text("YosoForSequenceClassification", "text classification"),
    _text("GPTNeoForSequenceClassification", "text classification", attention_types=[[["global", "local"], 1]],
          window_size=8),
    _text("Qwen3ForSequenceClassification", "reranking"),
    _text("MixtralForSequenceClassification", "reranking", num_local_experts=4),
    _text("MambaModel", "text embedding", state_size=8, conv_kernel=4),
    _text("UMT5EncoderModel", "text embedding"),
    _text("SplinterForQuestionAnswering", "question answering", question_token_id=5),
    HuggingFace("LiltForTokenClassification", "document understanding", {"hidden_size": 48},
                {"input_ids": _IDS, "bbox": "int64 batch,1..64,4", "attention_mask": _MASK}),
    HuggingFace("LayoutLMv3ForTokenClassification", "document understanding",
                {"coordinate_size": 6, "shape_size": 4, "input_size": 64},
                {"input_ids": "int64 batch,32", "bbox": "int64 batch,32,4", "attention_mask": "int64 batch,32",
                 "pixel_values": "float32 batch,3,64,64"}),
    HuggingFace("MarkupLMForQuestionAnswering", "document understanding", {"max_depth": 8},
                {"input_ids": _IDS, "xpath_tags_seq": "int64 batch,1..64,8", "xpath_subs_seq": "int64 batch,1..64,8",
                 "attention_mask": _MASK}),
    _image("Dinov2WithRegistersForImageClassification", "image classification"),
    _image("Swinv2ForImageClassification", "image classification", embed_dim=16, depths=[1, 2], num_heads=[2, 4],
           window_size=4, patch_size=4),
    _image("PoolFormerForImageClassification", "image classification", hidden_sizes=[16, 16, 32, 32],
           depths=[1, 1, 1, 1]),
    _image("FocalNetForImageClassification", "image classification", embed_dim=16, depths=[1, 1, 1, 1], patch_size=4),
    _image("SwiftFormerForImageClassification", "image classification", embed_dims=[16, 16, 32, 32],
           depths=[1, 1, 1, 1]),
    HuggingFace("PerceiverForImageClassificationLearned", "image classification",
                {"num_latents": 16, "d_latents": 32, "num_blocks": 1, "num_self_attends_per_block": 2,
                 "num_self_attention_heads": 4, "num_cross_attention_heads": 1}, {},
                {"inputs": "float32 2,3,64,64"}),
    HuggingFace("ImageGPTForImageClassification", "image classification",
                {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}, {}, {"input_ids": "int64 2,64"}),
    _image("GLPNForDepthEstimation", "depth estimation", depths=[1, 1, 1, 1], hidden_sizes=[16, 16, 32, 32],
           num_attention_heads=[1, 1, 2, 2], sr_ratios=[4, 2, 1, 1], decoder_hidden_size=16),
    _image("DepthAnythingForDepthEstimation", "depth estimation", backbone_config={
        "model_type": "dinov2", **_VIT, "out_features": ["stage1", "stage2", "stage3", "stage4"],
        "reshape_hidden_states": False}, reassemble_hidden_size=32, patch_size=16, neck_hidden_sizes=[16, 16, 32, 32],
        fusion_hidden_size=16, head_hidden_size=8),
    _image("SegformerForSemanticSegmentation", "semantic segmentation", depths=[1, 1, 1, 1],
           hidden_sizes=[16, 16, 32, 32], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16),
    _image("UperNetForSemanticSegmentation", "semantic segmentation", backbone_config={
        "model_type": "convnext", "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1],
        "out_features": ["stage1", "stage2", "stage3", "stage4"]}, hidden_size=16, auxiliary_in_channels=32,
        auxiliary_channels=16),
    _image("Mask2FormerForUniversalSegmentation", "universal segmentation", backbone_config=_SWIN, hidden_dim=32,
           feature_size=32, mask_feature_size=32, dim_feedforward=64, encoder_feedforward_dim=64),
    _image("MaskFormerForInstanceSegmentation", "universal segmentation", backbone_config=_SWIN, decoder_config={
        "model_type": "detr", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 12},
        fpn_feature_size=32, mask_feature_size=32),
    _image("EomtForUniversalSegmentation", "universal segmentation", num_blocks=1, num_upscale_blocks=1),
    _image("DabDetrForObjectDetection", "object detection", backbone_config=_RESNET, hidden_size=32),
    _image("TableTransformerForObjectDetection", "object detection", backbone_config=_RESNET),
    HuggingFace("Owlv2ForObjectDetection", "zero-shot object detection",
                {"text_config": {**_TEXT, "max_position_embeddings": 16}, "vision_config": _VISION,
                 "projection_dim": 32}, {},
                {"input_ids": "int64 2,16", "attention_mask": "int64 2,16", "pixel_values": "float32 2,3,64,64"}),
    _image("Swin2SRForImageSuperResolution", "super-resolution", embed_dim=16, depths=[1, 1], num_heads=[2, 2],
           window_size=4, patch_size=1),
    _image("VitMatteForImageMatting", "image matting", "float32 2,4,64,64", backbone_config={
        "model_type": "vitdet", **_VIT, "num_channels": 4, "out_features": ["stage4"], "window_size": 2,
        "window_block_indices": [0]}, hidden_size=32, convstream_hidden_sizes=[16, 16, 32],
        fusion_hidden_sizes=[32, 16, 16, 8]),
    _image("VitPoseForPoseEstimation", "pose estimation", backbone_config={
        "model_type": "vitpose_backbone", **_VIT, "image_size": [64, 64], "patch_size": [16, 16],
        "out_features": ["stage4"]}, num_labels=17),
    _image("VivitForVideoClassification", "video classification", "float32 2,4,3,64,64", num_frames=4,
           tubelet_size=[2, 16, 16]),
    HuggingFace("VJEPA2ForVideoClassification", "video classification",
                {"crop_size": 64, "frames_per_clip": 4, "num_pooler_layers": 1, "pred_hidden_size": 32,
                 "pred_num_attention_heads": 4, "pred_num_hidden_layers": 2, "mlp_ratio": 2.0}, {},
                {"pixel_values_videos": "float32 2,4,3,64,64"}),
    HuggingFace("SuperGlueForKeypointMatching", "keypoint matching", {"keypoint_detector_config": {
        "model_type": "superpoint", "encoder_hidden_sizes": [16, 16, 16, 16], "decoder_hidden_size": 32,
        "keypoint_decoder_dim": 65, "descriptor_decoder_dim": 32, "max_keypoints": 32},
        "hidden_size": 32, "keypoint_encoder_sizes": [16, 32], "gnn_layers_types": ["self", "cross"],
        "sinkhorn_iterations": 5}, {"pixel_values": "float32 batch,2,3,64,64"}),
    HuggingFace("PPOCRV5MobileRecForTextRecognition", "text recognition", {"backbone_config": {
        "model_type": "pp_lcnet_v3", "block_configs": [
            [[3, 16, 16, 1, False]], [[3, 16, 16, [2, 1], False]], [[3, 16, 32, [1, 2], False]],
            [[3, 32, 32, [2, 1], False]], [[5, 32, 32, [2, 1], True]]]},
        "head_out_channels": 99}, {"pixel_values": "float32 batch,3,48,320"}),
    _image("SLANetForTableRecognition", "table recognition", "float32 2,3,64,64"),
    _sound("UniSpeechSatForXVector", "speaker verification", tdnn_dim=[16, 16, 16, 16, 32], xvector_output_dim=32),
    _sound("Wav2Vec2ConformerForCTC", "speech recognition", conv_depthwise_kernel_size=5),
    _sound("SEWDForCTC", "speech recognition", squeeze_factor=2, position_buckets=16),
    _sound("Data2VecAudioForAudioFrameClassification", "audio classification", conv_pos_kernel_size=3),
    HuggingFace("Wav2Vec2BertForSequenceClassification", "audio classification", {"feature_projection_input_dim": 160},
                {}, {"input_features": "float32 2,64,160"}),
    HuggingFace("ParakeetForCTC", "speech recognition", {"encoder_config": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "num_mel_bins": 80}}, {}, {"input_features": "float32 2,64,80"}),
    HuggingFace("PatchTSMixerForPrediction", "series forecasting", {"context_length": 64, "prediction_length": 8,
                "num_input_channels": 3, "patch_length": 8, "patch_stride": 8}, {}, {"past_values": "float32 2,64,3"}),
    HuggingFace("TimesFmModelForPrediction", "series forecasting", {"context_length": 64, "patch_length": 16,
                "horizon_length": 8}, {"past_values": "float32 batch,64"}),
    HuggingFace("AltCLIPModel", "text and image embedding",
                {"text_config": {**_TEXT, "project_dim": 16}, "vision_config": _VISION}, {},
                {"input_ids": "int64 2,16", "attention_mask": "int64 2,16", "pixel_values": "float32 2,3,64,64"}),
    HuggingFace("CLIPSegForImageSegmentation", "text-guided segmentation",
                {"text_config": _TEXT, "vision_config": {**_VISION, "num_hidden_layers": 3},
                 "extract_layers": [0, 1, 2], "reduce_dim": 16, "decoder_num_attention_heads": 4,
                 "decoder_intermediate_size": 32}, {},
                {"input_ids": "int64 2,16", "attention_mask": "int64 2,16", "pixel_values": "float32 2,3,64,64"}),
    HuggingFace("BridgeTowerForImageAndTextRetrieval", "text and image matching",
                {"hidden_size": 64, "text_config": {**_TEXT, "hidden_size": 64},
                 "vision_config": {**_VISION, "hidden_size": 64}}, {},
                {"input_ids": "int64 2,16", "attention_mask": "int64 2,16", "pixel_values": "float32 2,3,64,64"}),
    HuggingFace("DecisionTransformerModel", "control", {"max_ep_len": 64, "n_positions": 64},
                {"states": "float32 batch,8,17", "actions": "float32 batch,8,4", "rewards": "float32 batch,8,1",
                 "returns_to_go": "float32 batch,8,1", "timesteps": "int64 batch,8",
                 "attention_mask": "int64 batch,8"}),
    HuggingFace("Sam2Model", "mask generation", {
        "vision_config": {"backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]], "fpn_hidden_size": 32,
                          "backbone_channel_list": [128, 64, 32, 16], "backbone_config": {
                              "model_type": "sam2_hiera_det_model", "hidden_size": 16, "image_size": [64, 64],
                              "blocks_per_stage": [1, 1, 2, 1], "embed_dim_per_stage": [16, 32, 64, 128],
                              "num_attention_heads_per_stage": [1, 1, 2, 2], "global_attention_blocks": [3],
                              "window_size_per_stage": [8, 4, 4, 2]}},
        "prompt_encoder_config": {"hidden_size": 32, "image_size": 64, "mask_input_channels": 4},
        "mask_decoder_config": {"hidden_size": 32, "num_attention_heads": 4, "mlp_dim": 64, "iou_head_hidden_dim": 32}},
        {"pixel_values": "float32 batch,3,64,64", "input_points": "float32 batch,1,1,2"}),
)


def made(one: HuggingFace, folder: Path) -> None:
    """Write the model into ``folder`` after it has answered two samples. Raises whatever its class does."""
    kind = getattr(transformers, one.kind)
    config_class = kind.config_class
    known = inspect.signature(config_class).parameters
    torch.manual_seed(0)
    config = config_class(**{name: value for name, value in _SMALL.items() if name in known and name not in one.config},
                          **one.config)
    model = kind(config).eval()
    with torch.inference_mode():
        model(**{name: _values(text, config) for name, text in (one.asked or one.stated).items()})
    model.save_pretrained(folder)


def _values(text: str, config: Any) -> torch.Tensor:
    dtype, sizes = text.split()
    shape = [2 if size == "batch" else int(size.partition("..")[0]) * (16 if ".." in size else 1)
             for size in sizes.split(",")]
    return torch.ones(shape, dtype=torch.int64) if dtype == "int64" else torch.rand(shape)
