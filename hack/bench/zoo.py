"""The benchmark's models. Random weights do for speed; MiniLM has its real ones, for accuracy.

Sizes are those at which the models are usually quoted: images of 3 × 224 × 224, texts of 128 tokens, a second of sound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from enginewright_builder.contract import Interface, Normalise, TensorSpec
from enginewright_builder.models import SourceModel
from enginewright_builder.models.normalised import Normalised
from enginewright_builder.models.torch_base import TorchModel
from enginewright_builder.shapes import BATCH

IMAGE = (3, 224, 224)
TOKENS = 128
# A second of sound, and how many vectors Wav2Vec2's convolutions make of it.
SECOND, FRAMES = 16_000, 49
CLASSES = 1000
SEED = 0


@dataclass(frozen=True)
class Entry:
    """``load`` takes the folder of carried inputs and a device, and returns the source model on that device.
    ``samples`` are held against the source: enough for a lower bound of 0.99 with 95 % confidence."""

    name: str
    weights: str
    load: Callable[[Path, str], SourceModel]
    samples: int = 1024


class _First(torch.nn.Module):
    """The one output of a model that returns several in a mapping."""

    def __init__(self, inner: torch.nn.Module, key: str) -> None:
        super().__init__()
        self.inner, self.key = inner, key

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.inner(*inputs)[self.key]
        return output


class _Sound(torch.nn.Module):
    """A speech encoder's last hidden state, from the waveform."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_values: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.inner(input_values=input_values).last_hidden_state
        return hidden


class _Hidden(torch.nn.Module):
    """A text encoder's last hidden state, from token identifiers and mask."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.inner(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return hidden


def _image_model(name: str, module: torch.nn.Module, device: str, output: tuple[int, ...] = (CLASSES,)) -> SourceModel:
    interface = Interface(inputs=(TensorSpec(name="image", dtype="float32", shape=(BATCH, *IMAGE)),),
                          outputs=(TensorSpec(name="scores", dtype="float32", shape=(BATCH, *output)),))
    return TorchModel(module.eval(), interface, name=f"{name}, PyTorch eager", device=device)


def _timm(name: str, architecture: str) -> Entry:
    def load(_: Path, device: str) -> SourceModel:
        import timm

        torch.manual_seed(SEED)
        return _image_model(name, timm.create_model(architecture, pretrained=False), device)

    return Entry(name, "random", load)


def _of_bytes(entry: Entry) -> Entry:
    """The same model for clients that send bytes, which its engines normalise."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    image = TensorSpec(name="image", dtype="uint8", shape=(BATCH, *IMAGE),
                       normalise=Normalise(scale=1 / 255, mean=mean, std=std))

    def load(inputs: Path, device: str) -> SourceModel:
        return Normalised(entry.load(inputs, device), Interface(inputs=(image,)))

    return Entry(f"{entry.name}-bytes", entry.weights, load)


def _deeplab(_: Path, device: str) -> SourceModel:
    from torchvision.models import segmentation

    torch.manual_seed(SEED)
    inner = segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None)
    return _image_model("deeplabv3-resnet50", _First(inner, "out"), device, (21, *IMAGE[1:]))


def _segformer(_: Path, device: str) -> SourceModel:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    torch.manual_seed(SEED)
    config = SegformerConfig(num_labels=150)
    inner = SegformerForSemanticSegmentation(config)
    # A score of each class for each square of 4 × 4 pixels.
    output = (config.num_labels, IMAGE[1] // 4, IMAGE[2] // 4)
    return _image_model("segformer-b0", _First(inner, "logits"), device, output)


def _detr(_: Path, device: str) -> SourceModel:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    torch.manual_seed(SEED)
    backbone = ResNetConfig(out_features=["stage4"])
    config = DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
                        backbone_config=backbone, num_labels=91)
    # Beside the classes each query has a score for no object.
    output = (config.num_queries, config.num_labels + 1)
    return _image_model("detr-resnet50", _First(DetrForObjectDetection(config), "logits"), device, output)


def _bert(_: Path, device: str) -> SourceModel:
    from transformers import BertConfig, BertModel

    torch.manual_seed(SEED)
    config = BertConfig()
    shape = (BATCH, TOKENS)
    interface = Interface(inputs=(TensorSpec(name="input_ids", dtype="int64", shape=shape),
                                  TensorSpec(name="attention_mask", dtype="int64", shape=shape)),
                          outputs=(TensorSpec(name="hidden", dtype="float32", shape=(*shape, config.hidden_size)),))
    return TorchModel(_Hidden(BertModel(config, add_pooling_layer=False)).eval(), interface,
                      name="BERT-base, PyTorch eager", vocabulary=config.vocab_size, device=device)


def _wav2vec2(_: Path, device: str) -> SourceModel:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    torch.manual_seed(SEED)
    config = Wav2Vec2Config()
    interface = Interface(
        inputs=(TensorSpec(name="input_values", dtype="float32", shape=(BATCH, SECOND)),),
        outputs=(TensorSpec(name="hidden", dtype="float32", shape=(BATCH, FRAMES, config.hidden_size)),))
    return TorchModel(_Sound(Wav2Vec2Model(config)).eval(), interface, name="wav2vec2-base, PyTorch eager",
                      device=device)


def _minilm(inputs: Path, device: str) -> SourceModel:
    from enginewright_builder.models.huggingface import load_huggingface

    shape: tuple[int | str, ...] = (BATCH, TOKENS)
    stated = Interface(inputs=tuple(TensorSpec(name=name, dtype="int64", shape=shape)
                                    for name in ("input_ids", "attention_mask")))
    return load_huggingface(inputs / "minilm", stated, device=device)


ZOO: tuple[Entry, ...] = (
    _timm("resnet50", "resnet50"),
    _timm("vit-b16", "vit_base_patch16_224"),
    Entry("bert-base", "random", _bert),
    Entry("minilm", "all-MiniLM-L6-v2", _minilm),
    _timm("convnext-tiny", "convnext_tiny"),
    # A million scores a sample: more samples would take longer to compare than all else.
    Entry("deeplabv3-resnet50", "random", _deeplab, samples=384),
    _timm("efficientnet-b0", "efficientnet_b0"),
    _timm("swin-tiny", "swin_tiny_patch4_window7_224"),
    # The order of trials was learnt from those above; these say what it is worth for others.
    _timm("regnety-032", "regnety_032"),
    _timm("mobilevit-s", "mobilevit_s"),
    _timm("mobilenetv4-m", "mobilenetv4_conv_medium"),
    _timm("densenet121", "densenet121"),
    Entry("wav2vec2-base", "random", _wav2vec2),
    # Half a million scores a sample.
    Entry("segformer-b0", "random", _segformer, samples=384),
    Entry("detr-resnet50", "random", _detr),
)

# Of which the results would be those of another model, but for what travels.
VARIANTS = (_of_bytes(ZOO[0]),)


def entries(names: str) -> list[Entry]:
    """``names`` separated by commas, empty for all but variants. Raises ``SystemExit`` for a name that is not in the
    zoo."""
    wanted = [name for name in names.split(",") if name]
    known: dict[str, Any] = {entry.name: entry for entry in (*ZOO, *VARIANTS)}
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"there is no model {unknown[0]}; write some of {', '.join(known)}")
    return [known[name] for name in wanted] if wanted else list(ZOO)
