"""From what the user asks of the hardware to what pods and the build request say.

Resource names and node labels are those of NVIDIA's device plugin and GPU feature discovery (NVIDIA/k8s-device-plugin:
README, internal/rm, internal/lm); attributes of claimed devices those of kubernetes-sigs/dra-driver-nvidia-gpu.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from enginewright.core import mig
from enginewright.core.config import OperatorConfig
from enginewright.core.problems import Problem
from enginewright.core.spec import MIGSpec, Spec
from enginewright.core.spec.tasks import generates
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

    ``node_affinity`` is a required node selector for what equality cannot say: one of several values of a label.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: Mapping[str, Any] | None = None
    tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class_name: str = ""
    claim: DeviceClaim | None = None
    device: DeviceRequest = field(default_factory=DeviceRequest)
    description: str = "CPU"

    @property
    def has_device(self) -> bool:
        return bool(self.limits or self.claim)


def place(spec: Spec, source_bytes: int, config: OperatorConfig, *, profile: str = "") -> Placement | Problem:
    """Where pods of ``spec`` run. ``source_bytes`` (of the resolved source; 0 when not resolved yet) sizes
    ``mig.profile: auto``, unless ``profile`` was found to do. A problem when no profile fits or the spec names what
    does not exist."""
    if spec.placement.accelerator == "cpu":
        return _cpu(spec)
    slices = spec.placement.mig
    if slices is None:
        return _whole_gpus(spec, config)
    chosen = profile or _profile(spec, slices, source_bytes)
    if isinstance(chosen, Problem):
        return chosen
    return _claimed_slice(spec, slices, chosen) if slices.dra else _plugin_slice(spec, slices, chosen, config)


def pinned(placement: Placement, device: str) -> Placement:
    """``placement`` on nodes of the product that an engine was built on, where the spec names none: an engine runs as
    proven on that product alone. ``device`` is the product's name as the driver gives it (``NVIDIA H200``), with the
    MIG profile after it; a name without spaces merely repeats what was asked for."""
    asked = placement.device
    name = device.removesuffix(asked.mig_profile).strip()
    if asked.accelerator != "gpu" or asked.products or placement.claim or " " not in name:
        return placement
    label = name.replace(" ", "-")  # as GPU feature discovery writes it, with its suffixes for slices and sharing
    labels = [label, f"{label}-SHARED"]
    if asked.mig_profile and GPU_RESOURCE in placement.limits:
        labels = [f"{label}-MIG-{_label_of(asked.mig_profile)}"]
    expression = {"key": PRODUCT_LABEL, "operator": "In", "values": labels}
    return replace(placement, node_affinity={"nodeSelectorTerms": [{"matchExpressions": [expression]}]})


def _cpu(spec: Spec) -> Placement:
    selector = dict(spec.placement.node_selector)
    return Placement(node_selector=selector, tolerations=_tolerations(spec),
                     device=DeviceRequest(architecture=selector.get(ARCH_LABEL, "amd64")))


def _whole_gpus(spec: Spec, config: OperatorConfig) -> Placement:
    product = built_for(spec)
    count = spec.placement.gpu.count if spec.placement.gpu else 1
    several = f"{count}× " if count > 1 else ""
    return Placement(
        limits={GPU_RESOURCE: str(count)}, node_selector=_nodes(spec, product),
        tolerations=(GPU_TOLERATION, *_tolerations(spec)), runtime_class_name=config.runtime_class_name,
        device=_device(spec, "", count, _board_bytes(product)), description=several + _name(product))


def _plugin_slice(spec: Spec, slices: MIGSpec, profile: str, config: OperatorConfig) -> Placement:
    label = _label_of(profile)
    single = slices.strategy == "single"
    product = built_for(spec)
    selector = _nodes(spec, f"{product}-MIG-{label}" if single and product else product)
    if config.require_mig_config_state:
        selector.setdefault(MIG_STATE_LABEL, "success")
    return Placement(
        limits={GPU_RESOURCE if single else f"nvidia.com/mig-{label}": "1"}, node_selector=selector,
        tolerations=(GPU_TOLERATION, *_tolerations(spec)), runtime_class_name=config.runtime_class_name,
        device=_device(spec, profile, 1, _slice_bytes(product, profile)), description=f"{_name(product)} {profile}")


def _label_of(profile: str) -> str:
    """As the device plugin writes it: + is not allowed in names and labels."""
    return profile.replace("+", ".")


def _claimed_slice(spec: Spec, slices: MIGSpec, profile: str) -> Placement:
    """The product is selected on the device, not by node labels: feature discovery need not run beside the DRA
    driver."""
    product = built_for(spec)
    attributes = f"device.attributes['{DRA_DRIVER}']"
    expression = f"{attributes}.profile == '{profile}'"
    if product:
        expression += f" && {attributes}.productName.replace(' ', '-') == '{product}'"
    device_class = slices.dra.device_class_name if slices.dra else ""
    return Placement(
        node_selector=_nodes(spec, ""), tolerations=(GPU_TOLERATION, *_tolerations(spec)),
        claim=DeviceClaim(device_class=device_class, expression=expression),
        device=_device(spec, profile, 1, _slice_bytes(product, profile)), description=f"{_name(product)} {profile}")


def _profile(spec: Spec, slices: MIGSpec, source_bytes: int) -> str | Problem:
    """The profile that is asked for, or the smallest that fits."""
    if slices.profile != "auto":
        return slices.profile
    engine, of_language = spec.engine, generates(spec)
    need = (mig.language_model_need(source_bytes) if of_language
            else mig.estimate_need(source_bytes, engine.precision, engine.max_batch_size))
    chosen = mig.smallest_profile(built_for(spec), need)
    if isinstance(chosen, str):
        return Problem(field="spec.placement.mig.profile", value='"auto"', message=chosen,
                       remedy="name a larger GPU in spec.placement.gpu.product, or "
                              + ("take whole GPUs: remove spec.placement.mig" if of_language else
                                 "lower spec.engine.maxBatchSize, or name a profile yourself"))
    return chosen.name


def built_for(spec: Spec) -> str:
    """The product that engines are built and served on, empty for any. An engine is tuned on, and a TensorRT plan bound
    to, one class of device."""
    return spec.placement.gpu.product if spec.placement.gpu else ""


def _nodes(spec: Spec, product: str) -> dict[str, str]:
    """Node selector, with ``product`` as nodes are labelled; what the user selects stands above what is derived."""
    derived = {ARCH_LABEL: _architecture(spec), **({PRODUCT_LABEL: product} if product else {})}
    return {**derived, **spec.placement.node_selector}


def _architecture(spec: Spec) -> str:
    board = mig.board(built_for(spec))
    return spec.placement.node_selector.get(ARCH_LABEL, board.architecture if board else "amd64")


def _tolerations(spec: Spec) -> tuple[Mapping[str, Any], ...]:
    given = (toleration.model_dump(by_alias=True, exclude_none=True) for toleration in spec.placement.tolerations)
    return tuple({key: value for key, value in toleration.items() if value != ""} for toleration in given)


def _device(spec: Spec, profile: str, count: int, memory: int) -> DeviceRequest:
    product = built_for(spec)
    return DeviceRequest(accelerator="gpu", products=(product,) if product else (), mig_profile=profile,
                         gpu_count=count, memory_bytes=memory, architecture=_architecture(spec))


def _board_bytes(product: str) -> int:
    known = mig.profiles(product)
    return known[-1].bytes if known else 0


def _slice_bytes(product: str, name: str) -> int:
    """Usable memory of the slice; 0 when unknown."""
    profile = mig.profile(product, name)
    return profile.bytes if profile else 0


def _name(product: str) -> str:
    return product.removeprefix("NVIDIA-") or "GPU"
