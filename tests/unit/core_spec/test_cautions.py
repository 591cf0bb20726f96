"""What validate warns of: valid, and seldom meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.cautions import cautions

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
EVALUATED = {"accuracy": {"evaluation": {"uri": "pvc://models/evaluation.npz"}}}
PRODUCT = "NVIDIA-H100-80GB-HBM3"
EVALUATION, PRODUCTS = "spec.accuracy.evaluation", "spec.placement.gpu.product"


def fields(raw: dict[str, Any]) -> list[str]:
    spec = parse_spec({"source": {"uri": "pvc://models/a"}, **raw})
    assert isinstance(spec, Spec), spec
    return [caution.field for caution in cautions(spec)]


@pytest.mark.parametrize(("raw", "expected"), [
    ({}, [EVALUATION, PRODUCTS]),
    ({"placement": {"accelerator": "cpu"}}, [EVALUATION]),
    ({"placement": {"gpu": {"product": PRODUCT}}}, [EVALUATION]),
    ({**EVALUATED, "placement": {"accelerator": "cpu"}}, []),
    ({**EVALUATED, "placement": {"gpu": {"product": PRODUCT}}}, []),
    ({**EVALUATED, "placement": {"gpu": {"count": 2}}}, [PRODUCTS]),
    ({**EVALUATED, "placement": {"mig": {"profile": "1g.10gb"}}}, [PRODUCTS]),
    ({**EVALUATED, "placement": {"classes": [
        {"name": "a", "gpu": {"product": PRODUCT}}, {"name": "b"}, {"name": "c", "accelerator": "cpu"}]}},
     ["spec.placement.classes[1].gpu.product"]),
    ({**EVALUATED, "placement": {"accelerator": "cpu"}, "rollout": {"steps": [{"weight": 50}, {"weight": 100}]}},
     ["spec.rollout.steps[1].weight"]),
    ({**EVALUATED, "placement": {"accelerator": "cpu"}, "rollout": {"steps": [{"weight": 50}, {"weight": 99}]}}, []),
])
def test_what_is_left_out(raw: dict[str, Any], expected: list[str]) -> None:
    assert fields(raw) == expected


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_no_example_needs_a_warning(path: Path) -> None:
    assert fields(yaml.safe_load(path.read_text())["spec"]) == []


def test_a_warning_says_what_comes_of_it_and_what_to_write() -> None:
    spec = parse_spec({"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"}})
    assert isinstance(spec, Spec)
    assert str(cautions(spec)[0]) == (
        "spec.accuracy.evaluation: is left out, so the build makes inputs up, and proves accuracy on those alone "
        "(VerifiedOnSyntheticData); give the uri of samples like production's, .npz or .jsonl")
