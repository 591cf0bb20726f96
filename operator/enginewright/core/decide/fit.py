"""What can be known before a build: could the server image serve any engine that may come of it?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from enginewright.core.context import PassContext
from enginewright.core.observed import NodeView
from enginewright.core.placement import PRODUCT_LABEL, Placement
from enginewright.core.planner.models import suits
from enginewright.core.planner.nodes import product_of
from enginewright.core.reasons import Reason
from enginewright.core.server_image import driver_runs, engines_of, other_tensorrt
from enginewright.core.spec.tasks import generates
from enginewright.core.spec.text_rules import is_text
from enginewright.core.status import LibraryStatus, ServerStatus
from enginewright_builder.contract import LIB_TOKENIZERS, LIB_VLLM, RuntimeRequest

# Where GPU feature discovery says which driver a node has, and the newest CUDA that it runs.
DRIVER_LABELS = ("nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.driver.major")
CUDA_LABELS = ("nvidia.com/cuda.runtime-version.full", "nvidia.com/cuda.runtime.{}")
_NAMED = 3  # nodes that a message names before it counts


def unfit(ctx: PassContext, placement: Placement) -> tuple[str, str] | None:
    """Reason and message; None where a build may begin, as far as anybody knows."""
    server, runtime = ctx.memory.server, ctx.runtime
    if server is None or server.runtime is None or runtime is None:  # what serves was built for is all that is known
        return None
    if generates(ctx.spec):
        return _no_vllm(ctx, server) or _old_driver(ctx, server, placement)
    return (_no_tokenizer(ctx, server) or _no_python(ctx, server) or _no_engine(ctx, server, runtime, placement)
            or _old_driver(ctx, server, placement))


def left_out(ctx: PassContext, placement: Placement) -> str:
    """A sentence on plans that the server could not read; empty where there are none."""
    server = ctx.memory.server
    versions = _tensorrt(server) if server and placement.device.accelerator == "gpu" else None
    if server is None or versions is None:
        return ""
    return (f"TensorRT plans are left out: builder image {server.builder_image} writes those of TensorRT "
            f"{versions[0]}, and server image {server.image} has {versions[1]}. Give both images one version to let "
            f"them compete.")


def _no_vllm(ctx: PassContext, server: ServerStatus) -> tuple[str, str] | None:
    if LIB_VLLM in _by_name(server.libraries):
        return None
    return Reason.SERVER_IMAGE_UNFIT, (
        f"spec.task is generate, and server image {server.image} has no vLLM, which serves language models: its "
        f"libraries are {_versions(server.libraries)}. Name an image with vLLM in {field(ctx)}. No build starts.")


def _no_tokenizer(ctx: PassContext, server: ServerStatus) -> tuple[str, str] | None:
    """Only Triton's Python backend makes token ids of texts, and by one library."""
    lacks = [what for what, there in (("backend python", "python" in (server.backends or ())),
                                      ("Python package tokenizers", LIB_TOKENIZERS in _by_name(server.libraries)))
             if not there]
    if not lacks or not _texts(ctx):
        return None
    return Reason.SERVER_IMAGE_UNFIT, (
        f"spec.interface.inputs asks that the server makes token ids of texts, and server image {server.image} has no "
        f"{lacks[0]}: Triton's backends in it are {_list(server.backends)}, its libraries "
        f"{_versions(server.libraries)}. Name an image with what is missing in {field(ctx)}, or remove that input and "
        f"let clients send token ids. No build starts.")


def _no_python(ctx: PassContext, server: ServerStatus) -> tuple[str, str] | None:
    """Functions of the user's own run in one backend alone."""
    if not _own_steps(ctx) or "python" in (server.backends or ()):
        return None
    return Reason.SERVER_IMAGE_UNFIT, (
        f"spec.interface.pythonSteps names functions that run in Triton's backend python, and server image "
        f"{server.image} has none: its backends are {_list(server.backends)}. Name an image with it in {field(ctx)}, "
        f"or remove pythonSteps and let clients do what the functions do. No build starts.")


def _own_steps(ctx: PassContext) -> bool:
    return bool(ctx.spec.interface and ctx.spec.interface.python_steps)


def _texts(ctx: PassContext) -> bool:
    return any(map(is_text, ctx.spec.interface.inputs if ctx.spec.interface else ()))


def _no_engine(ctx: PassContext, server: ServerStatus, runtime: RuntimeRequest,
               placement: Placement) -> tuple[str, str] | None:
    wanted, accelerator = ctx.spec.engine.backend, placement.device.accelerator
    only_python = _texts(ctx) or _own_steps(ctx)
    possible = engines_of(replace(runtime, backends=("python",)) if only_python else runtime, accelerator)
    if possible if wanted == "auto" else wanted in possible:
        return None
    if wanted == "tensorrt" and (versions := _tensorrt(server)):
        return Reason.TENSORRT_VERSION_MISMATCH, (
            f"spec.engine.backend is tensorrt, builder image {server.builder_image} writes plans of TensorRT "
            f"{versions[0]}, and server image {server.image} reads those of {versions[1]}: give both images one "
            f"version, or write spec.engine.backend: auto. No build starts.")
    what = "any engine" if wanted == "auto" else f"an engine of spec.engine.backend {wanted}"
    return Reason.SERVER_IMAGE_UNFIT, (
        f"Server image {server.image} cannot serve {what}: Triton's backends in it are {_list(server.backends)}, its "
        f"libraries {_versions(server.libraries)}. Name an image with what is missing in {field(ctx)}"
        f"{_or_another(wanted, possible)}. No build starts.")


def field(ctx: PassContext) -> str:
    """Where the server image is named, for a message."""
    if ctx.spec.serving.image:
        return "spec.serving.image"
    return f"images.{'serverVllm' if generates(ctx.spec) else 'server'} of the operator's chart"


def _or_another(wanted: str, possible: Iterable[str]) -> str:
    others = [name for name in possible if name != wanted]
    return f", or write {' or '.join(others)} in spec.engine.backend" if others else ""


def _tensorrt(server: ServerStatus) -> tuple[str, str] | None:
    return other_tensorrt(_by_name(server.libraries), _by_name(server.builder_libraries))


def _by_name(libraries: Iterable[LibraryStatus] | None) -> Mapping[str, str]:
    return {one.name: one.version for one in libraries or ()}


def _list(names: Iterable[str] | None) -> str:
    return ", ".join(names or ()) or "none"


def _versions(libraries: Iterable[LibraryStatus] | None) -> str:
    return _list(f"{one.name} {one.version}" for one in libraries or ())


def _old_driver(ctx: PassContext, server: ServerStatus, placement: Placement) -> tuple[str, str] | None:
    """Only where every node that may serve says what it has, and none does: another node may come."""
    nodes = ctx.observed.nodes
    if not server.cuda or nodes is None or placement.device.accelerator != "gpu":
        return None
    near = [node for node in nodes if suits(node, placement) and _of_product(node, placement)]
    if not near or any(driver_runs(server.cuda, server.drivers or (), *_driver_of(node)) for node in near):
        return None
    seen = ", ".join(f"{node.name} (CUDA {_driver_of(node)[0]})" for node in near[:_NAMED])
    more = f" and {len(near) - _NAMED} more" if len(near) > _NAMED else ""
    return Reason.DRIVER_TOO_OLD, (
        f"Server image {server.image} asks for a driver that runs CUDA {server.cuda}, and the nodes that may serve it "
        f"have older ones: {seen}{more}. Upgrade their driver, or name an image for an older CUDA in {field(ctx)}. No "
        f"build starts.")


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
