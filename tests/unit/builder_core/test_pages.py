"""The code that pages show for PyTorch runs, and gives what the builder takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from enginewright_builder.models import load_model
from enginewright_builder.sources.formats import locate

pytestmark = pytest.mark.torch
PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "pytorch.md"


def test_the_exported_module_has_a_free_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, PAGE.name, "exec"), {})
    located = locate(tmp_path / "model.pt2")
    assert located.format == "exported-program"
    (tensor,) = load_model(located).interface.inputs
    assert tensor.shape[1:] == (16,)
    assert not isinstance(tensor.shape[0], int), "a batch that is fixed is refused"
