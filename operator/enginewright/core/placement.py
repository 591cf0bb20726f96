"""From what the user asks of the hardware to what pods and the build request say.

Resource names and node labels are those of NVIDIA's device plugin and GPU feature discovery (NVIDIA/k8s-device-plugin:
README, internal/rm, internal/lm); attributes of claimed devices those of kubernetes-sigs/dra-driver-nvidia-gpu.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from enginewright.core import mig
from enginewright.core.config import OperatorConfig
from enginewright.core.problems import Problem
from enginewright.core.spec import MIGSpec, Spec
from enginewright_builder.contract import DeviceRequest

GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MIG_STATE_LABEL = "nvidia.com/mig.config.state"
ARCH_LABEL = "kubernetes.io/arch"
GPU_TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
DRA_DRIVER = "gpu.nvidia.com"


@dataclass(frozen=True, kw_only=True)
class DeviceClaim:
    """A slice claimed by Dynamic Resource Allocation. ``expression`` is the CEL selector on the device."""

    device_class: str
    expression: str
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Placement:
    """``limits`` are the extended resources of one pod; ``description`` is for people (``H200 1g.18gb``, ``CPU``).

    ``node_affinity`` is a required node selector for what equality cannot say: one of several products.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: Mapping[str, Any] | None = None
    tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class_name: str = ""
    claim: DeviceClaim | None = None
    device: DeviceRequest = field(default_factory=DeviceRequest)
    description: str = "CPU"


def place(spec: Spec, source_bytes: int, config: OperatorConfig) -> Placement | Problem:
    """Where pods of ``spec`` run. ``source_bytes`` (of the resolved source; 0 when not resolved yet) sizes
    ``mig.profile: auto``. A problem when no profile fits or the spec names what does not exist."""
    if spec.placement.accelerator == "cpu":
        return _cpu(spec)
    slices = spec.placement.mig
    if slices is None:
        return _whole_gpus(spec, config)
    chosen = _profile(spec, slices, source_bytes)
    if isinstance(chosen, Problem):
        return chosen
    return _claimed_slice(spec, slices, chosen) if slices.dra else _plugin_slice(spec, slices, chosen, config)


def pinned(placement: Placement, device: str) -> Placement:
    """``placement`` on nodes of the product that an engine was built on: of several products that would do, an engine
    runs as proven on that one alone. ``device`` is the product's name as the driver gives it (``NVIDIA H200``): only
    that was seen, a name without spaces merely repeats what was asked for."""
    if placement.node_affinity is None or " " not in device:
        return placement
    wanted = device.replace(" ", "-")
    values = [value for term in placement.node_affinity["nodeSelectorTerms"]
              for value in term["matchExpressions"][0]["values"] if value.partition("-MIG-")[0] == wanted]
    if not values:
        return placement
    selector = {PRODUCT_LABEL: values[0], **placement.node_selector}
    return replace(placement, node_selector=selector, node_affinity=None)


def _cpu(spec: Spec) -> Placement:
    selector = dict(spec.placement.node_selector)
    return Placement(node_selector=selector, tolerations=_tolerations(spec),
                     device=DeviceRequest(architecture=selector.get(ARCH_LABEL, "amd64")))


def _whole_gpus(spec: Spec, config: OperatorConfig) -> Placement:
    products = _products(spec)
    count = spec.placement.gpu.count if spec.placement.gpu else 1
    selector, affinity = _nodes(spec, products)
    several = f"{count}× " if count > 1 else ""
    return Placement(
        limits={GPU_RESOURCE: str(count)}, node_selector=selector, node_affinity=affinity,
        tolerations=(GPU_TOLERATION, *_tolerations(spec)), runtime_class_name=config.runtime_class_name,
        device=_device(spec, "", count, min((_board_bytes(product) for product in products), default=0)),
        description=several + _names(products))


def _plugin_slice(spec: Spec, slices: MIGSpec, profile: str, config: OperatorConfig) -> Placement:
    label = profile.replace("+", ".")  # as the plugin writes it: + is not allowed in names and labels
    single = slices.strategy == "single"
    products = _products(spec)
    selector, affinity = _nodes(spec, [f"{product}-MIG-{label}" for product in products] if single else products)
    if config.require_mig_config_state:
        selector.setdefault(MIG_STATE_LABEL, "success")
    return Placement(
        limits={GPU_RESOURCE if single else f"nvidia.com/mig-{label}": "1"},
        node_selector=selector, node_affinity=affinity,
        tolerations=(GPU_TOLERATION, *_tolerations(spec)), runtime_class_name=config.runtime_class_name,
        device=_device(spec, profile, 1, _slice_bytes(products, profile)), description=f"{_names(products)} {profile}")


def _claimed_slice(spec: Spec, slices: MIGSpec, profile: str) -> Placement:
    """Products are selected on the device, not by node labels: feature discovery need not run beside the DRA driver."""
    products = _products(spec)
    attributes = f"device.attributes['{DRA_DRIVER}']"
    expression = f"{attributes}.profile == '{profile}'"
    if products:
        known = ", ".join(f"'{product}'" for product in products)
        expression += f" && {attributes}.productName.replace(' ', '-') in [{known}]"
    selector, _ = _nodes(spec, ())
    device_class = slices.dra.device_class_name if slices.dra else ""
    return Placement(
        node_selector=selector, tolerations=(GPU_TOLERATION, *_tolerations(spec)),
        claim=DeviceClaim(device_class=device_class, expression=expression),
        device=_device(spec, profile, 1, _slice_bytes(products, profile)), description=f"{_names(products)} {profile}")


def _profile(spec: Spec, slices: MIGSpec, source_bytes: int) -> str | Problem:
    """The profile that is asked for, or the smallest that fits on every product named."""
    if slices.profile != "auto":
        return slices.profile
    engine = spec.engine
    need = mig.estimate_need(source_bytes, engine.precision, engine.max_batch_size)
    chosen = {product: mig.smallest_profile(product, need) for product in _products(spec)}
    for reason in chosen.values():
        if isinstance(reason, str):
            return Problem(field="spec.placement.mig.profile", value='"auto"', message=reason,
                           remedy="name a larger GPU in spec.placement.gpu.products, lower "
                                  "spec.engine.maxBatchSize, or "
                                  "name a profile yourself")
    names = {profile.name for profile in chosen.values() if not isinstance(profile, str)}
    if len(names) != 1:
        found = ", ".join(f"{product}: {profile.name}" for product, profile in chosen.items()
                          if not isinstance(profile, str)) or "no product is named"
        return Problem(field="spec.placement.mig.profile", value='"auto"',
                       message=f"gives no one profile for all of spec.placement.gpu.products ({found})",
                       remedy="name one product, or a profile that all of them have")
    return names.pop()


def _products(spec: Spec) -> tuple[str, ...]:
    return spec.placement.gpu.products if spec.placement.gpu else ()


def _nodes(spec: Spec, products: Sequence[str]) -> tuple[dict[str, str], Mapping[str, Any] | None]:
    """Node selector and affinity; what the user selects stands above what is derived."""
    selector = {ARCH_LABEL: _architecture(spec)}
    affinity = None
    if len(products) == 1:
        selector[PRODUCT_LABEL] = products[0]
    elif products:
        expression = {"key": PRODUCT_LABEL, "operator": "In", "values": list(products)}
        affinity = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {**selector, **spec.placement.node_selector}, affinity


def _architecture(spec: Spec) -> str:
    boards = [board for product in _products(spec) if (board := mig.board(product))]
    derived = boards[0].architecture if boards else "amd64"
    return spec.placement.node_selector.get(ARCH_LABEL, derived)


def _tolerations(spec: Spec) -> tuple[Mapping[str, Any], ...]:
    given = (toleration.model_dump(by_alias=True, exclude_none=True) for toleration in spec.placement.tolerations)
    return tuple({key: value for key, value in toleration.items() if value != ""} for toleration in given)


def _device(spec: Spec, profile: str, count: int, memory: int) -> DeviceRequest:
    return DeviceRequest(accelerator="gpu", products=tuple(sorted(_products(spec))), mig_profile=profile,
                         gpu_count=count, memory_bytes=memory, architecture=_architecture(spec))


def _board_bytes(product: str) -> int:
    known = mig.profiles(product)
    return known[-1].bytes if known else 0


def _slice_bytes(products: Sequence[str], name: str) -> int:
    """Usable memory of the slice on the smallest of ``products``; 0 when unknown."""
    found = [profile.bytes for product in products if (profile := mig.profile(product, name))]
    return min(found, default=0)


def _names(products: Sequence[str]) -> str:
    return " or ".join(product.removeprefix("NVIDIA-") for product in products) or "GPU"
