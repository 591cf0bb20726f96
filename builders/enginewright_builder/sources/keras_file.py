"""``.keras``: Keras's own file, looked through before Keras opens it.

It is an archive of a configuration, which names the classes of layers, and of weights. Some classes hold code
(``Lambda`` has Python's byte code, ``TorchModuleWrapper`` a pickle) or read other files, and a class of the user's own
is a module to import. So only Keras's layers that compute with tensors are let through; Keras's safe mode comes on top.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_json import parsed

CONFIG = "config.json"
MEMBERS = frozenset({CONFIG, "metadata.json", "model.weights.h5"})
# Of the configuration, in bytes: the largest models' are a few MiB.
_MOST_CONFIG = 256 << 20
_FIELD = "spec.source.uri"
_EXPORT = "load it in Keras yourself and write the forward pass with model.export(FOLDER), or give ONNX"

_LAYERS = """
    Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D
    AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add AdditiveAttention AlphaDropout Attention
    Average AveragePooling1D AveragePooling2D AveragePooling3D BatchNormalization Bidirectional CategoryEncoding
    CenterCrop Concatenate Conv1D Conv1DTranspose Conv2D Conv2DTranspose Conv3D Conv3DTranspose ConvLSTM1D
    ConvLSTM2D ConvLSTM3D Cropping1D Cropping2D Cropping3D Dense DepthwiseConv1D DepthwiseConv2D Discretization Dot
    Dropout ELU EinsumDense Embedding Flatten GaussianDropout GaussianNoise GlobalAveragePooling1D
    GlobalAveragePooling2D GlobalAveragePooling3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GroupNormalization GroupQueryAttention GRU GRUCell Identity InputLayer LayerNormalization LeakyReLU LSTM
    LSTMCell Masking Maximum MaxPooling1D MaxPooling2D MaxPooling3D MelSpectrogram Minimum MultiHeadAttention
    Multiply Normalization Permute PReLU RandomBrightness RandomContrast RandomCrop RandomFlip RandomRotation
    RandomTranslation RandomZoom ReLU RepeatVector Rescaling Reshape Resizing ReversibleEmbedding RMSNormalization
    RNN SeparableConv1D SeparableConv2D SimpleRNN SimpleRNNCell Softmax SpatialDropout1D SpatialDropout2D
    SpatialDropout3D SpectralNormalization StackedRNNCells STFTSpectrogram Subtract TimeDistributed
    UnitNormalization UpSampling1D UpSampling2D UpSampling3D ZeroPadding1D ZeroPadding2D ZeroPadding3D
"""
LAYERS = frozenset(_LAYERS.split())
# Names that a module may give; None: any, as all of them are made of numbers alone.
_CLASSES: dict[str, frozenset[str] | None] = {
    "keras.layers": LAYERS,
    "keras": frozenset({"Functional", "Model", "Sequential", "DTypePolicy"}),
    "keras.models": frozenset({"Functional", "Model", "Sequential"}),
    "keras.src.models.functional": frozenset({"Functional"}),
    "keras.src.models.sequential": frozenset({"Sequential"}),
    "keras.dtype_policies": None, "keras.initializers": None, "keras.regularizers": None, "keras.constraints": None,
    # Operators that are called between layers, such as x + y.
    **{f"keras.src.ops.{name}": None for name in ("numpy", "nn", "math", "linalg", "image")},
}
# They stand for tensors between layers, and for tuples.
_PLACES = frozenset({"__keras_tensor__", "__tuple__", "__ellipsis__", "__slice__"})
_CODE = frozenset({"Lambda", "__lambda__", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "function"})
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


def is_keras(members: set[str]) -> bool:
    return {CONFIG, "metadata.json"} <= members


def check_keras(path: Path) -> None:
    """Raises :class:`UserError` ``PickleRefused`` for what could run code, ``UnsupportedModel`` for classes that Keras
    itself has not, ``SourceCorrupt`` for a damaged file."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if strange := sorted(set(names) - MEMBERS):
                raise _refuse("PickleRefused", f"{path.name} holds {strange[0][:100]!r} beside its layers and weights, "
                              "which may be code, or words that a layer looks up", strange[0][:100])
            if len(set(names)) != len(names) or set(names) != MEMBERS:
                raise _corrupt(path, f"it should hold {', '.join(sorted(MEMBERS))} once each, and holds "
                               f"{', '.join(sorted(names)[:8])}")
            if archive.getinfo(CONFIG).file_size > _MOST_CONFIG:
                raise _corrupt(path, f"{CONFIG} is longer than {_MOST_CONFIG >> 20} MiB")
            if damaged := archive.testzip():
                raise _corrupt(path, f"member {damaged} fails its checksum")
            config = parsed(archive.read(CONFIG))
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise _corrupt(path, str(error)) from error
    if not isinstance(config, dict) or "class_name" not in config:
        raise _corrupt(path, f"{CONFIG} names no class")
    # What it was trained with is never opened.
    for part in _objects({**config, "compile_config": None}):
        _check(path, part)


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    stack = [config]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if "class_name" in item or "registered_name" in item:
                yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _check(path: Path, part: dict[str, Any]) -> None:
    name, module, registered = (part.get(key) for key in ("class_name", "module", "registered_name"))
    if not isinstance(name, str):
        raise _corrupt(path, f"{CONFIG} has a class without a name")
    if name in _PLACES:
        return
    layer = f"{module or ''}.{name}".strip(".")[:100]
    if name in _CODE:
        raise _refuse("PickleRefused", f"{path.name} has code in it: {layer}, which would run when it is opened", layer)
    known = _CLASSES.get(module, frozenset()) if isinstance(module, str) else frozenset()
    plain = bool(_NAME.fullmatch(name)) and registered in (None, name)
    if not plain or (known is not None and name not in known):
        raise _refuse("UnsupportedModel", f"{path.name} needs {layer}, which is not one of Keras's layers that compute "
                      "with numbers alone; classes of one's own, tables of words and files are never opened", layer)


def _refuse(reason: str, message: str, value: object) -> UserError:
    return UserError(reason, message, field=_FIELD, value=value, remedy=_EXPORT)


def _corrupt(path: Path, what: str) -> UserError:
    return UserError("SourceCorrupt", f"{path.name} is no whole file of Keras: {what[:200]}", field=_FIELD, value=path,
                     remedy="copy the file again and state its digest in spec.source.digest")
