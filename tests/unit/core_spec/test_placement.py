from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from enginewright.core import mig
from enginewright.core.config import OperatorConfig
from enginewright.core.placement import GPU_TOLERATION, Placement, pinned, place
from enginewright.core.problems import Problem, summarise
from enginewright.core.spec import Spec, parse_spec
from support.specs import Raw, valid_specs

CONFIG = OperatorConfig(runtime_class_name="nvidia")
LANGUAGE_MODEL: Raw = {"task": "generate", "source": {"uri": "hf://example/model"},
                       "accuracy": {"evaluation": {"uri": "pvc://models/prompts.jsonl"}}}
H100, H200, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-A100-SXM4-80GB"


def spec_of(raw: Raw) -> Spec:
    spec = parse_spec(raw)
    assert isinstance(spec, Spec), summarise(spec)
    return spec


def placed(source_bytes: int = 1 << 20, config: OperatorConfig = CONFIG, **placement: Any) -> Placement:
    found = place(spec_of({"source": {"uri": "pvc://m/a"}, "placement": placement}), source_bytes, config)
    assert isinstance(found, Placement), found
    return found


def test_a_cpu_takes_only_what_the_user_selects() -> None:
    found = placed(accelerator="cpu", nodeSelector={"pool": "cheap", "kubernetes.io/arch": "arm64"},
                   tolerations=[{"key": "spot", "operator": "Exists"}])
    assert found == Placement(
        node_selector={"pool": "cheap", "kubernetes.io/arch": "arm64"},
        tolerations=({"key": "spot", "operator": "Exists"},), device=found.device, description="CPU")
    assert (found.device.accelerator, found.device.architecture, found.device.memory_bytes) == ("cpu", "arm64", 0)


def test_whole_gpus_of_one_product() -> None:
    found = placed(gpu={"product": H100, "count": 2})
    assert found.limits == {"nvidia.com/gpu": "2"}
    assert found.node_selector == {"kubernetes.io/arch": "amd64", "nvidia.com/gpu.product": H100}
    assert found.node_affinity is None
    assert found.tolerations == (GPU_TOLERATION,)
    assert found.runtime_class_name == "nvidia"
    assert (found.device.products, found.device.gpu_count, found.device.mig_profile) == ((H100,), 2, "")
    assert found.device.memory_bytes == int(79.25 * mig.GIB)
    assert found.description == "2× H100-80GB-HBM3"


def test_any_gpu() -> None:
    found = placed()
    assert found.limits == {"nvidia.com/gpu": "1"}
    assert found.node_selector == {"kubernetes.io/arch": "amd64"}
    assert found.device.memory_bytes == 0
    assert found.description == "GPU"


def test_of_several_products_under_the_old_name_the_first_is_built_for_and_served_on() -> None:
    several, alone = placed(gpu={"products": [H200, H100]}), placed(gpu={"product": H200})
    assert several == alone
    assert (several.node_selector["nvidia.com/gpu.product"], several.device.products) == (H200, (H200,))


@pytest.mark.parametrize(("profile", "label"), [("1g.10gb", "1g.10gb"), ("1g.10gb+me", "1g.10gb.me")])
def test_a_slice_by_the_mixed_strategy(profile: str, label: str) -> None:
    found = placed(gpu={"product": H100}, mig={"profile": profile})
    assert found.limits == {f"nvidia.com/mig-{label}": "1"}
    assert found.node_selector == {"kubernetes.io/arch": "amd64", "nvidia.com/gpu.product": H100,
                                   "nvidia.com/mig.config.state": "success"}
    assert (found.device.mig_profile, found.device.memory_bytes) == (profile, int(9.75 * mig.GIB))
    assert found.description == f"H100-80GB-HBM3 {profile}"


def test_a_slice_by_the_single_strategy() -> None:
    found = placed(gpu={"product": H100}, mig={"profile": "1g.10gb+me", "strategy": "single"})
    assert found.limits == {"nvidia.com/gpu": "1"}
    assert found.node_selector["nvidia.com/gpu.product"] == f"{H100}-MIG-1g.10gb.me"


def test_a_cluster_that_partitions_by_other_means() -> None:
    config = OperatorConfig(require_mig_config_state=False)
    found = placed(config=config, gpu={"product": H100}, mig={"profile": "1g.10gb"})
    assert "nvidia.com/mig.config.state" not in found.node_selector


def test_a_slice_claimed_by_dra() -> None:
    found = placed(gpu={"product": H100}, mig={"profile": "3g.40gb", "dra": {"deviceClassName": "mig.example"}})
    assert found.limits == {}
    assert found.claim is not None
    assert found.claim.device_class == "mig.example"
    assert found.claim.expression == (
        "device.attributes['gpu.nvidia.com'].profile == '3g.40gb' && "
        f"device.attributes['gpu.nvidia.com'].productName.replace(' ', '-') == '{H100}'")
    assert found.node_selector == {"kubernetes.io/arch": "amd64"}


def test_a_profile_on_a_gpu_that_is_not_named() -> None:
    found = placed(mig={"profile": "1g.10gb", "dra": {}})
    assert found.claim is not None
    assert "productName" not in found.claim.expression
    assert found.device.memory_bytes == 0


def test_auto_takes_the_smallest_that_holds() -> None:
    small = placed(90 << 20, gpu={"product": H100}, mig={"profile": "auto"})
    large = placed(6 << 30, gpu={"product": H100}, mig={"profile": "auto"})
    assert (small.device.mig_profile, large.device.mig_profile) == ("1g.10gb", "3g.40gb")


def test_auto_takes_a_slice_that_holds_a_language_model_once() -> None:
    spec = spec_of({**LANGUAGE_MODEL, "placement": {"gpu": {"product": H100}, "mig": {"profile": "auto"}}})
    found = place(spec, 16 << 30, CONFIG)
    assert isinstance(found, Placement)
    assert (found.device.mig_profile, dict(found.limits)) == ("3g.40gb", {"nvidia.com/mig-3g.40gb": "1"})
    problem = place(spec, 140 << 30, CONFIG)
    assert isinstance(problem, Problem)
    assert "maxBatchSize" not in problem.remedy, "a language model has none"
    assert "remove spec.placement.mig" in problem.remedy


def test_auto_says_why_nothing_fits() -> None:
    spec = spec_of({"source": {"uri": "pvc://m/a"}, "placement": {"gpu": {"product": H100}, "mig": {}}})
    problem = place(spec, 200 << 30, CONFIG)
    assert isinstance(problem, Problem)
    assert problem.field == "spec.placement.mig.profile"
    assert "7g.80gb, has 79.25 GiB" in problem.message
    assert "a larger GPU" in problem.remedy


def test_auto_looks_at_the_product_that_is_built_for() -> None:
    found = placed(gpu={"product": H200}, mig={})
    assert (found.device.products, found.device.mig_profile) == ((H200,), "1g.18gb")


@pytest.mark.parametrize(("slices", "device", "values"), [
    ({}, "NVIDIA H200", ["NVIDIA-H200", "NVIDIA-H200-SHARED"]),
    ({"profile": "1g.18gb"}, "NVIDIA H200 1g.18gb", ["NVIDIA-H200", "NVIDIA-H200-SHARED"]),
    ({"profile": "1g.18gb+me", "strategy": "single"}, "NVIDIA H200 1g.18gb+me", ["NVIDIA-H200-MIG-1g.18gb.me"]),
])
def test_without_a_named_product_an_engine_is_served_by_the_one_that_it_was_built_on(
    slices: Raw, device: str, values: list[str]
) -> None:
    anything = placed(mig=slices) if slices else placed()
    found = pinned(anything, device)
    assert found.node_affinity == {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": values}]}]}
    assert (found.limits, found.node_selector) == (anything.limits, anything.node_selector)
    assert pinned(anything, "GPU") == anything, "nobody looked what it was"
    assert pinned(placed(gpu={"product": H100}), "NVIDIA H200") == placed(gpu={"product": H100})
    claimed = placed(mig={"profile": "1g.18gb", "dra": {}})
    assert pinned(claimed, "NVIDIA H200 1g.18gb") == claimed


def test_arm_boards_need_arm_nodes() -> None:
    assert placed(gpu={"product": "NVIDIA-GB200"}).node_selector["kubernetes.io/arch"] == "arm64"


def test_what_the_user_selects_stands_above_what_is_derived() -> None:
    found = placed(gpu={"product": H100}, nodeSelector={"nvidia.com/gpu.product": "H100-renamed"})
    assert found.node_selector["nvidia.com/gpu.product"] == "H100-renamed"


@given(valid_specs())
@settings(max_examples=40, deadline=None)
def test_every_good_spec_has_a_place(raw: Raw) -> None:
    spec = spec_of(raw)
    found = place(spec, 50 << 20, CONFIG)
    assert isinstance(found, Placement), found
    assert (found.device.accelerator == "gpu") == bool(found.limits or found.claim)
    assert spec.placement.node_selector.items() <= found.node_selector.items()
    assert found == place(spec, 50 << 20, CONFIG)
