"""Engines in a bucket: built into it, fetched by replicas, found by the next model, without a claim for engines."""

from __future__ import annotations

import json
from pathlib import Path

from enginewright.core.manifests import proven_digest
from enginewright.plugin.report import checked
from enginewright.plugin.report_pod import reader
from support import object_store
from support.bench import Bench
from support.within_reach import make_secret, node_address

IN_A_BUCKET = {"uri": "s3://engines/team-a", "secretRef": {"name": "engine-bucket"}}
SERVERS = "app.kubernetes.io/component=server"


def test_an_engine_is_built_into_a_bucket_and_served_from_there(bench: Bench, tmp_path: Path) -> None:
    with object_store.running(tmp_path, node_address(bench)) as store:
        store.put("engines", {"beside": b"not ours"})
        make_secret(bench, "engine-bucket", store.environment)
        make_secret(bench, "stranger", {**store.environment, "AWS_SECRET_ACCESS_KEY": "wrong"})
        bench.apply("first", store=IN_A_BUCKET)
        bench.apply("refused", store={**IN_A_BUCKET, "secretRef": {"name": "stranger"}})
        told = bench.wait_reason("refused", "SourceResolved", "StoreAccessDenied")
        assert "spec.store.secretRef" in told["message"]
        fingerprint = bench.wait("first", "condition=Ready")["status"]["fingerprint"]
        assert (store.root / "engines" / "team-a" / fingerprint / "manifest.json").is_file()
        (pod,) = bench.get("pod", f"enginewright.io/model=first,{SERVERS}")
        assert {next(iter(set(volume) - {"name"})) for volume in pod["spec"]["volumes"]} == {"emptyDir"}
        bench.kube("delete", "pod", "-n", bench.namespace, pod["metadata"]["name"], "--wait=true")
        bench.wait("first", "condition=Ready")
        bench.apply("second", store=IN_A_BUCKET)
        second = bench.wait("second", "condition=Ready")
        assert second["status"]["engine"]["cacheHit"]
        assert bench.get("job", "enginewright.io/model=second,app.kubernetes.io/component=build") == []
        (deployment,) = bench.get("deployment", f"enginewright.io/model=second,{SERVERS}")
        bench.kube("apply", "-n", bench.namespace, "-f", "-", stdin=json.dumps(
            {**reader("second", deployment, "report.html"), "metadata": {"name": "page"}}))
        bench.kube("wait", "pod/page", "-n", bench.namespace, "--for=jsonpath={.status.phase}=Succeeded",
                   "--timeout=240s")
        digest = proven_digest(deployment["spec"]["template"]["spec"])
        assert b"<html" in checked(bench.kube("logs", "page", "-n", bench.namespace), digest, "report.html")
