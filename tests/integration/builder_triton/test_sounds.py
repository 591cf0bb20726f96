"""A real tritonserver answers sounds of different length at once as it answers each alone; where padding changes what a
model hears, the build finds out, and each is served as it comes."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Interface,
    Padding,
    SourceRequest,
    TensorSpec,
)
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.models import load_model
from enginewright_builder.pipeline import run_build
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.own_metrics import PADDING, POSITIONS, total
from enginewright_builder.triton.server import TritonServer
from support.inputs import graphs

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.timeout(900)]
transformers = pytest.importorskip("transformers")
KERNEL, STRIDE = 25, 10
# Sounds of less than half a second: long enough for a few frames.
SHORTEST, LONGEST = 800, 6000
NOT_JOINED = "Requests of different length are not joined"
NAMED = Interface(inputs=tuple(TensorSpec(name=name, dtype=dtype, shape=("batch", "400..480000")) for name, dtype in (
    ("input_values", "float32"), ("attention_mask", "int64"))))


def wav2vec2(norm: str) -> Callable[[Path], Path]:
    """With CTC's head. ``norm``: of each frame (``layer``), or over the whole sound (``group``)."""
    def write(folder: Path) -> Path:
        import torch

        torch.manual_seed(0)
        transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(16,) * 7,
            num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, vocab_size=32, feat_extract_norm=norm,
            do_stable_layer_norm=norm == "layer")).eval().save_pretrained(folder / "source")
        return folder / "source"

    return write


def convolution(folder: Path) -> Path:
    onnx.save(graphs.sound(KERNEL, STRIDE), folder / "m.onnx")
    return folder / "m.onnx"


def sounds(count: int, seed: int, *, masked: bool) -> list[Tensors]:
    rng = np.random.default_rng(seed)
    waves = [rng.standard_normal((1, length)).astype(np.float32) for length in rng.integers(SHORTEST, LONGEST, count)]
    return [{"input_values": wave, **({"attention_mask": np.ones(wave.shape, np.int64)} if masked else {})}
            for wave in waves]


def build(folder: Path, source: Path, interface: Interface | None, *, masked: bool) -> Path:
    """The folder of the engine."""
    lines = [json.dumps({name: array[0].tolist() for name, array in one.items()})
             for one in sounds(72, 3, masked=masked)]
    (folder / "sounds.jsonl").write_text("\n".join(lines))
    request = BuildRequest(
        model_name="speech", source=SourceRequest(uri=str(source)), store_path=str(folder / "store"),
        interface=interface,
        engine=EngineRequest(precision="fp32", fallback="source", max_batch_size=8, build_budget_seconds=900),
        accuracy=AccuracyRequest(tolerance=0.05, evaluation=DataRequest(uri=str(folder / "sounds.jsonl"))))
    outcome = run_build(request, folder / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None, outcome.error
    return folder / "store" / outcome.fingerprint


@pytest.mark.parametrize(("make", "interface", "masked", "rule"), [
    (wav2vec2("layer"), Interface(padding=Padding(mask="attention_mask")), True, [1, 320, -80]),
    (convolution, None, False, [1, STRIDE, STRIDE - KERNEL])], ids=["with a mask", "without one"])
async def test_sounds_beside_others_are_heard_as_alone(make: Callable[[Path], Path], interface: Interface | None,
                                                       masked: bool, rule: list[int], tmp_path: Path) -> None:
    source = make(tmp_path)
    built = await asyncio.to_thread(build, tmp_path, source, interface, masked=masked)
    model = built / "model_repository/model"
    described = json.loads((model / "1/engines.json").read_text())["lengths"]
    assert described["frames"] == {"logits": [rule]}
    config = parse_text((model / "config.pbtxt").read_text())
    assert all(one.allow_ragged_batch for one in config.input)
    report = json.loads((built / "build-report.json").read_text())
    assert report["performance"]["joining"]["padding"] is not None
    assert not [note for note in report["notes"] if NOT_JOINED in note]

    _let_padding_be_cheap(model / "1/engines.json")
    given = sounds(32, 5, masked=masked)
    opened = load_model(locate(source), interface, tmp_path)
    wanted = [opened.run(one)["logits"] for one in given]
    answers, page, executions = await _at_once(built, given)
    assert executions < len(given), "no two sounds of different length shared an execution"
    _same(answers, wanted)
    assert total(page, POSITIONS) > 0
    assert total(page, PADDING) > 0
    await _refuses_what_is_too_short(built, given, rule)


@pytest.mark.parametrize(("interface", "masked"), [(NAMED, True), (None, False)], ids=["with a mask", "without one"])
async def test_sounds_that_padding_changes_are_heard_each_as_it_comes(interface: Interface | None, masked: bool,
                                                                      tmp_path: Path) -> None:
    """The norm over the whole sound counts silence, whatever the mask says."""
    source = wav2vec2("group")(tmp_path)
    built = await asyncio.to_thread(build, tmp_path, source, interface, masked=masked)
    model = built / "model_repository/model"
    assert "lengths" not in json.loads((model / "1/engines.json").read_text())
    assert not any(one.allow_ragged_batch for one in parse_text((model / "config.pbtxt").read_text()).input)
    notes = json.loads((built / "build-report.json").read_text())["notes"]
    assert [note for note in notes if f"{NOT_JOINED}: padded, output 'logits' differs by" in note]

    given = sounds(12, 6, masked=masked)
    opened = load_model(locate(source), interface, tmp_path)
    answers, _, _ = await _at_once(built, given)
    _same(answers, [opened.run(one)["logits"] for one in given])


def _let_padding_be_cheap(file: Path) -> None:
    """The build timed what a run costs, and on a busy machine found that it may cost nothing; then no sound is
    filled up. Here a run costs more than any padding."""
    described = json.loads(file.read_text())
    described["lengths"]["run_positions"] = 1e9
    file.unlink()
    file.write_text(json.dumps(described))


async def _refuses_what_is_too_short(built: Path, given: Sequence[Tensors], rule: Sequence[int]) -> None:
    """For itself: those beside it are answered."""
    _, stride, offset = rule
    short = {name: array[:, :stride - offset - 1] for name, array in given[0].items()}
    async with (TritonServer(built / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        answers = await asyncio.gather(*(channels.call(encode("model", one).payload, 60.0)
                                         for one in (short, *given[:4])), return_exceptions=True)
    assert f"the model takes at least {stride - offset}" in str(answers[0])
    assert not [answer for answer in answers[1:] if isinstance(answer, BaseException)]


def _same(answers: Sequence[Array], wanted: Sequence[Array]) -> None:
    for mine, expected in zip(answers, wanted, strict=True):
        assert mine.shape == expected.shape
        np.testing.assert_allclose(mine, expected, atol=1e-3)


async def _at_once(built: Path, given: Sequence[Tensors]) -> tuple[list[Array], str, int]:
    """Answers, the server's metrics, and how often the engine ran: a client without processor time sends one after
    another, so some rounds are tried."""
    async with (TritonServer(built / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        async def asked(inputs: Tensors) -> Array:
            return decode(await channels.call(encode("model", inputs).payload, 60.0))["logits"]

        executions = len(given)
        before: Any = await server.statistics("model")
        for _ in range(20):
            answers = await asyncio.gather(*map(asked, given))
            after: Any = await server.statistics("model")
            executions, before = after["execution_count"] - before["execution_count"], after
            page = await server.metrics()
            if executions < len(given) and total(page, PADDING) > 0:
                break
        return list(answers), page, executions
