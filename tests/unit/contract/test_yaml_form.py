"""Values in messages stand there as users write them, not as Python prints them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from enginewright_builder.contract import as_written, quoted
from enginewright_builder.errors import UserError


@pytest.mark.parametrize(("value", "written"), [
    (None, "null"), (True, "true"), (7, "7"), (0.5, "0.5"), (math.inf, ".inf"), ("a b", "a b"), (b"\xff y", "\ufffd y"),
    (Path("/m/x.onnx"), "/m/x.onnx"), (["batch", 3, None], "[batch, 3, null]"), ((1, 2), "[1, 2]"),
    (["true", "7", "a: b", "é"], '["true", "7", "a: b", "é"]'),
    ({"a": 1, "b": [False]}, "{a: 1, b: [false]}"), ([], "[]"),
])
def test_a_value_is_as_in_yaml(value: object, written: str) -> None:
    assert as_written(value) == written


@pytest.mark.parametrize("value", [True, None, 3, [1, "two", None, {"x": "no"}], {"1": "on", "k": [[]]}, -math.inf])
def test_yaml_reads_it_as_it_was(value: object) -> None:
    assert yaml.safe_load(as_written(value)) == value


def test_a_text_alone_may_stand_in_quotes() -> None:
    assert (quoted("7"), quoted(7), quoted(False)) == ("'7'", "7", "false")


@pytest.mark.parametrize(("value", "told"), [(None, ""), (True, "true"), ((1, "batch"), "[1, batch]"), ("x", "x")])
def test_an_error_has_its_value_so(value: object, told: str) -> None:
    assert UserError("RequestInvalid", "is wrong", value=value).report().value == told
