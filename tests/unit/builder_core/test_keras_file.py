"""A Keras file names classes: those that compute are let through, before Keras opens it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.errors import UserError
from enginewright_builder.sources.formats import locate


def layer(name: str, module: str | None = "keras.layers", **more: Any) -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": {}, "registered_name": None, **more}


def model(*layers: Any, **more: Any) -> dict[str, Any]:
    return {**layer("Sequential", "keras"), "config": {"layers": list(layers)}, **more}


def write(path: Path, config: Any, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", b"\x89HDF\r\n\x1a\n")
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return path


def refused(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        locate(path)
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.keras"


@pytest.mark.parametrize("part", [
    layer("Dense"), layer("GlorotUniform", "keras.initializers"), layer("L2", "keras.regularizers"),
    layer("Functional", "keras.src.models.functional"), layer("Add", "keras.src.ops.numpy", registered_name="Add"),
    {"class_name": "__keras_tensor__", "config": {}}, layer("Bidirectional", config={"layer": layer("LSTM")}),
])
def test_what_computes_is_taken(part: dict[str, Any], path: Path) -> None:
    assert locate(write(path, model(part))).format == "keras"


def test_what_it_was_trained_with_is_not_looked_at(path: Path) -> None:
    own = layer("function", "builtins", registered_name="my_loss")
    assert locate(write(path, model(layer("Dense"), compile_config={"loss": own}))).format == "keras"


@pytest.mark.parametrize("part", [
    layer("Lambda"), layer("TorchModuleWrapper"), layer("JaxLayer"), {"class_name": "__lambda__", "config": {}},
    layer("function", "builtins"), layer("Bidirectional", config={"layer": layer("Lambda")}),
    layer("Dense", config={"deep": [[{"er": layer("Lambda", None)}]]}),
])
def test_code_is_refused(part: dict[str, Any], path: Path) -> None:
    error = refused(write(path, model(part)))
    assert (error.reason, error.field) == ("PickleRefused", "spec.source.uri")
    assert "has code in it" in error.message
    assert "model.export" in error.remedy


@pytest.mark.parametrize("part", [
    layer("Dense", "os"), layer("system", "os"), layer("get_file", "keras.utils"), layer("Dense", None),
    layer("load_model", "keras.saving"), layer("TFSMLayer"), layer("StringLookup"), layer("TextVectorization"),
    layer("Mine", None, registered_name="mine>Mine"), layer("Dense", registered_name="mine>Dense"),
    layer("Dense", ["keras.layers"]), layer("a.b", "keras.initializers"),  # type: ignore[arg-type]
    layer("os.system", "keras.src.ops.numpy"), {"class_name": "Dense"},
])
def test_classes_that_do_more_or_are_ones_own_are_refused(part: dict[str, Any], path: Path) -> None:
    error = refused(write(path, model(part)))
    assert error.reason == "UnsupportedModel"
    assert error.value in error.message


@pytest.mark.parametrize("config", [[], {}, {"class_name": []}, {"class_name": "Sequential"}, "x"])
def test_a_configuration_of_another_form_is_refused(config: Any, path: Path) -> None:
    assert refused(write(path, config)).reason in ("SourceCorrupt", "UnsupportedModel")


@pytest.mark.parametrize("name", ["assets__layer.pkl", "assets__string_lookup__vocabulary.txt", "run.py"])
def test_other_members_are_refused(name: str, path: Path) -> None:
    error = refused(write(path, model(layer("Dense")), **{name: b"x"}))
    assert (error.reason, error.value) == ("PickleRefused", name.replace("__", "/"))


def test_a_member_that_is_there_twice_is_refused(path: Path) -> None:
    write(path, model(layer("Dense")))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("config.json", json.dumps(model(layer("Lambda"))))
    assert refused(path).reason == "SourceCorrupt"


def test_without_weights(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", json.dumps(model(layer("Dense"))))
    assert "model.weights.h5" in refused(path).message


def test_a_flipped_byte_is_told(path: Path) -> None:
    write(path, model(layer("Dense")))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\x89HDF", b"\x88HDF"))
    assert refused(path).reason == "SourceCorrupt"


def test_the_format_of_old_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n")
    error = refused(path)
    assert (error.reason, "model.save('model.keras')" in error.remedy) == ("FormatUnknown", True)


def test_the_graph_alone_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    assert "name the folder" in refused(tmp_path / "saved_model.pb").remedy
