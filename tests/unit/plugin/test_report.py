"""The pod that brings a report out of the store."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from pathlib import Path

import pytest
import yaml

from enginewright.core.manifests import proven_digest
from enginewright.plugin.report import checked, traces
from enginewright.plugin.report_pod import PRINT, reader
from enginewright.plugin.wishes import WishError
from enginewright_builder.contract import FileEntry, Manifest, Outcome

GOLDENS = Path(__file__).resolve().parents[2] / "golden"


def deployments() -> list[Path]:
    return [path for path in GOLDENS.rglob("*.yaml") if "verify" in path.read_text()]


@pytest.mark.parametrize("path", deployments(), ids=lambda path: path.stem)
def test_it_sees_the_engine_as_the_replica_does_and_no_more(path: Path) -> None:
    found = [one for one in yaml.safe_load_all(path.read_text()) if one and one["kind"] == "Deployment"]
    for deployment in found:
        pod = reader("minilm", deployment, "report.html")["spec"]
        (container,) = pod["containers"]
        template = deployment["spec"]["template"]["spec"]
        *program, store, fingerprint, digest, file = container["command"]
        assert (program, digest, file) == (PRINT, proven_digest(template), "report.html")
        assert fingerprint == deployment["metadata"]["annotations"]["enginewright.io/fingerprint-full"]
        if store.startswith("/"):
            assert [mount["name"] for mount in container["volumeMounts"]] == ["engine-store"]
            assert container["volumeMounts"][0]["readOnly"] is True
            assert [volume["name"] for volume in pod["volumes"]] == ["engine-store"]
            assert store.startswith("/store/")
            assert store.endswith(f"/{fingerprint}")
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert pod["automountServiceAccountToken"] is False


def test_from_a_bucket_it_reads_as_the_replica_does() -> None:
    (deployment,) = yaml.safe_load_all((GOLDENS / "manifests" / "bucket" / "deployment.yaml").read_text())
    pod = reader("minilm", deployment, "report.html")["spec"]
    (container,) = pod["containers"]
    fingerprint = deployment["metadata"]["annotations"]["enginewright.io/fingerprint-full"]
    assert container["command"] == [*PRINT, "s3://engines/team-a", fingerprint, f"sha256:{'d' * 64}", "report.html"]
    assert container["envFrom"] == [{"prefix": "ENGINEWRIGHT_STORE_", "secretRef": {"name": "engine-bucket"}}]
    assert pod["serviceAccountName"] == "engines"
    assert (container["volumeMounts"], pod["volumes"]) == ([], [])


def test_there_are_such_goldens() -> None:
    assert deployments()


PAGE = b"<p>\xc3\xa9</p>\n" * 1000
MANIFEST = Manifest(fingerprint="ab" * 32, created="", outcome=Outcome(kind="build", ok=True), files={
    "report.html": FileEntry(sha256=hashlib.sha256(PAGE).hexdigest(), bytes=len(PAGE))}).to_json().encode()
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


def printed(*parts: bytes) -> str:
    return "\n".join(base64.b64encode(zlib.compress(part)).decode() for part in parts)


def test_what_is_printed_comes_back_as_it_was() -> None:
    assert checked(printed(MANIFEST, PAGE), DIGEST, "report.html") == PAGE


@pytest.mark.parametrize("text", ["", "Traceback\nFileNotFoundError: /store/x/report.html\n", "aGVsbG8=",
                                  printed(MANIFEST), printed(MANIFEST, PAGE, PAGE), printed(bytes(9 << 20), PAGE)])
def test_what_is_no_report_is_told_with_its_last_words(text: str) -> None:
    with pytest.raises(WishError, match=r"report\.html could not be read from the store: "):
        checked(text, DIGEST, "report.html")


@pytest.mark.parametrize(("manifest", "page", "digest", "file", "said"), [
    (MANIFEST, PAGE, f"sha256:{'0' * 64}", "report.html", "differs from the proven one"),
    (MANIFEST, PAGE, "", "report.html", "differs from the proven one"),
    (MANIFEST, PAGE + b"<script>", DIGEST, "report.html", "after the build wrote it"),
    (MANIFEST, PAGE, DIGEST, "other.html", "not in the engine's manifest"),
    (b"{", PAGE, f"sha256:{hashlib.sha256(b'{').hexdigest()}", "report.html", "not in the engine's manifest"),
])
def test_what_was_exchanged_is_not_shown(manifest: bytes, page: bytes, digest: str, file: str, said: str) -> None:
    with pytest.raises(WishError, match=said):
        checked(printed(manifest, page), digest, file)


def test_a_deployment_of_an_earlier_release() -> None:
    path = GOLDENS / "manifests" / "cpu" / "deployment.yaml"
    (deployment,) = yaml.safe_load_all(path.read_text())
    (verify,) = deployment["spec"]["template"]["spec"]["initContainers"]
    verify["args"] = verify["args"][:-2]
    with pytest.raises(WishError, match="made by an earlier release"):
        reader("m", deployment, "report.html")


def test_a_deployment_of_somebody_else() -> None:
    with pytest.raises(WishError, match="has no container verify"):
        reader("m", {"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": []}}}}, "report.html")


def record(*profiles: dict[str, object]) -> bytes:
    return json.dumps({"profiles": [{"trace": "", "problem": "", "notes": [], **one} for one in profiles]}).encode()


def test_traces_are_those_that_the_record_names() -> None:
    assert traces("m", record({"trace": "profile/a.trace.json.gz"}, {}, {"trace": "profile/b.trace.json.gz"})) == [
        "profile/a.trace.json.gz", "profile/b.trace.json.gz"]


@pytest.mark.parametrize(("found", "said"), [
    (record(), "has no traces: write engine.profile: true into its spec"), (b"{}", "write engine.profile: true"),
    (record({"problem": "it fell"}), "has no traces: it fell"),
    (record({"notes": ["There is no trace: too large."]}), "has no traces: There is no trace: too large"),
])
def test_why_there_are_no_traces(found: bytes, said: str) -> None:
    with pytest.raises(WishError, match=said):
        traces("m", found)
