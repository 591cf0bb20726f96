"""The models of the count: no architecture of the list stood anywhere in this repository when the list was written."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from enginewright_builder.sources.tensorflow_packages import PACKAGES_VARIABLE
from model_count import graphs, hugging_face, modules, tensorflow_models
from model_count.modules import exported, program, script


@dataclass(frozen=True)
class Model:
    """``make`` writes the source into a folder after the framework has answered it, and gives its path. ``stated``: the
    inputs that the user has to state, by name, as ``dtype sizes``; ``batch`` says whether it takes two samples."""

    name: str
    task: str
    source: str
    make: Callable[[Path], Path]
    stated: dict[str, str] = field(default_factory=dict)

    @property
    def interface(self) -> dict[str, object] | None:
        """As ``spec.interface`` has it; None where nothing is stated."""
        return {"inputs": [{"name": name, "dtype": told.split()[0], "shape": [
            int(size) if size.isdecimal() else size for size in told.split()[1].split(",")]}
            for name, told in self.stated.items()]} if self.stated else None


def _hugging_face(one: hugging_face.HuggingFace) -> Model:
    def make(folder: Path) -> Path:
        hugging_face.made(one, folder)
        return folder

    return Model(one.kind, one.task, "Hugging Face", make, one.stated)


def _tensorflow(name: str, folder: Path) -> Path:
    subprocess.run([sys.executable, "-I", "-S", tensorflow_models.__file__, os.environ[PACKAGES_VARIABLE], name,
                    folder], check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "KERAS_HOME": str(folder)})
    return next(folder / last for last in ("m.keras", "m") if (folder / last).exists())


def _by_tensorflow(name: str, task: str, source: str) -> Model:
    return Model(f"tensorflow {name}", task, source, functools.partial(_tensorflow, name))


def _by_hand(make: Callable[[Path], Path], task: str) -> Model:
    return Model(f"graph {make.__name__}", task, "ONNX", make)


_sound, _image, _steps = torch.rand(2, 1600), torch.rand(2, 3, 32, 32), torch.rand(2, 7, 6)

MODELS: tuple[Model, ...] = (
    *map(_hugging_face, hugging_face.MODELS),
    Model("GraphConvolution", "node classification", "exported program",
          program(modules.GraphConvolution(), torch.rand(2, 9, 8), torch.rand(2, 9, 9))),
    Model("DeepFM", "recommendation", "exported program", program(modules.DeepFM(), torch.randint(0, 200, (2, 5)))),
    Model("NBeats", "series forecasting", "exported program", program(modules.NBeats(), torch.rand(2, 24))),
    Model("TasNet", "source separation", "exported program", program(modules.TasNet(), _sound)),
    Model("Crnn", "text recognition", "exported program", program(modules.Crnn(), torch.rand(2, 1, 32, 64))),
    Model("FtTransformer", "tabular", "exported program",
          program(modules.FtTransformer(), torch.rand(2, 6), torch.randint(0, 30, (2, 3)))),
    Model("CentreNet", "object detection", "exported program", program(modules.CentreNet(), _image)),
    Model("Spectrogram", "audio classification", "exported program", program(modules.Spectrogram(), _sound)),
    Model("ImplicitField", "implicit field", "exported program",
          program(modules.ImplicitField(), torch.rand(2, 8), torch.rand(2, 20, 3), free=False)),
    Model("LinkNet", "semantic segmentation", "TorchScript", script(modules.LinkNet(), _image, traced=True),
          {"image": "float32 batch,3,32,32"}),
    Model("DynamicMemory", "anomaly detection", "TorchScript", script(modules.DynamicMemory(), _steps),
          {"steps": "float32 batch,7,6"}),
    Model("Gated", "control", "TorchScript", script(modules.Gated(), torch.rand(2, 8)), {"x": "float32 batch,8"}),
    Model("Mixer", "image classification", "TorchScript", script(modules.Mixer(), _image, traced=True),
          {"image": "float32 batch,3,32,32"}),
    Model("LinkNet, old exporter", "semantic segmentation", "ONNX",
          exported(modules.LinkNet(), _image, dynamo=False, opset=11)),
    Model("DynamicMemory, old exporter", "anomaly detection", "ONNX",
          exported(modules.DynamicMemory(), _steps, dynamo=False, opset=14)),
    Model("CentreNet, new exporter", "object detection", "ONNX",
          exported(modules.CentreNet(), _image, dynamo=True, opset=20)),
    Model("Crnn, new exporter", "text recognition", "ONNX",
          exported(modules.Crnn(), torch.rand(2, 1, 32, 64), dynamo=True, opset=18)),
    _by_hand(graphs.old_zoo, "image classification"), _by_hand(graphs.upsampled, "style transfer"),
    _by_hand(graphs.half, "tabular"), _by_hand(graphs.quantised, "image embedding"),
    _by_hand(graphs.integer_only, "image classification"), _by_hand(graphs.suppressed, "object detection"),
    _by_hand(graphs.words, "text classification"), _by_hand(graphs.vector_machine, "tabular"),
    _by_hand(graphs.scanned, "signal filtering"), _by_hand(graphs.branched, "control"),
    _by_hand(graphs.warped, "image registration"),
    _by_tensorflow("mobile_net", "image classification", "Keras"),
    _by_tensorflow("text_filters", "text classification", "Keras"),
    _by_tensorflow("moving_images", "video classification", "Keras"),
    _by_tensorflow("both_ways", "anomaly detection", "Keras"),
    _by_tensorflow("nas_net", "image classification", "SavedModel"),
    _by_tensorflow("volume", "volume segmentation", "SavedModel"),
    _by_tensorflow("keywords", "audio classification", "SavedModel"),
    _by_tensorflow("ranked", "recommendation", "SavedModel"),
)
