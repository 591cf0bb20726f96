"""A spec that was read before is not read again, and never taken for another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from enginewright.core.config import OperatorConfig
from enginewright.core.context import read_spec
from enginewright.core.manifests import shared_ask_job_name
from enginewright.core.observed import ObjectView
from enginewright.core.spec import Spec, parse_spec

GOOD = {"source": {"uri": "pvc://models/m"}, "placement": {"accelerator": "cpu"}}
SLICE = {**GOOD, "placement": {"gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "9g.90gb"}}}


def view(spec: dict[str, Any], name: str = "m") -> ObjectView:
    return ObjectView(name=name, namespace="prod", uid="u", generation=1, resource_version="1", deleting=False,
                      annotations={}, spec=spec, status={})


def test_the_same_spec_is_the_same_object() -> None:
    assert parse_spec({**GOOD}) is parse_spec({**GOOD})


def test_a_spec_that_is_changed_in_place_is_another() -> None:
    raw: dict[str, Any] = {**GOOD, "source": {**GOOD["source"]}}
    before = parse_spec(raw)
    raw["source"]["uri"] = "pvc://models/other"
    after = parse_spec(raw)
    assert isinstance(before, Spec)
    assert isinstance(after, Spec)
    assert (before.source.uri, after.source.uri) == ("pvc://models/m", "pvc://models/other")


def test_a_name_that_is_wrong_is_told_of_a_spec_that_was_good_under_another() -> None:
    config = OperatorConfig()
    assert isinstance(read_spec(view(GOOD), config), Spec)
    problems = read_spec(view(GOOD, "Not-A-Name"), config)
    assert not isinstance(problems, Spec)
    assert [one.field for one in problems] == ["metadata.name"]


def test_a_profile_that_does_not_exist_is_told_each_time() -> None:
    config = OperatorConfig()
    first, second = (read_spec(view(SLICE), config) for _ in range(2))
    assert not isinstance(first, Spec)
    assert first == second
    assert any("mig" in one.field for one in first)


def test_another_configuration_is_another_pod() -> None:
    spec, config = parse_spec(GOOD), OperatorConfig()
    assert isinstance(spec, Spec)
    again = replace(config)
    moved = replace(config, images=replace(config.images, builder="registry.example/builder:2"))
    names = [shared_ask_job_name(spec, one, "key") for one in (config, again, moved)]
    assert names[0] == names[1] != names[2]
