"""What a source is, and what is never opened."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from enginewright_builder.errors import UserError
from enginewright_builder.sources.formats import locate


def refused(path: Path, wanted: str = "auto") -> UserError:
    with pytest.raises(UserError) as caught:
        locate(path, wanted)
    return caught.value


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(f"model/{name.replace('__', '/')}", content)
    return path


def torch_archive(path: Path) -> Path:
    """As ``torch.save`` writes since 1.6: a pickle in an archive."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model/data.pkl", pickle.dumps({}, protocol=2))
        file.writestr("model/version", "3")
    return path


def test_onnx_is_told_by_content(perceptron: Path, tmp_path: Path) -> None:
    copy = tmp_path / "anything"
    copy.write_bytes(perceptron.read_bytes())
    assert locate(copy).format == "onnx"


def test_a_folder_with_one_model_is_that_model(perceptron: Path) -> None:
    assert locate(perceptron.parent).path == perceptron


def test_huggingface_folder_ignores_pickles_beside_safetensors_and_says_so(safetensors: Callable[..., Path]) -> None:
    folder = safetensors().parent
    (folder / "config.json").write_text("{}")
    torch_archive(folder / "pytorch_model.bin")
    located = locate(folder)
    assert located.format == "huggingface"
    assert "pytorch_model.bin" in located.notes[0]


def test_a_folder_with_one_model_ignores_pickles_beside_it_and_says_so(perceptron: Path, tmp_path: Path) -> None:
    shutil.copy(perceptron, tmp_path / "net.onnx")
    for name in ("optimizer.pt", "scaler.pkl", "pytorch_model.bin"):
        torch_archive(tmp_path / name)
    located = locate(tmp_path)
    assert located.path == tmp_path / "net.onnx"
    assert located.notes == ("ignored optimizer.pt, pytorch_model.bin, scaler.pkl: net.onnx is there, and pickles are "
                             "never opened",)


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel"])
def test_a_causal_language_model_is_refused_with_the_task_to_write(name: str, safetensors: Callable[..., Path]) -> None:
    folder = safetensors().parent
    (folder / "config.json").write_text(json.dumps({"architectures": [name]}))
    error = refused(folder)
    assert (error.reason, error.field) == ("UnsupportedModel", "spec.source.uri")
    assert name in error.message
    assert "spec.task: generate" in error.remedy


def test_a_model_that_translates_is_not_causal(safetensors: Callable[..., Path]) -> None:
    folder = safetensors().parent
    (folder / "config.json").write_text(json.dumps({"architectures": ["BartForCausalLM"], "is_encoder_decoder": True}))
    assert locate(folder).format == "huggingface"


class TestPickle:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_bare(self, protocol: int, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"  # the name does not help
        path.write_bytes(pickle.dumps({"a": 1}, protocol=protocol))
        error = refused(path)
        assert error.reason == "PickleRefused"
        assert "safetensors" in error.remedy

    def test_torch_save(self, tmp_path: Path) -> None:
        assert refused(torch_archive(tmp_path / "weights.pt")).reason == "PickleRefused"

    def test_folder_with_pickled_weights_only(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("{}")
        torch_archive(tmp_path / "pytorch_model.bin")
        error = refused(tmp_path)
        assert error.reason == "PickleRefused"
        assert "pytorch_model.bin" in error.message
        assert "save_pretrained" in error.remedy


class TestExportedProgram:
    """A ``.pt2`` is data, but PyTorch's reader would run parts of it."""

    def write(self, path: Path, graph: object = None, **members: bytes) -> Path:
        body = json.dumps(graph or {"graph_module": {}}).encode()
        return archive(path, archive_format=b"pt2", **{"models__model.json": body, **members})

    def test_plain_one_is_taken(self, tmp_path: Path) -> None:
        expression = "Mul(Integer(3), Symbol('s27', positive=True, integer=True))"
        graph = {"nodes": [{"target": "torch.ops.aten.linear.default"}], "sym": {"as_expr": {"expr_str": expression}}}
        assert locate(self.write(tmp_path / "m.pt2", graph)).format == "exported-program"

    @pytest.mark.parametrize("members", [
        {"data__constants__opaque_obj_0": b"x"}, {"data__constants__custom_obj_0": b"x"},
        {"data__aotinductor__model__wrapper.so": b"x"}, {"data__weights__evil.so": b"x"},
    ])
    def test_members_that_run_are_refused(self, members: dict[str, bytes], tmp_path: Path) -> None:
        assert refused(self.write(tmp_path / "m.pt2", **members)).reason == "PickleRefused"

    @pytest.mark.parametrize("expression", [
        "__import__('os').system('true')", "exec('1')", "open('x')", "s0.__class__", "Symbol('s0').evalf()",
        "Symbol(open('x'))", "lambda: 1",
    ])
    def test_expressions_that_run_are_refused(self, expression: str, tmp_path: Path) -> None:
        graph = {"value": {"as_expr": {"expr_str": expression}}}
        assert refused(self.write(tmp_path / "m.pt2", graph)).reason == "PickleRefused"

    @pytest.mark.parametrize("target", ["os.system", "builtins.eval", "torch.load", "subprocess.run"])
    def test_calls_outside_operators_are_refused(self, target: str, tmp_path: Path) -> None:
        assert refused(self.write(tmp_path / "m.pt2", {"nodes": [{"target": target}]})).reason == "PickleRefused"

    def test_two_members_of_one_name_are_refused(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "m.pt2")
        with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("model/models/model.json", "{}")
        assert "twice" in refused(path).message

    def test_truncated_is_corrupt(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "m.pt2")
        path.write_bytes(path.read_bytes()[:-30])
        assert refused(path).reason == "SourceCorrupt"

    def test_flipped_byte_is_corrupt(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "m.pt2", data__weights__w=b"\x07" * 500)
        content = path.read_bytes()
        path.write_bytes(content.replace(b"\x07" * 500, b"\x07" * 499 + b"\x08"))
        assert refused(path).reason == "SourceCorrupt"


def test_torchscript_is_told_from_a_pickle(tmp_path: Path) -> None:
    path = archive(tmp_path / "m.pt", **{"data.pkl": b"", "constants.pkl": b"", "code____torch__.py": b"",
                                         "version": b"3"})
    assert locate(path).format == "torchscript"


class TestCorrupt:
    @pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
    def test_truncated_onnx(self, share: float, perceptron: Path, tmp_path: Path) -> None:
        content = perceptron.read_bytes()
        path = tmp_path / "cut.onnx"
        path.write_bytes(content[:int(len(content) * share)])
        assert refused(path).reason == "SourceCorrupt"

    def test_text_is_no_onnx(self, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        path.write_text("version https://git-lfs.github.com/spec/v1\n")
        assert refused(path).reason == "SourceCorrupt"

    def test_onnx_without_its_external_weights(self, perceptron: Path, tmp_path: Path) -> None:
        model = onnx.load(str(perceptron))
        onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=0)
        assert locate(tmp_path / "m.onnx").format == "onnx"
        (tmp_path / "m.data").write_bytes(b"short")
        error = refused(tmp_path / "m.onnx")
        assert error.reason == "SourceCorrupt"
        assert "m.data" in error.message

    def test_onnx_that_the_checker_refuses(self, tmp_path: Path) -> None:
        graph = helper.make_graph([helper.make_node("Relu", ["nowhere"], ["y"])], "g", [],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, str(tmp_path / "m.onnx"))
        assert "checker" in refused(tmp_path / "m.onnx").message

    @pytest.mark.parametrize("missing", [1, 16])
    def test_truncated_safetensors(self, missing: int, safetensors: Callable[..., Path]) -> None:
        folder = safetensors(missing=missing).parent
        (folder / "config.json").write_text("{}")
        error = refused(folder)
        assert error.reason == "SourceCorrupt"
        assert "promises" in error.message

    @pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 16, b"\x02\0\0\0\0\0\0\0{]"])
    def test_safetensors_with_a_broken_header(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors").write_bytes(content)
        (tmp_path / "config.json").write_text("{}")
        assert refused(tmp_path).reason == "SourceCorrupt"

    def test_missing_shard(self, safetensors: Callable[..., Path]) -> None:
        folder = safetensors("model-00001-of-00002.safetensors").parent
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {
            "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}))
        assert "model-00002-of-00002" in refused(folder).message

    def test_config_that_is_no_json(self, safetensors: Callable[..., Path]) -> None:
        folder = safetensors().parent
        (folder / "config.json").write_text("{")
        assert refused(folder).reason == "SourceCorrupt"


@pytest.mark.parametrize(("operator", "domain", "value"), [
    ("Frobnicate", "", "ai.onnx::Frobnicate"), ("Relu", "com.example", "com.example::Relu")])
def test_unknown_operator_is_named_with_its_domain(operator: str, domain: str, value: str, tmp_path: Path) -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], domain=domain)], "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
                                if domain else [helper.make_opsetid("", 17)]), str(tmp_path / "m.onnx"))
    error = refused(tmp_path / "m.onnx")
    assert (error.reason, error.value) == ("UnsupportedOperator", value)


def test_operator_inside_a_branch_is_found(tmp_path: Path) -> None:
    branch = helper.make_graph([helper.make_node("Frobnicate", [], ["b"])], "b", [],
                               [helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])])
    graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], "g",
                              [helper.make_tensor_value_info("c", TensorProto.BOOL, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    onnx.save(helper.make_model(graph), str(tmp_path / "m.onnx"))
    assert refused(tmp_path / "m.onnx").reason == "UnsupportedOperator"


@pytest.mark.parametrize(("wanted", "reason"), [("huggingface", "FormatMismatch"), ("caffe", "FormatUnknown")])
def test_stated_format_is_held_to(wanted: str, reason: str, perceptron: Path) -> None:
    error = refused(perceptron, wanted)
    assert (error.reason, error.field, error.value) == (reason, "spec.source.format", wanted)


def test_model_with_code_of_its_own_is_refused(safetensors: Callable[..., Path]) -> None:
    folder = safetensors().parent
    (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "modeling.Net"}}))
    error = refused(folder)
    assert error.reason == "UnsupportedModel"
    assert "code of its own (auto_map in config.json), which is never run" in error.message


@pytest.mark.parametrize("names", [[], ["a.onnx", "b.onnx"], ["readme.md"]])
def test_folder_that_is_no_one_model(names: list[str], tmp_path: Path, perceptron: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(perceptron.read_bytes() if name.endswith("onnx") else b"x")
    error = refused(tmp_path)
    assert error.reason == "FormatUnknown"
    assert all(name in error.message for name in names)


def test_weights_alone_are_no_model(safetensors: Callable[..., Path]) -> None:
    assert "config.json" in refused(safetensors()).remedy


def test_plain_archive_is_no_model(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("readme", "x")
    (tmp_path / "m.zip").write_bytes(buffer.getvalue())
    assert refused(tmp_path / "m.zip").reason == "FormatUnknown"
