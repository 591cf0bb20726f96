"""The pod that brings a report out of the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from enginewright.plugin.report import PRINT, PRINT_FROM_BUCKET, reader, unpack
from enginewright.plugin.wishes import WishError

GOLDENS = Path(__file__).resolve().parents[2] / "golden"


def deployments() -> list[Path]:
    return [path for path in GOLDENS.rglob("*.yaml") if "verify" in path.read_text()]


@pytest.mark.parametrize("path", deployments(), ids=lambda path: path.stem)
def test_it_sees_the_engine_as_the_replica_does_and_no_more(path: Path) -> None:
    found = [one for one in yaml.safe_load_all(path.read_text()) if one and one["kind"] == "Deployment"]
    for deployment in found:
        pod = reader("minilm", deployment, "report.html")["spec"]
        (container,) = pod["containers"]
        if "--from" not in deployment["spec"]["template"]["spec"]["initContainers"][0]["args"]:
            assert [mount["name"] for mount in container["volumeMounts"]] == ["engine"]
            assert container["volumeMounts"][0]["readOnly"] is True
            assert [volume["name"] for volume in pod["volumes"]] == ["engine"]
            assert container["command"][-1].startswith("/store/")
            assert container["command"][-1].endswith("/report.html")
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert pod["automountServiceAccountToken"] is False


def test_from_a_bucket_it_reads_as_the_replica_does() -> None:
    (deployment,) = yaml.safe_load_all((GOLDENS / "manifests" / "bucket" / "deployment.yaml").read_text())
    pod = reader("minilm", deployment, "report.html")["spec"]
    (container,) = pod["containers"]
    fingerprint = deployment["metadata"]["annotations"]["enginewright.io/fingerprint-full"]
    assert container["command"] == ["python3", "-c", PRINT_FROM_BUCKET, "s3://engines/team-a", fingerprint,
                                    "report.html"]
    assert container["envFrom"] == [{"prefix": "ENGINEWRIGHT_STORE_", "secretRef": {"name": "engine-bucket"}}]
    assert pod["serviceAccountName"] == "engines"
    assert (container["volumeMounts"], pod["volumes"]) == ([], [])


def test_there_are_such_goldens() -> None:
    assert deployments()


def test_what_is_printed_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(b"<p>\xc3\xa9</p>\n" * 1000)
    command = [sys.executable, "-c", PRINT, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert unpack(done.stdout, "report.html") == file.read_bytes()


@pytest.mark.parametrize("text", ["", "Traceback\nFileNotFoundError: /store/x/report.html\n", "aGVsbG8="])
def test_what_is_no_report_is_told_with_its_last_words(text: str) -> None:
    with pytest.raises(WishError, match=r"report\.html could not be read from the store: "):
        unpack(text, "report.html")


def test_a_deployment_of_somebody_else() -> None:
    with pytest.raises(WishError, match="has no container verify"):
        reader("m", {"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": []}}}}, "report.html")
