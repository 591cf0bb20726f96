"""What is measured for the record alone costs no finished build."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from enginewright_builder.contract import BuildRequest, SourceRequest
from enginewright_builder.errors import TransientError
from enginewright_builder.evidence import appraisal, finalists
from enginewright_builder.steps import Budget

REQUEST = BuildRequest(model_name="m", source=SourceRequest(uri="pvc://models/m"))
SERVER: Any = None
SWEPT: Any = SimpleNamespace(best=SimpleNamespace(concurrency=1))


def handed(plain: Any) -> Any:
    document = SimpleNamespace(request=REQUEST, hardware=SimpleNamespace(cores=2))
    return SimpleNamespace(plain=plain, requests=[], document=document)


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [TransientError("ServerDied", "it died"), httpx.ReadTimeout("timed out"),
                                   RuntimeError("of some library")])
async def test_a_comparison_that_cannot_be_measured_is_told(error: Exception, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(appraisal, "serve_plainly_on", fail)
    served, notes = await appraisal._before(SERVER, tmp_path, handed(("onnxruntime-fp32", None)), SWEPT, Budget(60), ())
    assert served is None
    assert "could not be served plainly" in notes[0]
    assert (getattr(error, "message", "") or str(error)) in notes[0]


@pytest.mark.asyncio
async def test_without_time_or_an_engine_to_compare_with_it_says_so(tmp_path: Path) -> None:
    late, notes = await appraisal._before(SERVER, tmp_path, handed(("onnxruntime-fp32", None)), SWEPT, Budget(3), ())
    assert (late, notes) == (None, ("Of the time budget 3 s were left: plain serving was not measured.",))
    none, notes = await appraisal._before(SERVER, tmp_path, handed(None), SWEPT, Budget(60), ())
    assert (none, notes) == (None, ("No candidate of full precision was built to be served plainly for comparison.",))


@pytest.mark.asyncio
@pytest.mark.parametrize(("left", "seconds"), [(1000, 2.0), (20, 1.6), (9, 1.0)])
async def test_little_time_shortens_what_is_compared_with(left: float, seconds: float, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    async def point(*_: object, **given: Any) -> float:
        return float(given["seconds"])

    monkeypatch.setattr(appraisal, "serve_plainly_on", point)
    budget = Budget(left, clock=lambda: 0.0)
    served, _ = await appraisal._before(SERVER, tmp_path, handed(("onnxruntime-fp32", None)), SWEPT, budget, ())
    assert served is not None
    assert served.point == pytest.approx(seconds)


def test_without_time_the_roofline_is_left_out() -> None:
    found = finalists.count(REQUEST, SERVER, {}, [], Budget(0))
    assert (found.work, found.notes) == (None, ("Of the time budget 0 s were left: the roofline was not measured.",))
