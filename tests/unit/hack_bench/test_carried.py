"""``make bench-gpu`` and ``make test-gpu`` find all that they import on a machine without a package registry: that
machine has it, or ``hack/bench/carry.sh`` carries it there."""

from __future__ import annotations

import re

import pytest

from support import carried

BENCH = carried.ROOT / "hack" / "bench"
KNOWN = set().union(*carried.listed(BENCH / "machine.txt", BENCH / "wheels.txt").values())
FOR_TESTS = KNOWN.union(*carried.listed(BENCH / "wheels-tests.txt").values())
COMMAND = "enginewright_builder.cli"
# Imported only where a build reads from a bucket, hub, signed or TensorFlow source, sends traces, has a terminal, and
# by `enginewright-build mlperf`: the builds of the benchmark and of tests/gpu do none of it.
UNUSED = {"obstore", "huggingface_hub", "model_signing", "opentelemetry", "rich",
          "h5py", "keras", "tensorflow", "tf2onnx", "mlperf_loadgen"}
GPU_TESTS = [f"gpu.{path.stem}" for path in (carried.ROOT / "tests" / "gpu").glob("*.py")]


def test_every_import_of_the_benchmark_is_there() -> None:
    modules = carried.reached(["bench.__main__"])
    assert {"bench.run", "enginewright_builder.competition.ladder", "enginewright_builder.engines.modelopt_worker",
            "enginewright_builder.engines.torch_aoti"} <= modules.keys()
    assert carried.foreign(modules, KNOWN | UNUSED) == []


def test_every_import_of_the_benchmark_of_language_models_is_there() -> None:
    """Beside vLLM, which has a folder and a process of its own, few of the wheels for builds travel."""
    script = (BENCH / "carry-llm.sh").read_text()
    names = re.search(r"^builder=\(([a-z -]+)\)$", script, re.MULTILINE)
    assert names
    lists = carried.listed(BENCH / "machine.txt", BENCH / "wheels.txt")
    few = set().union(*(lists[name] for name in [*carried.listed(BENCH / "machine.txt"), *names[1].split()]))
    modules = carried.reached(["bench.llm"])
    assert {"bench.llm_build", "bench.llm_speed", "enginewright_builder.generate.server"} <= modules.keys()
    assert carried.foreign(modules, few | UNUSED) == []
    at_once = ["bench.llm", "enginewright_builder.cli", "enginewright_builder.by_hand", "enginewright_builder.pipeline",
               "enginewright_builder.generating", "enginewright_builder.report.generation_page"]
    assert carried.import_errors(at_once, few | carried.required(carried.listed(BENCH / "machine.txt"))) == {}


def test_every_import_of_the_command_that_it_runs_is_there() -> None:
    modules = carried.reached([COMMAND])
    assert {"enginewright_builder.building", "enginewright_builder.report.page"} <= modules.keys()
    assert carried.foreign(modules, KNOWN | UNUSED) == []


def test_every_import_of_the_gpu_tests_is_there() -> None:
    modules = carried.reached(["conftest", "gpu.conftest", *GPU_TESTS])
    assert "enginewright_builder.engines.tensorrt" in modules
    assert carried.foreign(modules, FOR_TESTS | UNUSED) == []


def test_what_is_imported_later_counts_and_is_named() -> None:
    modules = carried.reached(["enginewright_builder.resolve"])
    assert ("enginewright_builder.sources.object_store", "obstore") in carried.foreign(modules, KNOWN)


@pytest.mark.torch
def test_its_modules_can_be_imported_where_nothing_else_is() -> None:
    """In a process of its own, where packages that the machine lacks cannot be found."""
    modules = [name for name in carried.reached(["bench.__main__", COMMAND]) if not name.endswith(".terminal")]
    known = KNOWN | carried.required(carried.listed(BENCH / "machine.txt"))
    assert carried.import_errors(modules, known) == {}
    (error,) = carried.import_errors(["enginewright_builder.report.page"], known - {"jinja2"}).values()
    assert error == "ModuleNotFoundError: No module named 'jinja2'"
