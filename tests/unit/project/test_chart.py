"""The chart against what it configures: OperatorConfig, the RBAC table of the client, its own schema."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import enginewright.clients.kube as kube
from enginewright.core.config import OperatorConfig
from generated import defaults

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "enginewright"
HELPERS = (CHART / "templates" / "_helpers.tpl").read_text()
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def define(name: str) -> str:
    """The text of a named template up to its own end, which stands alone at the start of a line."""
    head, end = rf'{{{{- define "{re.escape(name)}" -}}}}\n', r"^{{- end }}\n(?=\n|\Z)"
    match = re.search(f"{head}(.*?){end}", HELPERS, re.DOTALL | re.MULTILINE)
    assert match, name
    return match[1]


def granted(*names: str) -> set[tuple[str, str, str]]:
    """(API group, resource, verb) of the chart's rules, which hold no template action and so are plain YAML."""
    texts = [define(f"enginewright.{name}") for name in names or ("rules", "nodeRules", "leaderRules")]
    rules = [rule for text in texts for rule in yaml.safe_load(text)]
    return {(group, resource, verb) for rule in rules
            for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}


def documented() -> set[tuple[str, str, str]]:
    """The same out of the table in the client's docstring, whose cells may go on in the next line."""
    text = kube.__doc__ or ""
    border = re.search(r"^=+  =+  =+$", text, re.MULTILINE)
    assert border
    first, second = (len(part) for part in border[0].split("  ")[:2])
    lines = text[border.end():].splitlines()
    rows: list[tuple[str, str]] = []
    for line in lines[lines.index(border[0]) + 1:]:
        if line == border[0]:
            break
        left, middle = line[:first].strip(), line[first + 2:first + 2 + second].strip()
        # A row goes on when nothing new is named: verbs alone, or only the group in parentheses.
        if not left or left.startswith("("):
            rows[-1] = (f"{rows[-1][0]} {left}", f"{rows[-1][1]} {middle}")
        else:
            rows.append((left, middle))
    core = {"pods", "nodes", "secrets", "services", "configmaps", "persistentvolumeclaims", "events"}
    groups = {"jobs": "batch", "deployments": "apps"}
    found = set()
    for left, middle in rows:
        resource = left.split()[0]
        plain = resource.partition("/")[0]
        stated = re.search(r"\(([^)]+)\)", left)
        group = groups.get(plain) or (stated[1] if stated else None)
        group = {"policy": "policy", "batch": "batch", "apps": "apps"}.get(group or "", group)
        if group is None:
            group = "" if plain in core else "enginewright.io"
        found |= {(group, resource, verb) for verb in middle.split()}
    return found


def test_the_operator_may_do_what_its_client_does_and_no_more() -> None:
    assert granted() == documented()


def test_what_no_role_can_grant_stands_apart() -> None:
    assert granted("nodeRules") == {("", "nodes", "list")}
    assert "nodes" not in {resource for _, resource, _ in granted("rules")}


def test_no_rule_is_a_wildcard_and_none_reads_secrets() -> None:
    for group, resource, verb in granted():
        assert "*" not in (group, resource, verb)
        assert resource != "secrets" or verb == "create"


def test_default_values_fit_the_schema() -> None:
    jsonschema.validate(VALUES, SCHEMA)


def test_maps_of_the_users_own_keys_are_one_default_each() -> None:
    """The templates fill up structures, and nothing that somebody may have taken a key out of."""
    found = defaults.by_path(VALUES, SCHEMA)
    maps = {path: value for path, value in found.items() if isinstance(value, dict)}
    assert {"resources", "config.buildResources", "config.spotLabels", "config.prices.perHour", "affinity",
            "metrics.dashboards.labels"} <= set(maps)
    assert maps["resources"] == VALUES["resources"]
    assert found["images.server.tag"] == ""
    assert not {"config", "images.server", "config.prices", "metrics.dashboards"} & set(found)


def test_a_default_that_the_schema_does_not_have_is_told() -> None:
    with pytest.raises(ValueError, match=r"crds\.instal, which"):
        defaults.by_path({"crds": {"instal": True}}, SCHEMA)


@pytest.mark.parametrize(("path", "value"), [
    (("watchNamespace",), "a"),
    (("config", "jobBackoffLimit"), -1),
    (("config", "engineGraceSeconds"), 0),
    (("config", "prices"), {"currency": "EUR", "perHour": {"cpu": 0}}),
    (("config", "prices"), {"currency": "EUR", "perHour": {"cpu": "0.0"}}),
    (("config", "prices"), {"currency": "EUR", "perHour": {"cpu": "ten"}}),
    (("config", "prices"), {"currency": "", "perHour": {"cpu": 1}}),
    (("config", "spotLabels"), {"example.com/spot": True}),
    (("config", "jobEnv"), {"A B": "x"}),
    (("config", "jobEnv"), {"HTTPS_PROXY": 1}),
    (("config", "jobPriorityClassName"), "Batch"),
    (("config", "buildResources"), {"requests": {"cpu": 1}}),
    (("images", "builder", "digest"), "sha256:abc"),
    (("global", "imageRegistry"), "https://mirror.example.test"),
    (("imagePullPolicy",), "Sometimes"),
    (("watchNamespaces",), ["Team_A"]),
    (("imagePullSecrets",), [{"secretName": "pull"}]),
    (("imagePullSecrets",), [""]),
    (("extraEnv",), {"NO_COLOR": "1"}),
    (("extraEnv",), [{"name": "NO_COLOR", "value": 1}]),
    (("extraEnv",), [{"name": "NO_COLOR", "valuefrom": {}}]),
    (("extraArgs",), ["run"]),
    (("extraVolumes",), [{"emptyDir": {}}]),
    (("extraVolumeMounts",), [{"name": "x"}]),
    (("extraObjects",), {"kind": "ConfigMap"}),
    (("trustedCA", "configMap"), "Company_CA"),
    (("trustedCA", "key"), "../ca.crt"),
    (("metrics", "podMonitor", "relabelings"), {"action": "drop"}),
    (("tolerations",), {"key": "control"}),
    (("tolerations",), [{"key": "control", "operator": "Exist"}]),
    (("tolerations",), [{"key": "control", "value": True}]),
    (("tolerations",), [{"key": "control", "effect": "NoRun"}]),
    (("topologySpreadConstraints",), [{"topologyKey": "topology.kubernetes.io/zone"}]),
    (("topologySpreadConstraints",), [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "Never"}]),
    (("commonLabels",), {"team": 7}),
    (("fullnameOverride",), "Enginewright"),
    (("fullnameOverride",), "models-"),
    (("nameOverride",), "my_operator"),
    (("nameOverride",), "n" * 64),
    (("rbac", "nodes"), "yes"),
    (("crds", "keep"), "yes"),
    (("networkPolicy", "apiServerPorts"), [0]),
    (("tracing", "endpoint"), "collector:4318"),
    (("tracing", "endpoint"), "http://me:secret@collector:4318"),
])
def test_the_schema_refuses(path: tuple[str, ...], value: object) -> None:
    values = copy.deepcopy(VALUES)
    holder = values
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


@pytest.mark.parametrize(("name", "value"), [
    ("imagePullSecrets", ["pull", {"name": "other"}]),
    ("extraEnv", [{"name": "NO_COLOR", "value": "1"}, {"name": "EMPTY"},
             {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "otel", "key": "token"}}}]),
    ("tolerations", [{"operator": "Exists"}, {"key": "control", "value": "true", "effect": "NoSchedule"},
                     {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                      "tolerationSeconds": 300}]),
    ("fullnameOverride", "n" * 63),
    ("nameOverride", "models-2"),
])
def test_the_schema_takes_what_kubernetes_takes(name: str, value: object) -> None:
    jsonschema.validate({**VALUES, name: value}, SCHEMA)


def strict(node: dict[str, Any], path: str = "") -> list[str]:
    """Paths of objects that take any property although they name some."""
    found = [path] if "properties" in node and node.get("additionalProperties") is not False else []
    for key, child in {**node.get("properties", {}), **node.get("definitions", {})}.items():
        found += strict(child, f"{path}.{key}")
    return found


def test_the_schema_knows_every_value() -> None:
    assert strict(SCHEMA) == [".global"], "a parent chart's, and of its other parts"
    assert set(VALUES) == set(SCHEMA["properties"]) - {"env"}  # a template says what to do
    # A template says what to do.
    gone = {"serverBackends", "serverPythonRuntimes", "batcherResources", "proveInServerImage"}
    assert set(VALUES["config"]) == set(SCHEMA["properties"]["config"]["properties"]) - gone


def test_the_configuration_holds_every_setting_of_the_operator() -> None:
    keys = set(re.findall(r"^([a-z_]+):", define("enginewright.config"), re.MULTILINE))
    assert keys == {field.name for field in dataclasses.fields(OperatorConfig)}


def test_the_defaults_are_the_operators_own() -> None:
    config, default = VALUES["config"], OperatorConfig()
    plain = {
        "serverArgs": list(default.server_args),
        "runtimeClassName": default.runtime_class_name, "requireMigConfigState": default.require_mig_config_state,
        "collectEngines": default.collect_engines, "engineGraceSeconds": default.engine_grace,
        "jobTtlSeconds": default.job_ttl, "jobBackoffLimit": default.job_backoff_limit,
        "jobPendingLimitSeconds": default.job_pending_limit,
        "resolveDeadlineSeconds": default.resolve_deadline, "buildDeadlineMarginSeconds": default.build_deadline_margin,
        "drainSeconds": default.drain_seconds, "exitTimeoutSeconds": default.exit_timeout,
        "prices": {"currency": default.prices.currency, "perHour": dict(default.prices.per_hour)},
        "spotLabels": dict(default.spot_labels), "jobLabels": dict(default.job_labels),
        "jobAnnotations": dict(default.job_annotations), "jobEnv": dict(default.job_env),
        "jobPriorityClassName": default.job_priority_class_name,
    }
    plain["defaultStore"] = {"uri": default.default_store.uri, "secretRef": {"name": default.default_store.secret},
                             "serviceAccountName": default.default_store.service_account_name}
    plain["activatorReplicas"] = default.activator_replicas
    for step in ("resolve", "build", "prove", "server", "verify", "quality", "activator"):
        resources = getattr(default, f"{step}_resources")
        plain[f"{step}Resources"] = {"requests": dict(resources.requests), "limits": dict(resources.limits)}
    assert {key: config[key] for key in plain} == plain
    assert set(config) == set(plain)


def test_helm_upgrades_the_definition() -> None:
    """Which it does for templates alone; tests/unit/core_spec holds this one against the models."""
    assert not (CHART / "crds").exists()
    assert (CHART / "templates" / "crd.yaml").exists()
