"""What two images have, told in the operator's words; what the server's image wrote is a stranger's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder import ask, examine
from enginewright_builder.contract import LIBRARIES, TERMINATION_MESSAGE_BYTES, Facts, ImageFacts, Outcome

# As NVIDIA's images of CUDA say it, and one of its framework images.
CUDA_12_6 = ("cuda>=12.6 brand=unknown,driver>=470,driver<471 brand=grid,driver>=470,driver<471 "
             "brand=tesla,driver>=535,driver<536 brand=tesla,driver>=550,driver<551")


def found(**changes: Any) -> dict[str, Any]:
    return {"devices": [], "driver": "", "cuda": "", "architecture": "x86_64", "python": "3.12.3",
            "libraries": [{"name": "TensorRT", "version": "10.5.0", "lacks": []},
                          {"name": "ONNX Runtime", "version": "", "lacks": []},
                          {"name": "ModelOpt", "version": "0.46.0", "lacks": []}],
            "compiler": "", "tritonserver": "2.51.0", "backends": ["tensorrt", "python", "onnxruntime"],
            "cuda_version": "", "cuda_asked": "", "cuda_compat": False, **changes}


def test_the_pod_of_an_ask_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three steps as the containers run them; here all are this very Python."""
    program, facts, told = tmp_path / "program", tmp_path / "facts.json", tmp_path / "termination-log"
    program.mkdir()
    assert ask.main(["--leave", str(program)]) == 0
    subprocess.run([sys.executable, "-m", "enginewright_builder.examine", str(facts)], check=True, timeout=240,
                   cwd=tmp_path, env={"PYTHONPATH": str(program), "PATH": os.environ["PATH"]})
    monkeypatch.setenv("ENGINEWRIGHT_TERMINATION_LOG", str(told))
    assert ask.main(["--facts", str(facts)]) == 0
    outcome = Outcome.from_json(told.read_text())
    assert outcome.kind == "ask"
    assert outcome.facts
    assert outcome.facts.server == outcome.facts.builder
    assert outcome.facts.builder.libraries["ONNX Runtime"]


def test_what_matters_is_told_in_one_order() -> None:
    assert ask.image_facts(found()) == ImageFacts(
        architecture="x86_64", python="3.12.3", tritonserver="2.51.0", backends=("onnxruntime", "python", "tensorrt"),
        libraries={"TensorRT": "10.5.0"})


@pytest.mark.parametrize(("said", "cuda", "drivers"), [
    ({}, "", ()),
    ({"cuda_asked": CUDA_12_6}, "12.6", ("470", "535", "550")),
    ({"cuda_asked": "cuda>=9.0", "cuda_version": "12.6.2.004"}, "9.0", ()),
    ({"cuda_asked": "cuda>=12.6 cuda>=11.8,brand=tesla"}, "11.8", ()),
    ({"cuda_version": "13.1.80"}, "13.0", ()),
    ({"cuda_version": "12.6.2.004", "cuda_compat": True}, "", ()),
    ({"cuda_asked": "nonsense driver>=x", "cuda_version": "?"}, "", ()),
])
def test_what_an_image_asks_of_a_driver(said: dict[str, Any], cuda: str, drivers: tuple[str, ...]) -> None:
    facts = ask.image_facts(found(**said))
    assert (facts.cuda, facts.drivers) == (cuda, drivers)


def test_an_image_tells_its_own_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_REQUIRE_CUDA", CUDA_12_6)
    monkeypatch.setenv("CUDA_VERSION", "12.6.2")
    facts = examine.examine()
    assert (facts.cuda_asked, facts.cuda_version) == (CUDA_12_6, "12.6.2")


@pytest.mark.parametrize(("text", "said"), [
    ("", "Expecting value"),
    ("[1]", "expected an object"),
    ("[" * 50_000, "nested too deep"),
    ('{"backends": ' + "9" * 5000 + ', "libraries": []}', "digits"),
    (json.dumps(found(backends="python")), "backends: expected a list"),
    (json.dumps(found(backends=["python"] * 13)), "at most 12 names"),
    (json.dumps(found(backends=["../etc"])), "backends: got '../etc'"),
    (json.dumps(found(backends=["\x1b[31mred"])), r"backends: got '\x1b[31mred'"),
    (json.dumps(found(backends=[{"name": "x"}])), "backends: got {"),
    (json.dumps(found(caches=["local"] * 5)), "caches: expected a list of at most 4 names"),
    (json.dumps(found(libraries={"TensorRT": "1"})), "libraries: expected a list"),
    (json.dumps(found(libraries=["TensorRT"])), "libraries: expected a list of objects"),
    (json.dumps(found(libraries=[{"name": "TensorRT", "version": "1\n2"}])), r"version: got '1\n2'"),
    (json.dumps(found(python="3" * 33)), "python: got '333"),
    (json.dumps(found(tritonserver=7)), "tritonserver: got 7"),
])
def test_what_makes_no_sense_is_told_shortly_and_without_control_characters(
    text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "facts.json").write_text(text)
    outcome = ask.ask(tmp_path / "facts.json")
    assert outcome.error
    assert (outcome.error.family, outcome.error.reason) == ("user", "ServerImageUnfit")
    assert said in outcome.error.message
    assert outcome.error.message.isprintable()
    assert len(outcome.error.message) < 400


def test_the_longest_facts_fit_into_a_termination_message() -> None:
    libraries = [{"name": name, "version": "9" * 32} for name in LIBRARIES]
    facts = ask.image_facts(found(
        backends=[f"{number:032}" for number in range(ask.MOST_BACKENDS)], libraries=libraries, python="3" * 32,
        tritonserver="2" * 40, architecture="a" * 32,
        caches=[f"{number:032}" for number in range(ask.MOST_CACHES)],
        cuda_asked="cuda>=123.456 " + " ".join(f"driver>={branch}" for branch in range(1000, 1060))))
    message = Outcome(kind="ask", ok=True, facts=Facts(server=facts, builder=facts)).to_termination_message()
    assert len(message.encode()) <= TERMINATION_MESSAGE_BYTES
    assert Outcome.from_json(message).facts == Facts(server=facts, builder=facts)
