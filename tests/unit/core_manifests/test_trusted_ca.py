"""A company's certificates in what fetches and publishes."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core.config import OperatorConfig, TrustedCA
from enginewright.core.manifests import gc_job
from enginewright.plugin.report_pod import reader
from support.children import children_of

JSON = dict[str, Any]
BASE: JSON = {"source": {"uri": "https://models.example.com/a.onnx"}, "placement": {"accelerator": "cpu"}}
SITE = OperatorConfig(trusted_ca=TrustedCA(config_map="company-ca", key="bundle.pem"))
FILE = "/trusted-ca/bundle.pem"
VOLUME = {"name": "trusted-ca",
          "configMap": {"name": "company-ca", "items": [{"key": "bundle.pem", "path": "bundle.pem"}]}}


def children(config: OperatorConfig = SITE, **spec: Any) -> dict[str, JSON]:
    return children_of("m", {**BASE, **spec}, config).all()


def variables(container: JSON) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}


def trusts(pod: JSON, container: JSON) -> bool:
    """All of it or nothing."""
    found = (VOLUME in pod["volumes"], any(mount["name"] == "trusted-ca" for mount in container["volumeMounts"]),
             variables(container).get("SSL_CERT_FILE") == FILE, variables(container).get("REQUESTS_CA_BUNDLE") == FILE)
    assert len(set(found)) == 1, found
    return found[0]


@pytest.mark.parametrize("step", ["resolve_job", "build_job"])
def test_jobs_trust_them(step: str) -> None:
    pod = children()[step]["spec"]["template"]["spec"]
    assert all(trusts(pod, container) for container in pod["containers"])
    plain = children(OperatorConfig())[step]["spec"]["template"]["spec"]
    assert not any(trusts(plain, container) for container in plain["containers"])


def test_the_collector_trusts_them() -> None:
    pod = gc_job("team-a", "s3://engines/a", "uid", ("f" * 64,), SITE)["spec"]["template"]["spec"]
    assert all(trusts(pod, container) for container in pod["containers"])


@pytest.mark.parametrize(("store", "expected"), [("s3://engines/a", True), ("pvc://engines", False)])
def test_replicas_trust_them_where_they_fetch_from_a_bucket(store: str, expected: bool) -> None:
    deployment = children(store={"uri": store})["deployment"]
    pod = deployment["spec"]["template"]["spec"]
    verify, *_ = pod["initContainers"]
    assert trusts(pod, verify) is expected
    assert not any("SSL_CERT_FILE" in variables(container) for container in pod["containers"])
    report = reader("m", deployment, "report.html")["spec"]
    assert report["containers"][0]["name"] == "report"
    assert (VOLUME in report["volumes"]) is expected
    assert ("SSL_CERT_FILE" in variables(report["containers"][0])) is expected


def test_a_revision_keeps_its_name() -> None:
    """An installation that gets certificates of its own proves nothing again."""
    store = {"uri": "s3://engines/a"}
    before, after = (children(config, store=store)["deployment"]["metadata"]["name"]
                     for config in (OperatorConfig(), SITE))
    assert before == after


def test_what_an_object_says_of_its_own_jobs_comes_first() -> None:
    template = {"spec": {"containers": [{"name": "build", "env": [{"name": "SSL_CERT_FILE", "value": "/mine"}]}]}}
    (container,) = children(engine={"podTemplate": template})["build_job"]["spec"]["template"]["spec"]["containers"]
    assert variables(container)["SSL_CERT_FILE"] == "/mine"
    assert variables(container)["REQUESTS_CA_BUNDLE"] == FILE
