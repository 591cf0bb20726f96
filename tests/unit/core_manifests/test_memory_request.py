"""Pods ask for the memory that the build measured, where the user states none."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from enginewright.core.config import OperatorConfig, Resources
from enginewright.core.labels import CONTAINER_FITS, CONTAINER_SERVER
from enginewright.core.manifests import Owner, deployment, revision_name
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement, place
from enginewright.core.spec import Spec, parse_spec
from enginewright_builder.contract import MemoryFigures
from support.cluster import SPEC, built

MIB = 1 << 20
OWNER = Owner(name="minilm", namespace="prod", uid="u-1")
FIGURES = MemoryFigures(seen="container", empty_bytes=MIB, loaded_bytes=2048 * MIB, peak_bytes=3000 * MIB,
                        held_bytes=2900 * MIB, concurrency=8, cores=2.0)
GPU = {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H200"}}


def requested(name: str = CONTAINER_SERVER, **given: Any) -> dict[str, Any]:
    return dict(container(name, **given)["resources"])


def container(name: str = CONTAINER_SERVER, *, figures: MemoryFigures | None = FIGURES,
              config: OperatorConfig | None = None, **changes: Any) -> dict[str, Any]:
    config = config or OperatorConfig()
    spec = parse_spec({**SPEC, **changes})
    assert isinstance(spec, Spec)
    placement = place(spec, 1 << 20, config)
    assert isinstance(placement, Placement)
    record = EngineRecord(fingerprint="f" * 64, store_claim="enginewright-store", store_uri=spec.store.uri,
                          outcome=built("f" * 64, memory=figures))
    made = deployment(OWNER, spec, record, placement, config)
    pod = made["spec"]["template"]["spec"]
    assert made["metadata"]["name"] == f"minilm-{revision_name('f' * 64, spec, placement, config)}"
    (found,) = (one for one in (*pod["initContainers"], *pod["containers"]) if one["name"] == name)
    return dict(found)


def test_the_measured_peak_is_asked_for_and_no_limit_is_set() -> None:
    # 3000 × 1.1 + 64, in steps of 32; processor time is proposed, not asked for.
    assert requested() == {"requests": {"cpu": "500m", "memory": "3392Mi"}}


@pytest.mark.parametrize(("stated", "memory"), [
    ({"requests": {"memory": "2Gi"}}, "2Gi"), ({"limits": {"memory": "3Gi"}}, "3Gi"),
])
def test_what_the_user_states_holds(stated: dict[str, Any], memory: str) -> None:
    assert requested(serving={"resources": stated})["requests"]["memory"] == memory


def test_engines_of_older_builders_ask_for_what_they_did() -> None:
    assert requested(figures=None) == {"requests": {"cpu": "500m", "memory": "1Gi"}}


def test_small_engines_ask_for_no_less_than_the_operator_says() -> None:
    small = OperatorConfig(server_resources=Resources(requests={"memory": "4Gi"}))
    assert requested(config=small) == {"requests": {"memory": "4Gi"}}


def test_the_container_before_it_asks_for_the_same() -> None:
    assert requested(CONTAINER_FITS, placement=GPU) == requested(placement=GPU)


@pytest.mark.parametrize(("used", "pool", "load", "left_out"), [
    (0, 256 * MIB, 8, True), (MIB, 256 * MIB, 8, False), (0, 0, 8, False), (None, None, 8, False),
    (0, 256 * MIB, 0, False)])
def test_a_pinned_pool_that_the_build_saw_unused_under_load_is_left_out(
    used: int | None, pool: int | None, load: int, left_out: bool
) -> None:
    figures = dataclasses.replace(FIGURES, pinned_bytes=used, pinned_pool_bytes=pool, concurrency=load)
    assert ("--pinned-memory-pool-byte-size=0" in container(figures=figures, placement=GPU)["args"]) == left_out


def test_the_installations_own_pool_comes_last_as_triton_takes_the_last() -> None:
    figures = dataclasses.replace(FIGURES, pinned_bytes=0, pinned_pool_bytes=256 * MIB)
    own = "--pinned-memory-pool-byte-size=1048576"
    args = container(figures=figures, placement=GPU, config=OperatorConfig(server_args=(own,)))["args"]
    assert args.index(own) > args.index("--pinned-memory-pool-byte-size=0")
