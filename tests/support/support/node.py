"""Fixtures of tests on a real node with the operator installed by its chart: one namespace a test, and tiny real models
on its volumes. A folder of tests names those that it uses in its conftest."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo import __main__ as demo
from demo.shell import CLUSTER, ROOT, Kube, run
from support.bench import CLAIMS, WATCHED, Bench, Stock
from support.janitor import Janitor
from support.models import write_models

Furnished = Callable[..., contextlib.AbstractContextManager[Bench]]


@pytest.fixture(scope="session")
def kube() -> Kube:
    """A real node. Left up: ``hack/cluster/cluster down`` ends it."""
    why_not = subprocess.run([ROOT / "hack/dev/can-run-node.sh"], capture_output=True, text=True, check=False)
    if why_not.returncode != 0:
        if os.environ.get("ENGINEWRIGHT_REQUIRE_E2E"):
            pytest.fail(f"a node must run here and cannot: {why_not.stdout.strip()}")
        pytest.skip(f"a node cannot run here: {why_not.stdout.strip()}")
    run(CLUSTER, "up", quiet=False, timeout=1800)
    return Kube.of_cluster()


@pytest.fixture(scope="session")
def images(kube: Kube) -> dict[str, str]:
    """References of the images that the node has and the operator was installed with."""
    loaded = demo.load_images()
    demo.install(kube, loaded)
    return loaded


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    write_models(directory)
    return directory


@pytest.fixture(scope="session")
def janitor(kube: Kube) -> Iterator[Janitor]:
    """Takes namespaces down while other tests run; the last test answers for what would not go."""
    with Janitor(kube) as janitor:
        yield janitor


@pytest.fixture(scope="session")
def furnished(kube: Kube, images: dict[str, str], model_files: Path, janitor: Janitor) -> Furnished:
    """Makes a namespace with a volume of models and a store that has a stock of engines; gone after its block, volumes
    and all."""

    @contextlib.contextmanager
    def make(stock: Stock | None = None) -> Iterator[Bench]:
        bench = Bench(kube, f"e2e-{uuid.uuid4().hex[:8]}", images)
        kube.make_namespace(bench.namespace)
        try:
            bench.furnish(model_files, stock)
            yield bench
        finally:
            janitor.remove(bench.namespace, CLAIMS)

    return make


@pytest.fixture
def bench(furnished: Furnished) -> Iterator[Bench]:
    """A namespace with a volume of models and an empty store."""
    with furnished() as bench:
        yield bench


@pytest.fixture
def stocked_bench(furnished: Furnished, stock: Stock) -> Iterator[Bench]:
    """The same with a store that has engines of ``tiny``, ``other`` and ``watched``: for tests of what follows a
    build."""
    with furnished(stock) as bench:
        yield bench


@pytest.fixture(scope="session")
def stock(furnished: Furnished, tmp_path_factory: pytest.TempPathFactory) -> Stock:
    """Of a namespace in which ``tiny`` and ``other`` were built, and ``tiny`` once more as ``watched``, with its
    reference."""
    with furnished() as bench:
        for name in ("tiny", "other"):
            bench.apply(name, source={"uri": f"pvc://models/{name}.onnx"})
        bench.apply("watched", **WATCHED)
        for name in ("tiny", "other", "watched"):
            bench.wait(name, "condition=EngineBuilt")
        return bench.stock(tmp_path_factory.mktemp("engines"))
