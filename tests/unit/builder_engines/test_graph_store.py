"""Typed graphs in the store: used again for the very same, made anew for anything else, never trusted when damaged."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest
from enginewright_builder.engine_store import folder as store
from enginewright_builder.engine_store import folder_gc as store_gc
from enginewright_builder.engine_store import graphs as graph_store
from enginewright_builder.engines import trt_graphs
from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.engines.modelopt_graphs import Job
from enginewright_builder.engines.trt_graphs import graph_key, typed_graph
from enginewright_builder.tensors import Tensors

DAY = 24 * 3600.0


def files(folder: Path, **content: bytes) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / name.replace("_", ".") for name in content]
    for path, data in zip(made, content.values(), strict=True):
        path.write_bytes(data)
    return made


def keep(root: Path, key: str, size: int = 8, used: float | None = None, most: int = graph_store.MOST_BYTES) -> str:
    problem = graph_store.save(root, key, files(root / "made" / key, model_onnx=os.urandom(size)), most)
    if used is not None:
        os.utime(root / graph_store.GRAPHS / key, (used, used))
    return problem


def there(root: Path) -> set[str]:
    folder = root / graph_store.GRAPHS
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


# The folder

def test_all_files_of_a_graph_come_back(tmp_path: Path) -> None:
    made = files(tmp_path / "made", model_onnx=b"graph", weights_data=b"w" * 3_000_000)
    assert graph_store.save(tmp_path, "k", made) == ""
    target = tmp_path / "target"
    target.mkdir()
    assert graph_store.load(tmp_path, "k", target) == graph_store.Found(here=True)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {path.name: path.read_bytes()
                                                                          for path in made}
    assert graph_store.load(tmp_path, "other", target) == graph_store.Found()


@given(data=st.data())
def test_any_byte_that_changed_is_found_and_the_graph_put_away(
        data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("graphs")
    keep(root, "k", size=64)
    path = root / graph_store.GRAPHS / "k" / "model.onnx"
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    target = root / "target"
    target.mkdir()
    found = graph_store.load(root, "k", target)
    assert not found.here
    assert "model.onnx does not have its digest" in found.problem
    assert list(target.iterdir()) == []
    assert there(root) == set()


@pytest.mark.parametrize("spoil", [
    lambda entry: (entry / "model.onnx").unlink(), lambda entry: (entry / "graph.json").unlink(),
    lambda entry: (entry / "graph.json").write_text("{"), lambda entry: (entry / "graph.json").write_text("[]"),
    lambda entry: (entry / "graph.json").write_text('{"files": 3}'),
], ids=["no graph", "no manifest", "cut manifest", "no object", "wrong manifest"])
def test_what_is_not_whole_is_put_away(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    keep(tmp_path, "k")
    spoil(tmp_path / graph_store.GRAPHS / "k")
    (tmp_path / "target").mkdir()
    assert "k is damaged" in graph_store.load(tmp_path, "k", tmp_path / "target").problem
    assert there(tmp_path) == set()
    assert keep(tmp_path, "k") == ""


def test_a_manifest_cannot_point_outside(tmp_path: Path) -> None:
    keep(tmp_path, "k")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    manifest = tmp_path / graph_store.GRAPHS / "k" / "graph.json"
    manifest.write_text(json.dumps({"files": {"../../secret": "0" * 64}}))
    (tmp_path / "target").mkdir()
    assert not graph_store.load(tmp_path, "k", tmp_path / "target").here
    assert secret.exists()


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    for name, age in (("old", 30), ("older", 40), ("young", 10)):
        assert keep(tmp_path, name, size=1000, used=time.time() - age * DAY, most=4000) == ""
    (tmp_path / "target").mkdir()
    assert graph_store.load(tmp_path, "older", tmp_path / "target").here, "which makes it the youngest"
    assert keep(tmp_path, "new", size=1000, most=3500) == ""
    assert there(tmp_path) == {"older", "young", "new"}


def size(root: Path, *names: str) -> int:
    return sum(path.stat().st_size for name in names for path in (root / graph_store.GRAPHS / name).iterdir())


@given(saves=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 900)), max_size=12))
def test_all_together_never_take_more_than_they_may(saves: list[tuple[int, int]],
                                                    tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("graphs")
    for key, bytes_ in saves:
        assert (keep(root, str(key), size=bytes_, most=800) == "") is (bytes_ <= 800)
        # The newest one's manifest is not counted before it is written.
        assert size(root, *there(root)) <= 800 + 200


def test_a_store_without_room_keeps_none_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=graph_store.SPARE_BYTES + 7))
    assert keep(tmp_path, "k") == "the store has no room to spare"
    assert there(tmp_path) == set()


def test_a_store_that_cannot_be_written_is_said_not_raised(tmp_path: Path) -> None:
    (tmp_path / graph_store.GRAPHS).write_text("a file in its place")
    assert keep(tmp_path, "k") != ""


def test_of_two_writers_the_first_wins(tmp_path: Path) -> None:
    assert graph_store.save(tmp_path, "k", files(tmp_path / "one", model_onnx=b"one")) == ""
    assert graph_store.save(tmp_path, "k", files(tmp_path / "two", model_onnx=b"two")) == ""
    assert (tmp_path / graph_store.GRAPHS / "k" / "model.onnx").read_bytes() == b"one"
    assert there(tmp_path) == {"k"}


def test_the_stores_collector_removes_what_nobody_used_for_the_grace_period(tmp_path: Path) -> None:
    caches = tmp_path / store.TIMING_CACHES
    keep(caches, "idle", used=time.time() - 8 * DAY)
    keep(caches, "used", used=time.time() - 6 * DAY)
    (caches / graph_store.GRAPHS / f".half.x{graph_store.TEMPORARY}").mkdir()
    os.utime(caches / graph_store.GRAPHS / f".half.x{graph_store.TEMPORARY}", (0, 0))
    assert store_gc.collect(tmp_path, grace_seconds=7 * DAY, remove=()).leftovers == 2
    assert there(caches) == {"used"}
    assert store_gc.collect(tmp_path, grace_seconds=0, remove=()).leftovers == 1, "a day at least"
    keep(caches, "young")
    assert store_gc.collect(tmp_path, grace_seconds=0).leftovers == 0


# The graphs

def graph(path: Path, element: int, scale: float = 1.0) -> Path:
    weight = numpy_helper.from_array(np.full((4, 4), scale, helper.tensor_dtype_to_np_dtype(element)), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    value = helper.make_tensor_value_info
    body = helper.make_graph([node], "g", [value("x", element, ["batch", 4])], [value("y", element, ["batch", 4])],
                             [weight])
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)]), str(path))
    return path


class Source:
    """A source that exports itself in half precision, and counts how often."""

    name = "stand-in"
    exports = 0

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        type(self).exports += 1
        graph(path, TensorProto.FLOAT16)


class OtherSource(Source):
    pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each precision was written, by a stand-in for ModelOpt."""
    counted: Counter[str] = Counter()

    def rewrite(job: Job, batches: Sequence[Tensors] = (), seconds: float = 0.0) -> None:
        counted[job.precision] += 1
        graph(Path(job.target), TensorProto.FLOAT16)

    monkeypatch.setattr(trt_graphs, "rewrite", rewrite)
    return counted


def setting(root: Path, **changes: Any) -> tuple[ExportedModel, BuildContext, list[str]]:
    """A build with a workspace of its own, beside the one store. ``scale`` is that of the FP32 graph's weights."""
    work = root / f"build-{next(NUMBERS)}"
    model = ExportedModel(path=graph(work / "export" / "model.onnx", TensorProto.FLOAT, changes.pop("scale", 1.0)),
                          interface=Interface(), opset=18)
    told: list[str] = []
    context = BuildContext(device=DeviceRequest(accelerator="gpu"), runtime=RuntimeRequest(), max_batch_size=4,
                           calibration=[{"x": np.ones((4, 4), np.float32)}], workspace=work,
                           timing_caches=root / "timing-caches", progress=lambda fraction, detail: told.append(detail))
    return model, replace(context, **changes), told


NUMBERS = itertools.count()


def build(precision: str, root: Path, **changes: Any) -> list[str]:
    model, context, told = setting(root, **changes)
    path = typed_graph(precision, model, context)
    assert onnx.load(str(path)).graph.initializer[0].data_type == TensorProto.FLOAT16
    assert typed_graph(precision, model, context) == path
    return told


def test_a_later_build_takes_the_graph_from_the_store(made: Counter[str], tmp_path: Path) -> None:
    build("int8", tmp_path)
    told = build("int8", tmp_path)
    assert made == {"int8": 1}
    assert told == ["the int8 graph comes from the store"]


def test_the_sources_own_export_is_kept_too(tmp_path: Path) -> None:
    Source.exports = 0
    for _ in range(2):
        build("fp16", tmp_path, source=Source())
    assert Source.exports == 1


def test_without_a_store_each_build_makes_its_own(made: Counter[str], tmp_path: Path) -> None:
    for _ in range(2):
        build("int8", tmp_path, timing_caches=None)
    assert made == {"int8": 2}


def test_a_damaged_graph_is_ignored_said_and_made_anew(made: Counter[str], tmp_path: Path) -> None:
    build("int8", tmp_path)
    stored, = (tmp_path / "timing-caches" / graph_store.GRAPHS).glob("*/model.onnx")
    stored.write_bytes(stored.read_bytes()[:-1])
    told = build("int8", tmp_path)
    assert made == {"int8": 2}
    assert any(line.startswith("typed graph ignored and made again: int8-") for line in told)
    assert build("int8", tmp_path) == ["the int8 graph comes from the store"]


CHANGES: dict[str, dict[str, Any]] = {
    "weights": {"scale": 2.0}, "calibration": {"calibration": [{"x": np.zeros((4, 4), np.float32)}]},
    "type of calibration": {"calibration": [{"x": np.ones((4, 4), np.int32)}]},
    "shape of calibration": {"calibration": [{"x": np.ones((2, 8), np.float32)}]},
    "kept layers": {"keep_precise": ("product",)}, "whose export": {"source": OtherSource()},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_it_is_made_from_makes_another_graph(change: dict[str, Any], tmp_path: Path) -> None:
    one, two, other = (setting(tmp_path, **{"source": Source(), **parts})[:2] for parts in ({}, {}, change))
    assert graph_key("int8", *one) == graph_key("int8", *two)
    assert graph_key("int8", *one) != graph_key("int8", *other)
    assert graph_key("int8", *one) != graph_key("fp8", *one)


def test_another_version_of_a_tool_makes_another_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, context, _ = setting(tmp_path)
    before = graph_key("int8", model, context)
    monkeypatch.setattr(trt_graphs, "_tool", lambda name: "0.48.0" if name == "nvidia-modelopt" else "1")
    assert graph_key("int8", model, context) != before


def test_weights_beside_the_graph_count_and_are_kept(tmp_path: Path) -> None:
    path = graph(tmp_path / "model.onnx", TensorProto.FLOAT)
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="weights.data", size_threshold=0)
    model, context, _ = setting(tmp_path)
    model = replace(model, path=path)
    before = graph_key("int8", model, context)
    weights = path.with_name("weights.data")
    weights.write_bytes(b"\1" + weights.read_bytes()[1:])
    assert graph_key("int8", model, context) != before
    assert [file.name for file in trt_graphs._files(path)] == ["model.onnx", "weights.data"]
