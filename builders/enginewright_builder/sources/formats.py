"""What a source is, told by content and not by its name, and whether it is safe to open. No PyTorch here."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_json import parsed
from enginewright_builder.sources.exported_program import check_exported_program
from enginewright_builder.sources.integrity import check_onnx, check_safetensors
from enginewright_builder.sources.keras_file import check_keras, is_keras
from enginewright_builder.sources.own_names import escapes_folder
from enginewright_builder.sources.saved_model import GRAPH, check_saved_model
from enginewright_builder.sources.tensorflow_packages import KERAS, SAVED_MODEL
from enginewright_builder.sources.torch_archive import without_folder
from enginewright_builder.sources.torchscript import TORCHSCRIPT, check_torchscript
from enginewright_builder.sources.torchserve import is_torchserve, unpack

FORMATS = ("onnx", "huggingface", "exported-program", TORCHSCRIPT, SAVED_MODEL, KERAS)

# What accuracy is measured by, where the user brings a metric of their own: no model.
METRIC_FILE = "metric.onnx"

# How names of architectures of causal language models end.
CAUSAL = ("ForCausalLM", "LMHeadModel")

_FIELD = "spec.source.uri"
# Of a file of settings, in bytes: weights' names of the largest models take a few MiB.
MOST_SETTINGS = 64 << 20
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
PICKLE_REMEDY = ("a pickle can run any code when it is opened: convert the weights to safetensors "
                  "(model.save_pretrained(DIR) does), or export the model with torch.export.save or to ONNX "
                  "(scikit-learn's with skl2onnx)")


@dataclass(frozen=True, kw_only=True)
class Located:
    """``path`` is the file or folder a loader opens; ``notes`` is what the user should know, such as what was
    ignored."""

    path: Path
    format: str
    notes: tuple[str, ...] = ()


def locate(path: Path, wanted: str = "auto", workspace: Path | None = None) -> Located:
    """Finds the model in ``path``, checks that it is whole and safe, and that it is the format the user named. An
    archive of TorchServe is unpacked into ``workspace`` (default: beside it).

    Raises :class:`UserError` ``PickleRefused``, ``SourceCorrupt``, ``UnsupportedOperator``, ``FormatUnknown`` or
    ``FormatMismatch``.
    """
    if wanted not in ("auto", *FORMATS):
        raise UserError("FormatUnknown", f"{wanted!r} is not a known format", field="spec.source.format", value=wanted,
                        remedy=f"write auto, {', '.join(FORMATS)}")
    if is_torchserve(path):
        located = _locate_torchserve(path, workspace or path.with_name(f"{path.name}.unpacked"))
    else:
        located = _locate(path)
    if wanted not in ("auto", located.format):
        raise UserError("FormatMismatch", f"the source is {located.format}, not {wanted}", field="spec.source.format",
                        value=wanted, remedy=f"write {located.format} or auto")
    return located


def size_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _locate(path: Path) -> Located:
    return _locate_folder(path) if path.is_dir() else _locate_file(path)


def _locate_torchserve(path: Path, workspace: Path) -> Located:
    """A Hugging Face folder where there is one in it, else the file that the manifest names."""
    found = unpack(path, workspace)
    whole = (found.folder / "config.json").is_file() and any(found.folder.glob("*.safetensors"))
    if not whole and found.weights is not None and is_pickle(found.weights):
        of = f", of a class in {found.module[:100]}" if found.module else ""
        raise UserError("PickleRefused", f"{path.name} holds its weights as pickle ({found.weights.name}{of})",
                        field=_FIELD, value=path, remedy=PICKLE_REMEDY)
    located = _locate(found.folder if whole or found.weights is None else found.weights)
    return replace(located, notes=(*located.notes, *found.notes))


def _locate_folder(path: Path) -> Located:
    weights = sorted(path.glob("*.safetensors"))
    pickles = sorted(file for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES and is_pickle(file))
    if (path / "config.json").is_file() and weights:
        if name := causal_architecture(check_config(path / "config.json")):
            raise UserError("UnsupportedModel", f"the model is a causal language model ({name}), which is served token "
                            "by token", field=_FIELD, value=path, remedy="write spec.task: generate (by hand --task "
                            "generate), or export the model with torch.export.save to serve its logits")
        check_weight_index(path)
        for file in weights:
            check_safetensors(file)
        return Located(path=path, format="huggingface", notes=_ignored(pickles, "safetensors are there"))
    if (path / GRAPH).is_file():
        check_saved_model(path)
        return Located(path=path, format=SAVED_MODEL)
    models = [file for pattern in ("*.onnx", "*.pt2", "*.pt", "*.ts", "*.keras") for file in sorted(path.glob(pattern))
              if file.name != METRIC_FILE and file not in pickles]
    if len(models) == 1:
        located = _locate_file(models[0])
        return replace(located, notes=(*located.notes, *_ignored(pickles, f"{models[0].name} is there")))
    if len(models) > 1:
        raise UserError("FormatUnknown", f"the folder holds {len(models)} models: {_names(models)}", field=_FIELD,
                        value=path, remedy="name one of the files in the URI")
    if pickles:
        names = ", ".join(file.name for file in pickles)
        raise UserError("PickleRefused", f"the folder holds its weights as pickle only ({names})", field=_FIELD,
                        value=path, remedy=PICKLE_REMEDY)
    found = _names(sorted(path.iterdir())) or "nothing"
    raise UserError("FormatUnknown", f"the folder is no model this builder knows; it holds {found}", field=_FIELD,
                    value=path, remedy="give a folder with config.json and *.safetensors, a SavedModel, or one .onnx, "
                                       ".pt2, .keras or TorchScript file")


def _ignored(pickles: Sequence[Path], instead: str) -> tuple[str, ...]:
    names = ", ".join(file.name for file in pickles)
    return (f"ignored {names}: {instead}, and pickles are never opened",) if names else ()


def _names(files: list[Path]) -> str:
    return ", ".join(file.name for file in files[:8]) + (", …" if len(files) > 8 else "")


def _locate_file(path: Path) -> Located:
    if path.stat().st_size == 0:
        raise UserError("SourceCorrupt", f"{path.name} is empty", field=_FIELD, value=path,
                        remedy="copy the file again and state its digest")
    if is_pickle(path):
        raise UserError("PickleRefused", f"{path.name} is a pickle", field=_FIELD, value=path, remedy=PICKLE_REMEDY)
    if path.suffix == ".safetensors":
        raise UserError("FormatUnknown", f"{path.name} holds weights but not what to compute with them", field=_FIELD,
                        value=path, remedy="name the folder that has config.json beside it")
    if zipfile.is_zipfile(path):
        return _locate_archive(path)
    if path.name == GRAPH:
        raise UserError("FormatUnknown", f"{path.name} is a part of a SavedModel", field=_FIELD, value=path,
                        remedy="name the folder that it lies in, with variables/ beside it")
    if _is_hdf5(path):
        raise UserError("FormatUnknown", f"{path.name} is HDF5, Keras's format of old, which may hold code",
                        field=_FIELD, value=path,
                        remedy="load it in Keras and save it with model.save('model.keras') or model.export('FOLDER')")
    if path.suffix in (".pt2", ".pt", ".ts", ".pth", ".keras"):
        raise UserError("SourceCorrupt", f"{path.name} is not a whole archive", field=_FIELD, value=path,
                        remedy="copy the file again and state its digest")
    check_onnx(path)
    return Located(path=path, format="onnx")


def _locate_archive(path: Path) -> Located:
    members = _members(path)
    if "constants.pkl" in members and any(name.startswith("code/") for name in members):
        check_torchscript(path)
        return Located(path=path, format=TORCHSCRIPT)
    if "archive_format" in members or "serialized_exported_program.json" in members:
        check_exported_program(path)
        return Located(path=path, format="exported-program")
    if is_keras(members):
        check_keras(path)
        return Located(path=path, format=KERAS)
    raise UserError("FormatUnknown", f"{path.name} is an archive, but neither TorchScript, an exported program nor a "
                    "Keras model", field=_FIELD, value=path,
                    remedy="give a file written by torch.export.save, torch.jit.save or Keras's model.save")


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8) == b"\x89HDF\r\n\x1a\n"


def is_pickle(path: Path) -> bool:
    """A bare pickle, or PyTorch's archive around one. TorchScript and exported programs are not meant: they have safe
    readers of their own."""
    with path.open("rb") as file:
        head = file.read(2)
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return True
    if not zipfile.is_zipfile(path):
        return False
    members = _members(path)
    return "data.pkl" in members and "constants.pkl" not in members and "archive_format" not in members


def _members(path: Path) -> set[str]:
    """Names inside, without the folder that PyTorch puts around all of them. Raises ``SourceCorrupt``."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UserError("SourceCorrupt", f"{path.name} is a damaged archive: {error}", field=_FIELD, value=path,
                        remedy="copy the file again and state its digest") from error
    return set(without_folder(names))


def check_config(path: Path) -> dict[str, Any]:
    """``config.json`` as a dict. Raises ``SourceCorrupt``, or ``UnsupportedModel`` where the model brings own code."""
    config = read_settings(path)
    architectures = config.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise _unreadable(path, "architectures is not a list of names")
    if own := next(filter(_names_code, _keys(config)), None):
        raise UserError("UnsupportedModel", f"the model needs Python code of its own ({own[0]} in config.json), which "
                        "is never run", field=_FIELD, value=path, remedy="export it with torch.export.save or to ONNX")
    return config


def causal_architecture(config: Mapping[str, Any]) -> str:
    """The first name of a causal language model; empty where there is none."""
    found = next((name for name in config.get("architectures") or () if name.endswith(CAUSAL)), "")
    return "" if config.get("is_encoder_decoder") else found


def _names_code(setting: tuple[str, Any]) -> bool:
    """Of a model or one of its parts: classes in files beside it, or kernels that a hub has."""
    key, value = setting
    return bool(value) if key == "auto_map" else key.endswith("attn_implementation") and "/" in str(value)


def _keys(config: Any) -> Iterator[tuple[str, Any]]:
    stack = [config]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield from item.items()
        if isinstance(item, dict | list):
            stack.extend(item.values() if isinstance(item, dict) else item)


def read_settings(path: Path) -> dict[str, Any]:
    """A file of the folder that has one JSON object. Raises ``SourceCorrupt``."""
    try:
        if path.stat().st_size > MOST_SETTINGS:
            raise ValueError(f"it is longer than {MOST_SETTINGS >> 20} MiB")
        settings = parsed(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(settings, dict):
        raise _unreadable(path, "it is no object")
    return settings


def _unreadable(path: Path, what: str) -> UserError:
    return UserError("SourceCorrupt", f"{path.name}: {what}", field=_FIELD, value=path, remedy="copy the folder again")


def check_weight_index(path: Path) -> None:
    """Every shard that the index names is there, in the folder itself. Raises ``SourceCorrupt``."""
    index = path / "model.safetensors.index.json"
    if not index.is_file():
        return
    weights = read_settings(index).get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights.values()):
        raise _unreadable(index, "weight_map is not a table of files")
    shards = set(weights.values())
    # What is checked is what lies in the folder itself: a name that leads elsewhere would be opened unchecked.
    if strange := sorted(name for name in shards if escapes_folder(name) or "/" in name
                         or not name.endswith(".safetensors")):
        raise _unreadable(index, f"{strange[0][:100]!r} is no safetensors file of the folder")
    if missing := sorted(name for name in shards if not (path / name).is_file()):
        raise UserError("SourceCorrupt", f"{missing[0]} is named in {index.name} but not there", field=_FIELD,
                        value=path,
                        remedy="copy all shards")
