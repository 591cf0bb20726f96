"""What the chart holds the operator to, and which pods of models reach whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Values = dict[str, Any]
Objects = Callable[[Values], dict[str, list[dict[str, Any]]]]
POLICY = "ValidatingAdmissionPolicy"
WRITES = {"create", "update", "patch", "delete"}
MANIFESTS = Path(__file__).parents[2] / "golden" / "manifests"
# What has nothing of others in it.
FREE = {"events", "optimisedmodels/status", "optimisedmodels/finalizers"}


@pytest.mark.parametrize(("values", "there"), [
    ({}, True), ({"watchNamespaces": ["team-a"]}, True), ({"crds": {"install": False}}, True),
    ({"watchNamespaces": ["team-a"], "crds": {"install": False}}, False),
    ({"watchNamespaces": ["team-a"], "crds": {"install": False}, "admissionPolicy": {"enabled": True}}, True),
    ({"admissionPolicy": {"enabled": False}}, False),
], ids=str)
def test_where_the_policy_is_made(objects: Objects, values: Values, there: bool) -> None:
    """Not for a team that may have no rights in the cluster."""
    found = objects(values)
    assert (POLICY in found, f"{POLICY}Binding" in found) == (there, there)


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["team-a"], "replicas": 2}], ids=["cluster", "namespaces"])
def test_all_that_the_operator_may_write_is_judged(objects: Objects, values: Values) -> None:
    found = objects(values)
    rules = [rule for kind in ("Role", "ClusterRole") for item in found.get(kind, ()) for rule in item["rules"]
             if "aggregate" not in str(item["metadata"]["labels"])]
    written = {(group, resource) for rule in rules if WRITES & set(rule["verbs"])
               for group in rule["apiGroups"] for resource in rule["resources"] if resource not in FREE}
    (policy,) = found[POLICY]
    judged = {(group, resource) for rule in policy["spec"]["matchConstraints"]["resourceRules"]
              for group in rule["apiGroups"] for resource in rule["resources"]}
    assert written <= judged
    assert policy["spec"]["failurePolicy"] == "Fail"
    (binding,) = found[f"{POLICY}Binding"]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}


def test_it_is_about_the_account_that_the_operator_runs_as(objects: Objects) -> None:
    for values in ({}, {"serviceAccount": {"create": False, "name": "mine"}}):
        found = objects(values)
        account = found["Deployment"][0]["spec"]["template"]["spec"]["serviceAccountName"]
        (condition,) = found[POLICY][0]["spec"]["matchConditions"]
        assert f"'system:serviceaccount:enginewright-system:{account}'" in condition["expression"]


def test_network_policies_are_in_every_namespace_of_models(objects: Objects) -> None:
    def namespaces(values: Values, **models: Any) -> set[tuple[str, str]]:
        found = objects({**values, "networkPolicy": {"models": {"enabled": True, **models}}})
        return {(item["metadata"]["namespace"], item["metadata"]["name"].removeprefix("demo-enginewright-"))
                for item in found["NetworkPolicy"]}

    both = {(name, which) for name in ("team-a", "team-b")
            for which in ("replicas", "language-models", "activators", "jobs", "server-images")}
    assert namespaces({"watchNamespaces": ["team-a", "team-b"]}) == both
    assert namespaces({}, namespaces=["team-a", "team-b"]) == both


def test_each_job_that_the_operator_makes_is_shut_in_by_one_policy(objects: Objects) -> None:
    found = objects({"networkPolicy": {"models": {"enabled": True, "namespaces": ["team-a"]}}})
    policies = [item["spec"] for item in found["NetworkPolicy"] if item["metadata"]["namespace"] == "team-a"]
    jobs = {pod["app.kubernetes.io/component"]: pod for pod in map(_pod_labels, MANIFESTS.glob("*/*_job*.yaml"))}
    assert len(jobs) == 6
    for component, pod in jobs.items():
        about = [policy["policyTypes"] for policy in policies if _selects(policy["podSelector"], pod)]
        assert about == [["Ingress", "Egress"]], component


def _pod_labels(path: Path) -> dict[str, str]:
    labels: dict[str, str] = yaml.safe_load(path.read_text())["spec"]["template"]["metadata"]["labels"]
    return labels


def _selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """By what the chart's policies say: labels, and one of several values."""
    return (selector["matchLabels"].items() <= labels.items()
            and all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", ())))


def test_no_job_is_asked_and_none_asks_the_cloud_who_its_machine_is(objects: Objects) -> None:
    found = objects({"networkPolicy": {"models": {"enabled": True, "namespaces": ["team-a"]}}})
    (jobs,) = (item["spec"] for item in found["NetworkPolicy"] if item["metadata"]["name"].endswith("-jobs"))
    assert jobs["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in jobs
    named, anywhere = jobs["egress"]
    assert [port["port"] for port in named["ports"]] == [53, 53]
    blocks = [peer["ipBlock"] for peer in anywhere["to"]]
    assert {part for block in blocks for part in block["except"]} >= {"169.254.0.0/16", "fd00:ec2::254/128"}
