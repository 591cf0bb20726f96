"""Functions of the user's own: what may be declared, and what runs them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    Interface,
    Padding,
    PythonSteps,
    RuntimeRequest,
    SourceRequest,
    TaskRequest,
    TensorSpec,
    to_plain,
)
from enginewright_builder.errors import UserError
from enginewright_builder.models import load_model
from enginewright_builder.models.own_steps import OwnStepped
from enginewright_builder.models.texted import given, in_tokens
from enginewright_builder.own_steps import OWN_STEPS_FILE, is_own, of_source
from enginewright_builder.pod.python_model.own_steps import OwnSteps
from enginewright_builder.resolve import resolve
from enginewright_builder.sources.formats import locate
from support.own_steps import BOTH, LABEL, SCORES, STEPS, TEXT, TEXTS, client, evaluation, folder


def steps(preprocess: str = "", postprocess: str = "", *files: str) -> Interface:
    return Interface(inputs=(TEXT,) if preprocess else (), outputs=(LABEL, SCORES) if postprocess else (),
                     python_steps=PythonSteps(preprocess=preprocess, postprocess=postprocess, files=files))


def asked(source: Path, interface: Interface = BOTH, **more: Any) -> BuildRequest:
    return BuildRequest(model_name="m", source=SourceRequest(uri=str(source)), interface=interface, **more)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what nothing may be taken of."""
    made = folder(tmp_path_factory.mktemp("own") / "source")
    (made.parent / "outside.py").write_text("def bag(inputs): pass\n")
    (made / "broken.py").write_text("def bag(inputs:\n")
    return made


@pytest.mark.parametrize(("interface", "field", "says"), [
    (steps("absent.py:bag"), "preprocess", "the source's folder has no file absent.py"),
    (steps("steps.py:bags"), "preprocess", "steps.py has no function bags; it has bag, named, cut"),
    (steps("../outside.py:bag"), "preprocess", "names no function in a file of the source's folder"),
    (steps("/etc/outside.py:bag"), "preprocess", "names no function in a file of the source's folder"),
    (steps("broken.py:bag"), "preprocess", "broken.py is not Python of this image's version"),
    (steps("steps.py"), "preprocess", "names no function"),
    (steps("", "steps.py:absent"), "postprocess", "steps.py has no function absent"),
    (steps("steps.py:bag", "", "absent.txt"), "files[0]", "the source's folder has no file absent.txt"),
    (steps("steps.py:bag", "", "names.txt", "../outside.py"), "files[1]", "is no path below the source's folder"),
    (steps(), "", "no function is named"),
])
def test_what_the_folder_has_not_is_refused_before_a_device_is_used(interface: Interface, field: str, says: str,
                                                                    source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        resolve(asked(source, interface), tmp_path)
    assert caught.value.reason == "StepInvalid"
    assert caught.value.field == f"spec.interface.pythonSteps.{field}".rstrip(".")
    assert says in caught.value.message
    assert caught.value.remedy


def changed(side: str, **fields: Any) -> Interface:
    first, *rest = getattr(BOTH, side)
    tensors: Any = {side: (dataclasses.replace(first, **fields), *rest)}
    return dataclasses.replace(BOTH, **tensors)


@pytest.mark.parametrize(("interface", "field"), [
    (dataclasses.replace(BOTH, inputs=()), "spec.interface.inputs"),
    (dataclasses.replace(BOTH, outputs=()), "spec.interface.outputs"),
    (changed("inputs", shape=(1, 1)), "spec.interface.inputs[text].shape"),
    (changed("inputs", dtype="bfloat16"), "spec.interface.inputs[text].dtype"),
    (changed("outputs", shape=("batch",)), "spec.interface.outputs[label].shape"),
    (changed("outputs", shape=("batch", "1..4")), "spec.interface.outputs[label].shape"),
    (dataclasses.replace(BOTH, padding=Padding(mask="text")), "spec.interface.padding"),
])
def test_tensors_that_are_not_stated_are_refused(interface: Interface, field: str, source: Path, tmp_path: Path
                                                 ) -> None:
    with pytest.raises(UserError) as caught:
        resolve(asked(source, interface), tmp_path)
    assert (caught.value.reason, caught.value.field) == ("StepInvalid", field)


@pytest.mark.parametrize(("more", "field"), [
    ({"keep_reference": True}, "spec.quality"),
    ({"accuracy": AccuracyRequest(task=TaskRequest(metric="accuracy", labels="y"),
                                  evaluation=DataRequest(uri="data.jsonl"))}, "spec.accuracy.task"),
    ({"runtime": RuntimeRequest(backends=("onnxruntime",))}, "spec.interface.pythonSteps"),
])
def test_what_cannot_stand_beside_functions_is_refused(more: dict[str, Any], field: str, source: Path, tmp_path: Path
                                                       ) -> None:
    with pytest.raises(UserError) as caught:
        resolve(asked(source, **more), tmp_path)
    assert (caught.value.reason, caught.value.field) == ("StepInvalid", field)


def test_a_source_that_is_one_file_has_no_functions(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the source is one file") as caught:
        resolve(asked(source / "model.onnx"), tmp_path)
    assert "into one folder" in caught.value.remedy


def test_evaluation_data_are_what_clients_send_and_files_are_in_the_fingerprint(source: Path, tmp_path: Path) -> None:
    accuracy = AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(evaluation(tmp_path / "data.jsonl"))))
    found = resolve(asked(source, accuracy=accuracy), tmp_path / "scratch")
    assert found.evaluation is not None
    assert len(found.evaluation) == 64
    other = folder(tmp_path / "other", STEPS.replace("casefold", "lower"))
    again = resolve(asked(other, accuracy=accuracy), tmp_path / "again")
    assert again.request.fingerprint() != found.request.fingerprint()
    assert "python_steps" not in to_plain(Interface(inputs=(TEXT,))), "fingerprints without functions stay"


def test_the_source_tells_its_own_side() -> None:
    assert of_source(BOTH) is None
    assert of_source(steps("steps.py:bag")) is None
    plain = Interface(inputs=(TEXT,))
    assert of_source(plain) is plain
    behind = dataclasses.replace(BOTH, python_steps=PythonSteps(postprocess="steps.py:named"))
    assert of_source(behind) == Interface(inputs=(TEXT,))
    assert [is_own(name) for name in ("own_steps.json", "own_steps/steps.py", "model.onnx", "own_steps.py")] == [
        True, True, False, False]


def rows(*texts: str) -> Any:
    return {"text": np.array(texts, np.object_)[:, None]}


def opened(source: Path, workspace: Path, interface: Interface = BOTH) -> OwnStepped:
    workspace.mkdir(exist_ok=True)
    model = load_model(locate(source), interface, workspace)
    assert isinstance(model, OwnStepped)
    return model


def test_the_source_answers_behind_and_before_its_functions(source: Path, tmp_path: Path) -> None:
    model = opened(source, tmp_path)
    labels, scores = client(TEXTS)
    found = model.run(rows(*TEXTS))
    assert [label for label, in found["label"]] == labels
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-5, atol=1e-5)
    assert [spec.name for spec in in_tokens(model).interface.inputs] == ["bag"]
    assert given(model, rows("rain rain"))["bag"].sum() == 2


def test_a_function_finds_the_files_that_are_named_and_no_others(source: Path, tmp_path: Path) -> None:
    lacking = dataclasses.replace(BOTH, python_steps=dataclasses.replace(BOTH.python_steps or PythonSteps(),
                                                                         files=("helper.py",)))
    with pytest.raises(UserError, match=r"steps\.py does not import: FileNotFoundError") as caught:
        opened(source, tmp_path, lacking)
    assert "pythonSteps.files" in caught.value.remedy


def test_a_function_sees_no_credentials(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    prying = folder(tmp_path / "prying", "import os\nimport numpy as np\ndef bag(inputs):\n"
                    "    return {'bag': np.full((1, 32), 'AWS_SECRET_ACCESS_KEY' in os.environ, np.float32)}\n")
    model = opened(prying, tmp_path / "work", Interface(inputs=(TEXT,), python_steps=PythonSteps(
        preprocess="steps.py:bag")))
    assert model.before(rows("a"))["bag"].sum() == 0
    del source


def test_texts_that_are_not_utf_8_are_told(source: Path, tmp_path: Path) -> None:
    file = opened(source, tmp_path).files[OWN_STEPS_FILE]
    assert set(json.loads(file.read_text())) == {"preprocess", "postprocess", "takes", "answers"}
    own = OwnSteps(file)
    assert own.before({"text": np.array([[b"rain"]], np.object_)})["bag"].sum() == 1
    with pytest.raises(ValueError, match="send UTF-8"):
        own.before({"text": np.array([[b"\xff"]], np.object_)})


def test_an_answer_of_another_number_of_samples_is_no_answer(source: Path, tmp_path: Path) -> None:
    cutting = steps("", "steps.py:cut", "names.txt", "helper.py")
    cutting = dataclasses.replace(cutting, outputs=(TensorSpec(name="label", dtype="float32", shape=("batch", 4)),))
    model = opened(source, tmp_path, cutting)
    assert model.run({"bag": np.ones((1, 32), np.float32)})["label"].shape == (1, 4)
    with pytest.raises(UserError, match=r"label has the shape \[1, 4\]; return \[2, 4\]"):
        model.run({"bag": np.ones((2, 32), np.float32)})
