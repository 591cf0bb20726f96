"""Which opsets of ONNX are taken: what ONNX Runtime knows as they are, older ones converted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from enginewright_builder.errors import UserError, brief

_FIELD = "spec.source.uri"
# ONNX Runtime's kernels begin with opset 7. What is older becomes this one, which changes less than newer ones do.
_OLDEST, _CONVERTED = 7, 13
_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})


def check_versions(path: Path, model: Any) -> None:
    """``model`` may lack its weights. Raises :class:`UserError` ``UnsupportedModel``."""
    import onnx
    from onnx import TensorProto, helper

    from enginewright_builder.ort_session import ort, version

    if is_old(model):
        modern(path, model)
        return
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    probe = helper.make_model(
        helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", value[:1], value[1:]),
        ir_version=model.ir_version, opset_imports=[
            onnx.OperatorSetIdProto.FromString(entry.SerializeToString()) for entry in model.opset_import
            if entry.domain in _DOMAINS] or [helper.make_opsetid("", _CONVERTED)])
    try:
        ort.InferenceSession(probe.SerializeToString(), _quiet(ort), providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own classes
        raise _too_new(path, model, f"ONNX Runtime {version()}", str(error)) from error


def is_old(model: Any) -> bool:
    return 0 < opset(model) < _OLDEST


def opset(model: Any) -> int:
    """Of ONNX's own operators; 0 where none is used."""
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def modern(path: Path, model: Any) -> Any:
    """``model`` in an opset that ONNX Runtime has kernels for. Raises :class:`UserError` ``UnsupportedModel``."""
    import onnx

    try:
        return onnx.version_converter.convert_version(model, _CONVERTED)
    except Exception as error:  # the converter's own classes, some of them bare
        raise unsupported(path, model, f"cannot be converted to opset {_CONVERTED}: {brief(error, 200)}") from error


def unsupported(path: Path, model: Any, why: str) -> UserError:
    return UserError("UnsupportedModel", f"{path.name} is of opset {opset(model)}, and {why}", field=_FIELD,
                     value=f"opset {opset(model)}", remedy="export it again with opset 18")


def _too_new(path: Path, model: Any, runtime: str, message: str) -> UserError:
    """ONNX Runtime tells the newest that it knows."""
    if "IR version" in message:
        newest = re.search(r"max supported IR version: (\d+)", message)
        return UserError("UnsupportedModel", f"{path.name} has the IR version {model.ir_version}, which is newer than "
                         f"{runtime} knows", field=_FIELD, value=f"IR version {model.ir_version}",
                         remedy=f"save it with ir_version {newest[1] if newest else 10}")
    newest = re.search(r"till opset (\d+)", message)
    known = f"{runtime} knows opsets up to {newest[1]}" if newest else f"{runtime} does not know it"
    return unsupported(path, model, known)


def _quiet(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return options
