"""What can be known before a build: could the server image serve any engine that may come of it?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from enginewright.core.decide.world import World
from enginewright.core.observed import NodeView
from enginewright.core.placement import PRODUCT_LABEL, Placement
from enginewright.core.planner.models import suits
from enginewright.core.planner.nodes import product_of
from enginewright.core.reasons import Reason
from enginewright.core.server_image import driver_runs, engines_of, other_tensorrt
from enginewright.core.status import LibraryStatus, ServerStatus
from enginewright_builder.contract import ENERGY, RuntimeRequest

# Where GPU feature discovery says which driver a node has, and the newest CUDA that it runs.
DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.driver.major")
CUDA_LABELS = ("nvidia.com/cuda.runtime-version.full", "nvidia.com/cuda.runtime.{}")
_NAMED = 3  # nodes that a message names before it counts


def unfit(world: World, placement: Placement) -> tuple[str, str] | None:
    """Reason and message; None where a build may begin, as far as anybody knows."""
    told, runtime = world.memory.server, world.runtime
    if told is None or told.runtime is None or runtime is None:  # what serves was built for is all that is known
        return None
    return _no_engine(world, told, runtime, placement) or _old_driver(world, told, placement) or _not_metered(world)


def left_out(world: World, placement: Placement) -> str:
    """A sentence on plans that the server could not read; empty where there are none."""
    told = world.memory.server
    versions = _tensorrt(told) if told and placement.device.accelerator == "gpu" else None
    if told is None or versions is None:
        return ""
    return (f"TensorRT plans are left out: builder image {told.builder_image} writes those of TensorRT {versions[0]}, "
            f"and server image {told.image} has {versions[1]}. Give both images one version to let them compete.")


def _no_engine(world: World, told: ServerStatus, runtime: RuntimeRequest,
               placement: Placement) -> tuple[str, str] | None:
    wanted, accelerator = world.spec.engine.backend, placement.device.accelerator
    possible = engines_of(runtime, accelerator)
    if possible if wanted == "auto" else wanted in possible:
        return None
    if wanted == "tensorrt" and (versions := _tensorrt(told)):
        return Reason.TENSORRT_VERSION_MISMATCH, (
            f"spec.engine.backend is tensorrt, builder image {told.builder_image} writes plans of TensorRT "
            f"{versions[0]}, and server image {told.image} reads those of {versions[1]}: give both images one version, "
            f"or write spec.engine.backend: auto. No build starts.")
    what = "any engine" if wanted == "auto" else f"an engine of spec.engine.backend {wanted}"
    prover = "" if world.config.prove_in_server_image else (
        f"; the builder, which proves engines, has the backends {_list(told.builder_backends)}")
    return Reason.SERVER_IMAGE_UNFIT, (
        f"Server image {told.image} cannot serve {what}: Triton's backends in it are {_list(told.backends)}, its "
        f"libraries {_versions(told.libraries)}{prover}. Name an image with what is missing in {field(world)}"
        f"{_or_another(wanted, possible)}. No build starts.")


def field(world: World) -> str:
    """Where the server image is named, for a message."""
    return "spec.serving.image" if world.spec.serving.image else "images.server of the operator's chart"


def _or_another(wanted: str, possible: Iterable[str]) -> str:
    others = [name for name in possible if name != wanted]
    return f", or write {' or '.join(others)} in spec.engine.backend" if others else ""


def _tensorrt(told: ServerStatus) -> tuple[str, str] | None:
    return other_tensorrt(_by_name(told.libraries), _by_name(told.builder_libraries))


def _by_name(libraries: Iterable[LibraryStatus] | None) -> Mapping[str, str]:
    return {one.name: one.version for one in libraries or ()}


def _list(names: Iterable[str] | None) -> str:
    return ", ".join(names or ()) or "none"


def _versions(libraries: Iterable[LibraryStatus] | None) -> str:
    return _list(f"{one.name} {one.version}" for one in libraries or ())


def _old_driver(world: World, told: ServerStatus, placement: Placement) -> tuple[str, str] | None:
    """Only where every node that may serve says what it has, and none does: another node may come."""
    nodes = world.observed.nodes
    if not told.cuda or nodes is None or placement.device.accelerator != "gpu":
        return None
    near = [node for node in nodes if suits(node, placement) and _of_product(node, placement)]
    if not near or any(driver_runs(told.cuda, told.drivers or (), *_driver_of(node)) for node in near):
        return None
    seen = ", ".join(f"{node.name} (CUDA {_driver_of(node)[0]})" for node in near[:_NAMED])
    more = f" and {len(near) - _NAMED} more" if len(near) > _NAMED else ""
    return Reason.DRIVER_TOO_OLD, (
        f"Server image {told.image} asks for a driver that runs CUDA {told.cuda}, and the nodes that may serve it have "
        f"older ones: {seen}{more}. Upgrade their driver, or name an image for an older CUDA in {field(world)}. No "
        f"build starts.")


def _not_metered(world: World) -> tuple[str, str] | None:
    """The container that drives the server has no device, and so no counter of one."""
    if world.spec.objective.minimise != ENERGY or not world.config.prove_in_server_image:
        return None
    return Reason.ENERGY_NOT_METERED, (
        "spec.objective.minimise is energy, which no build measures while the operator's setting "
        "config.proveInServerImage is true: its prover has no device. Write spec.objective.minimise: cost, or set "
        "config.proveInServerImage to false in the operator's chart. No build starts.")


def _of_product(node: NodeView, placement: Placement) -> bool:
    products = placement.device.products
    return not products or product_of(node.labels.get(PRODUCT_LABEL, "")) in products


def _driver_of(node: NodeView) -> tuple[str, str]:
    """The newest CUDA of the node's driver, and the driver; each empty where labels do not say."""
    full, parts = CUDA_LABELS
    cuda = node.labels.get(full) or ".".join(
        filter(None, (node.labels.get(parts.format(part)) for part in ("major", "minor"))))
    driver = next(filter(None, (node.labels.get(label) for label in DRIVER_LABELS)), "")
    return (cuda if re.match(r"\d+\.\d+", cuda) else ""), driver
