"""A real node with the operator installed by its chart, one namespace a test, and tiny real models on its volumes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo import __main__ as demo
from demo import volumes
from demo.shell import CLUSTER, ROOT, Kube, run
from support.bench import Bench
from support.models import write_models

E2E = pytest.mark.e2e
MODELS, STORE = "models", "enginewright-store"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(E2E)


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


@pytest.fixture
def bare_bench(kube: Kube, images: dict[str, str]) -> Iterator[Bench]:
    """A namespace without volumes; gone afterwards."""
    with namespace_of(kube, images) as bench:
        yield bench


@contextlib.contextmanager
def namespace_of(kube: Kube, images: dict[str, str]) -> Iterator[Bench]:
    namespace = f"e2e-{uuid.uuid4().hex[:8]}"
    kube.make_namespace(namespace)
    try:
        yield Bench(kube, namespace, images)
    finally:
        kube.remove_namespace(namespace)


@pytest.fixture
def bench(bare_bench: Bench, model_files: Path) -> Iterator[Bench]:
    """A namespace with a volume of models and an empty store; gone afterwards, volumes and all."""
    with furnished(bare_bench, model_files):
        yield bare_bench


@pytest.fixture
def stocked_bench(bare_bench: Bench, model_files: Path, engines: Path) -> Iterator[Bench]:
    """The same with a store that has the engines of ``tiny`` and ``other``: for tests of what follows a build."""
    with furnished(bare_bench, model_files, engines):
        yield bare_bench


@pytest.fixture(scope="session")
def engines(kube: Kube, images: dict[str, str], model_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which ``tiny`` and ``other`` were built."""
    stock = tmp_path_factory.mktemp("engines")
    with namespace_of(kube, images) as bench, furnished(bench, model_files):
        for name in ("tiny", "other"):
            bench.apply(name, source={"uri": f"pvc://models/{name}.onnx"})
        for name in ("tiny", "other"):
            bench.wait(name, "condition=EngineBuilt")
        volumes.copy(kube, bench.namespace, STORE, images["operator"], stock)
    return stock


@contextlib.contextmanager
def furnished(bench: Bench, model_files: Path, engines: Path | None = None) -> Iterator[None]:
    """Volumes of models and of engines in the namespace of ``bench``."""
    kube, namespace, image = bench.kube, bench.namespace, bench.images["operator"]
    for claim in (MODELS, STORE):
        run(CLUSTER, "volume", "create", namespace, claim, "1Gi")
    try:
        volumes.fill(kube, namespace, MODELS, image, {path.name: path for path in model_files.iterdir()})
        if engines is not None:
            volumes.fill(kube, namespace, STORE, image, {path.name: path for path in engines.iterdir()})
        yield
    finally:
        kube.remove_namespace(namespace)  # its pods, too: a volume stays while one mounts it
        for claim in (MODELS, STORE):
            run(CLUSTER, "volume", "delete", namespace, claim)
