"""What a server's container asks for, and what it should, from what the build measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.config import OperatorConfig, Resources
from enginewright.core.quantity import parse_quantity
from enginewright.core.sizing import held_bytes, memory_limit, proposed, server_defaults
from enginewright.core.spec import Spec, parse_spec
from enginewright_builder.contract import MemoryFigures
from support.cluster import SPEC

MIB = 1 << 20
FIGURES = MemoryFigures(seen="processes", empty_bytes=12 * MIB, loaded_bytes=268 * MIB, peak_bytes=326 * MIB,
                        held_bytes=300 * MIB, concurrency=4, cores=1.83)
LIMIT = "spec.serving.resources.limits.memory"
OWN_LIMIT = "config.serverResources.limits.memory of the operator's chart"


def spec(**serving: Any) -> Spec:
    found = parse_spec({**SPEC, "serving": serving})
    assert isinstance(found, Spec)
    return found


def config(**resources: dict[str, str]) -> OperatorConfig:
    return OperatorConfig(server_resources=Resources(**resources))


def test_the_proposal_has_its_margins_and_the_processor_time_of_the_load() -> None:
    found = proposed(FIGURES, spec())
    # 326 × 1.1 + 64 = 422.6, 326 × 1.5 + 128 = 617; in steps of 32.
    assert found == Resources(requests={"memory": "448Mi", "cpu": "1850m"}, limits={"memory": "640Mi"})


def test_a_cache_comes_on_top_and_unknown_processor_time_is_not_proposed() -> None:
    found = proposed(replace(FIGURES, cores=None), spec(responseCache={"sizeMebibytes": 100}))
    assert found == Resources(requests={"memory": "548Mi"}, limits={"memory": "740Mi"})


@given(st.integers(1, 1 << 42), st.floats(0.0, 512.0))
def test_a_proposal_holds_what_was_measured(peak: int, cores: float) -> None:
    found = proposed(replace(FIGURES, peak_bytes=peak, cores=cores), spec())
    assert peak < parse_quantity(found.requests["memory"]) < parse_quantity(found.limits["memory"])
    assert float(parse_quantity(found.requests.get("cpu", "512"))) >= cores


@pytest.mark.parametrize(("requests", "limits", "asked"), [
    ({"memory": "1Gi"}, {}, "1Gi"), ({"memory": "128Mi"}, {}, "448Mi"), ({"cpu": "1"}, {}, None),
    ({"memory": "128Mi"}, {"memory": "400Mi"}, "400Mi"), ({"memory": "128Mi"}, {"memory": "4Gi"}, "448Mi"),
], ids=["less than asked for anyway", "more", "none is asked for", "more than the operator's limit", "within it"])
def test_where_the_user_states_nothing_it_is_at_least_what_was_measured(
    requests: dict[str, str], limits: dict[str, str], asked: str | None
) -> None:
    found = server_defaults(spec(), config(requests=requests, limits=limits), FIGURES)
    assert (found.requests.get("memory"), found.limits) == (asked, limits)


@pytest.mark.parametrize("own", [Resources(), Resources(requests={"memory": "1Gi"}, limits={"memory": "2Gi"})])
def test_of_engines_without_figures_nothing_changes(own: Resources) -> None:
    assert server_defaults(spec(), OperatorConfig(server_resources=own), None) == own


@pytest.mark.parametrize(("resources", "own", "found"), [
    ({}, {}, None), ({"limits": {"memory": "1Gi"}}, {"memory": "2Gi"}, (LIMIT, "1Gi")),
    ({}, {"memory": "2Gi"}, (OWN_LIMIT, "2Gi")), ({"requests": {"memory": "3Gi"}}, {"memory": "2Gi"}, None),
    ({"requests": {"memory": "1Gi"}}, {"memory": "2Gi"}, (OWN_LIMIT, "2Gi")),
], ids=["none", "the user's", "the operator's", "the user asks for more", "the user asks for less"])
def test_which_limit_there_is(resources: dict[str, Any], own: dict[str, str], found: tuple[str, str] | None) -> None:
    assert memory_limit(spec(resources=resources), config(limits=own)) == found


def test_a_cache_is_held_as_well() -> None:
    assert held_bytes(FIGURES, spec()) == 300 * MIB
    assert held_bytes(FIGURES, spec(responseCache={"sizeMebibytes": 100})) == 400 * MIB
    own = memory_limit(spec(responseCache={"sizeMebibytes": 100}), config(limits={"memory": "400Mi"}))
    assert own == (OWN_LIMIT, "500Mi")
