"""The monitor's turn: what it survives, what it removes, and what it reports of its window's age."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from enginewright_builder.accuracy.scores import Usual
from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.quality import monitor as monitor_module
from enginewright_builder.quality import tap as tap_module
from enginewright_builder.quality.__main__ import keep_running, memory_bytes
from enginewright_builder.quality.kept import NORM_SAMPLES, usual_answers
from enginewright_builder.quality.monitor import Monitor
from enginewright_builder.quality.reference import About, Reference
from enginewright_builder.quality.tap import Tap
from enginewright_builder.quality.trace import INPUT, OUTPUT
from enginewright_builder.quality.window import Window
from enginewright_builder.tensors import Tensors

SECRET = 424242


class Source:
    """Answers what it is asked, and refuses 424242 as ONNX Runtime refuses an index: with the value."""

    about = SimpleNamespace(metric="cosine", tolerance=0.01)

    def __init__(self, error: type[Exception] = RuntimeError) -> None:
        self.error = error

    def answer(self, inputs: Tensors) -> Tensors:
        if SECRET in inputs["x"]:
            raise self.error(f"indices element out of data bounds, idx={SECRET}")
        return {"y": inputs["x"]}


class Closed(Tap):
    def open(self, seconds: float) -> int:
        return 0


def traced(folder: Path, number: int, value: float) -> Path:
    path = folder / f"trace.json.{number}"
    path.write_text(json.dumps([{"id": 1, "activity": activity, "tensor": {
        "name": name, "data": str(value), "shape": "1,1", "dtype": "FP32"}}
        for activity, name in ((INPUT, "x"), (OUTPUT, "y"))], separators=(",", ":")))
    return path


def monitor(folder: Path, clock: list[float], error: type[Exception] = RuntimeError) -> Monitor:
    tap = Closed("m", folder, share=1, per_minute=60, port=1)
    return Monitor(cast(Reference, Source(error)), tap, Window("cosine", 100), lambda: clock[0])


@pytest.mark.parametrize("error", [RuntimeError, ValueError, MemoryError, KeyError])
def test_a_request_that_cannot_be_scored_costs_neither_the_window_nor_its_secrets(
        error: type[Exception], tmp_path: Path, caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str]) -> None:
    found = monitor(tmp_path, [0.0], error)
    for number, value in enumerate((1, SECRET, SECRET, 3)):
        traced(tmp_path, number, value)
    with caplog.at_level(logging.DEBUG):
        found.look()
    told = found.snapshot()
    assert (told.report.samples, told.report.total, told.report.requests, told.skipped) == (2, 2.0, 4, 2)
    assert told.report.problem == "", "the newest one was scored"
    assert caplog.messages == [f"a sampled request cannot be scored: {error.__name__}"]
    assert str(SECRET) not in caplog.text + "".join(capfd.readouterr())
    assert not list(tmp_path.iterdir())


def test_while_none_can_be_scored_it_says_so(tmp_path: Path) -> None:
    found = monitor(tmp_path, [0.0])
    traced(tmp_path, 1, SECRET)
    found.look()
    assert found.snapshot().report.problem == "sampled requests cannot be scored: RuntimeError"
    assert found.snapshot().report.samples == 0


def test_a_file_too_large_to_parse_is_not_met_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = traced(tmp_path, 1, 1)

    def parse(text: bytes, computed: str, expected: object) -> None:
        assert not path.exists(), "it is removed before it is parsed"
        raise MemoryError

    monkeypatch.setattr(tap_module, "read_traces", parse)
    found = monitor(tmp_path, [0.0])
    found.look()
    assert found.snapshot().skipped == 1
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_held_is_removed_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = traced(tmp_path, 1, 1)

    def read(path: Path) -> bytes:
        raise MemoryError

    monkeypatch.setattr(Path, "read_bytes", read)
    found = monitor(tmp_path, [0.0])
    found.look()
    assert path.exists(), "it may have been half-written"
    found.look()
    assert not path.exists()
    assert found.snapshot().skipped == 1


def test_half_a_file_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = traced(tmp_path, 1, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    found = monitor(tmp_path, [0.0])
    found.look()
    assert (found.snapshot().report.samples, found.snapshot().skipped) == (0, 0)
    path.write_bytes(whole)
    found.look()
    assert (found.snapshot().report.samples, found.snapshot().skipped) == (1, 0)


def test_a_report_has_the_age_of_its_newest_sample(tmp_path: Path) -> None:
    clock = [100.0]
    found = monitor(tmp_path, clock)
    assert found.snapshot().report.age_seconds == 0.0
    traced(tmp_path, 1, 1)
    found.look()
    clock[0] = 800.0
    traced(tmp_path, 2, SECRET)
    found.look()
    assert found.snapshot().report.age_seconds == 700.0
    traced(tmp_path, 3, 1)
    found.look()
    assert found.snapshot().report.age_seconds == 0.0


@pytest.mark.parametrize(("metric", "shapes", "measured"), [
    ("spearman", [("batch", 2)], False), ("spearman", [("batch",), ("batch", 1, 2)], False),
    ("spearman", [("batch", 3)], True), ("spearman", [("batch", "length")], True),
    ("spearman", [("batch", 1), ("batch", 9)], True), ("cosine", [("batch", 1)], True),
])
def test_spearman_of_narrow_outputs_is_said_not_to_be_measured(
        metric: str, shapes: list[tuple[int | str, ...]], measured: bool) -> None:
    outputs = tuple(TensorSpec(name=f"y{index}", dtype="float32", shape=shape) for index, shape in enumerate(shapes))
    problem = About(metric=metric, tolerance=0.01, interface=Interface(outputs=outputs)).problem
    assert (not problem) is measured
    assert measured or "spearman cannot be measured" in problem


def test_norms_are_taken_of_no_more_answers_than_are_needed() -> None:
    asked = []

    def answers() -> object:
        for size in (1.0, 2.0, np.nan, 7.0):
            asked.append(size)
            yield {"y": np.full((NORM_SAMPLES // 3 + 1, 1), size, np.float32)}

    assert usual_answers(answers()) == {"y": Usual(size=1.5, level=pytest.approx(2.5 ** 0.5))}  # type: ignore[arg-type]
    assert asked[:2] == [1.0, 2.0]
    assert 7.0 not in asked
    assert usual_answers([]) == {}
    assert usual_answers([{"y": np.array([["cat"], ["dog"]], object)}]) == {"y": Usual()}, "texts have no size"
    chances = np.array([[0.1], [1.0], [np.nan]], np.float32)
    assert usual_answers([{"y": chances}])["y"].threshold == 0.5
    assert usual_answers([{"y": chances}, {"y": chances + 1}])["y"].threshold == 0.0
    assert usual_answers([{"y": np.repeat(chances, 2, axis=1)}])["y"].threshold == 0.0


@pytest.mark.parametrize(("file", "text", "allowed"), [
    ("memory.max", "2147483648\n", 1825361101), ("memory/memory.limit_in_bytes", "2147483648\n", 1825361101),
    ("memory.max", f"{256 << 20}\n", 208 << 20), ("memory.max", "1", 1), ("memory.max", "max\n", 0),
    ("nothing", "1", 0)])
def test_the_containers_limit_is_found_in_both_versions_of_cgroups(file: str, text: str, allowed: int,
                                                                   tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert memory_bytes(tmp_path) == allowed


def test_what_needs_too_much_memory_fails_by_itself_and_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    """Not by the kernel, which could take the container, and so the replica, along. Nor may it leave a core."""
    stop = threading.Event()
    code = ("import resource, sys; print('core', resource.getrlimit(resource.RLIMIT_CORE), flush=True)\n"
            "try: bytearray(200 << 20)\nexcept MemoryError: sys.exit(7)")
    monitors = threading.Thread(target=keep_running, args=([sys.executable, "-c", code], stop, 100 << 20))
    monitors.start()
    said, deadline = "", time.monotonic() + 60
    try:
        while "ended" not in said and time.monotonic() < deadline:
            stop.wait(0.05)
            said += "".join(capfd.readouterr())
    finally:
        stop.set()
        monitors.join()
    assert "core (0, 0)" in said
    assert "ended with status 7, with 100 MiB of spec.quality.resources.limits.memory" in said


@pytest.mark.parametrize(("error", "said"), [
    (MemoryError(), "MemoryError; raise spec.quality.resources.limits.memory"),
    (RuntimeError("Load model failed:std::bad_alloc"),
     "Load model failed:std::bad_alloc; raise spec.quality.resources.limits.memory"),
    (RuntimeError("no such operator"), "no such operator")])
def test_want_of_memory_is_told_with_what_to_raise(
        error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    def idle(metric: str, tolerance: float, problem: str, port: int) -> int:
        assert problem == f"the source model does not run here: {said}"
        return 7

    (tmp_path / "reference.json").write_text(json.dumps({"metric": "cosine", "tolerance": 0.1, "interface": {}}))
    monkeypatch.setattr(monitor_module, "Reference", fail)
    monkeypatch.setattr(monitor_module, "idle", idle)
    assert monitor_module.main([str(tmp_path), "--model=m", "--traces=t", "--share=1", "--per-minute=1", "--window=1",
                                "--port=0"]) == 7
