"""From a fleet's spec to what each of its classes is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from enginewright.core.config import OperatorConfig
from enginewright.core.context import read_spec
from enginewright.core.observed import ObjectView
from enginewright.core.problems import summarise
from enginewright.core.spec import Spec, parse_spec, validate
from enginewright.core.spec.fleet import as_raw, classes_of, is_fleet, member_spec
from support.specs import Raw, tensor_specs

H100 = "NVIDIA-H100-80GB-HBM3"
GPU_POOL = {"key": "pool", "value": "gpu"}
FLEET: Raw = {
    "source": {"uri": "pvc://models/minilm"},
    "placement": {
        "nodeSelector": {"zone": "a", "tier": "any"},
        "tolerations": [{"operator": "Exists"}],
        "classes": [
            {"name": "h100", "gpu": {"product": H100}, "tolerations": [GPU_POOL]},
            {"name": "slice", "gpu": {"product": H100}, "mig": {"profile": "1g.10gb"}, "minReplicas": 2},
            {"name": "cpu", "accelerator": "cpu", "nodeSelector": {"tier": "cheap"}, "maxReplicas": 3},
        ],
    },
    "autoscaling": {"minReplicas": 1, "maxReplicas": 8, "targetQueueDepth": 2},
    "rollout": {"maxSurge": 0},
}


def parsed(raw: Raw) -> Spec:
    spec = parse_spec(raw)
    assert isinstance(spec, Spec), summarise(spec)
    return spec


def members(raw: Raw) -> dict[str, Raw]:
    spec = parsed(raw)
    return {entry.name: as_raw(member_spec(spec, entry)) for entry in classes_of(spec)}


def test_a_class_stands_in_the_place_of_placement() -> None:
    found = members(FLEET)
    assert found["h100"]["placement"] == {
        "accelerator": "gpu", "gpu": {"product": H100}, "nodeSelector": {"zone": "a", "tier": "any"},
        "tolerations": [{"operator": "Exists"}, GPU_POOL]}
    assert found["slice"]["placement"]["mig"] == {"profile": "1g.10gb"}
    assert found["cpu"]["placement"] == {
        "accelerator": "cpu", "nodeSelector": {"zone": "a", "tier": "cheap"}, "tolerations": [{"operator": "Exists"}]}


def test_limits_of_a_class_go_before_those_of_all() -> None:
    found = {name: raw["autoscaling"] for name, raw in members(FLEET).items()}
    assert {name: (scaling["minReplicas"], scaling["maxReplicas"], scaling["targetQueueDepth"])
            for name, scaling in found.items()} == {"h100": (1, 8, 2), "slice": (2, 8, 2), "cpu": (1, 3, 2)}


@pytest.mark.parametrize(("limits", "own", "expected"), [
    ({"minReplicas": 3, "maxReplicas": 12}, {}, (3, 12)),
    ({"minReplicas": 3, "maxReplicas": 12}, {"maxReplicas": 2}, (2, 2)),
    ({"minReplicas": 3}, {"maxReplicas": 2}, (2, None)),
    ({"maxReplicas": 1}, {"minReplicas": 2}, (None, 2)),
    ({"minReplicas": 1, "maxReplicas": 9}, {"minReplicas": 2, "maxReplicas": 4}, (2, 4)),
    ({"minReplicas": 3, "maxReplicas": 4}, {"minReplicas": 2, "maxReplicas": 6}, (3, 4)),
])
def test_a_schedule_moves_between_the_limits_of_a_class(
    limits: dict[str, int], own: dict[str, int], expected: tuple[int | None, int | None]
) -> None:
    schedule = {"name": "day", "start": "0 8 * * *", "end": "0 18 * * *", **limits}
    raw = {**FLEET, "autoscaling": {"maxReplicas": 8, "schedules": [schedule]},
           "placement": {"classes": [{"name": "gpu", **own}, {"name": "other", "accelerator": "cpu"}]}}
    assert validate(parsed(raw)) == ()
    found = members(raw)
    (held,) = found["gpu"]["autoscaling"]["schedules"]
    assert (held.get("minReplicas"), held.get("maxReplicas")) == expected
    assert found["other"]["autoscaling"]["schedules"] == [schedule]


def test_without_autoscaling_the_fewest_replicas_are_their_number() -> None:
    raw = {**FLEET, "autoscaling": None, "placement": {"classes": [{"name": "a", "minReplicas": 3}, {"name": "b"}]}}
    found = members({key: value for key, value in raw.items() if value is not None})
    assert {name: one["replicas"] for name, one in found.items()} == {"a": 3, "b": 1}
    assert all("autoscaling" not in one for one in found.values())


def test_no_member_promotes_by_itself_and_the_rest_is_the_fleets() -> None:
    for raw in members(FLEET).values():
        assert raw["rollout"] == {"maxSurge": 0, "autoPromote": False}
        assert raw["source"] == FLEET["source"]
        assert not is_fleet(raw)


@given(tensor_specs())
@settings(max_examples=30, deadline=None)
def test_members_of_a_good_fleet_are_good_and_come_through_the_apiserver_unchanged(raw: Raw) -> None:
    """Whatever else the spec asks for; engine and objective are left alone, for not every class can do what one can."""
    scaling = raw.get("autoscaling")
    fleet: dict[str, Any] = {
        **{key: value for key, value in raw.items() if key not in ("replicas", "rollout", "engine", "objective")},
        **({"autoscaling": {**scaling, "minReplicas": 1}} if scaling else {}),
        **({"quality": {name: value for name, value in raw["quality"].items() if name != "rollback"}}
           if "quality" in raw else {}),
        "placement": {"classes": [{"name": "one", **raw["placement"]}, {"name": "cpu", "accelerator": "cpu"}]},
    }
    spec = parsed(fleet)
    assert validate(spec) == ()
    for entry in classes_of(spec):
        member = member_spec(spec, entry)
        again = parsed(as_raw(member))
        assert again == member
        assert validate(again) == ()


def read(raw: Raw, name: str = "minilm") -> str:
    view = ObjectView(name=name, namespace="n", uid="u", generation=1, resource_version="1", deleting=False,
                      annotations={}, spec=raw, status={})
    found = read_spec(view, OperatorConfig())
    return "" if isinstance(found, Spec) else summarise(found)


@pytest.mark.parametrize(("name", "said"), [
    ("minilm", ""), ("a" * 34, ""), ("a" * 35, 'spec.placement.classes: makes ' + "a" * 35 + "-slice"),
])
def test_names_of_members_must_have_room(name: str, said: str) -> None:
    assert read(FLEET, name).startswith(said)
    assert bool(read(FLEET, name)) == bool(said)


def test_hardware_that_does_not_exist_is_told_with_its_class() -> None:
    odd = {"name": "odd", "gpu": {"product": H100}, "mig": {"profile": "1g.18gb"}}
    spec = {**FLEET, "placement": {"classes": [{"name": "cpu", "accelerator": "cpu"}, odd]}}
    said = read({key: value for key, value in spec.items() if key != "autoscaling"})
    assert said.startswith("spec.placement.classes[1].mig.profile: is not a profile of NVIDIA-H100-80GB-HBM3")


def test_what_a_class_cannot_do_is_told_with_its_name() -> None:
    raw = {**FLEET, "engine": {"precision": "fp8", "calibration": {"uri": "pvc://m/c"}}}
    assert read({key: value for key, value in raw.items() if key != "autoscaling"}
                | {"placement": {"classes": [{"name": "h100"}, {"name": "cpu", "accelerator": "cpu"}]}}) == (
        'spec.engine.precision: needs a GPU (class cpu) (got "fp8"); on a CPU write auto, fp32 or int8; or remove the '
        'class')


@pytest.mark.parametrize("count", [0, 1, 9])
def test_a_fleet_has_two_to_eight_classes(count: int) -> None:
    entries = [{"name": f"c{number}"} for number in range(count)]
    found = parse_spec({"source": FLEET["source"], "placement": {"classes": entries}})
    assert not isinstance(found, Spec)
    assert [problem.field for problem in found] == ["spec.placement.classes"]
