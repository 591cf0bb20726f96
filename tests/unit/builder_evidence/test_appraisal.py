"""What is measured for the record alone costs no finished build."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from enginewright_builder.contract import BuildRequest, SourceRequest
from enginewright_builder.errors import TransientError
from enginewright_builder.evidence import appraisal


@pytest.mark.parametrize("error", [TransientError("ServerDied", "it died"), httpx.ReadTimeout("timed out"),
                                   RuntimeError("of some library")])
def test_a_comparison_that_cannot_be_measured_is_told(error: Exception, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(appraisal, "plainest", lambda built: ("onnxruntime-fp32", None))
    monkeypatch.setattr(appraisal, "serve_plainly", fail)
    climbed: Any = SimpleNamespace(built=())
    swept: Any = SimpleNamespace(best=SimpleNamespace(concurrency=1))
    request = BuildRequest(model_name="m", source=SourceRequest(uri="pvc://models/m"))
    served, notes = appraisal._before(request, climbed, swept, [], tmp_path, ())
    assert served is None
    assert "could not be served plainly" in notes[0]
    assert (getattr(error, "message", "") or str(error)) in notes[0]
