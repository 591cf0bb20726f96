"""Models and data in an OCI registry: a real one with passwords, read by the builder's own code and its command."""

from __future__ import annotations

import base64
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from enginewright_builder.contract import BuildRequest, SignatureRequest, SourceRequest
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.resolve import resolve
from enginewright_builder.sources import oci, registry
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.digest import content_digest
from enginewright_builder.sources.places import as_written
from enginewright_builder.sources.signature import check_signature
from support import oci_registry
from support.artifacts import Artifact, artifact, image, index, member, modelpack, oras, oras_folder, tar
from support.fetched import content, got
from support.in_a_job import resolve_container, resolved
from support.models import mlp
from support.oci_registry import PASSWORD, USER, OciRegistry
from support.signing import new_key, sign

MODEL = {"config.json": b"{}", "model.safetensors": b"w" * 5000, "tokenizer.json": b"[]",
         "1_Pooling/config.json": b"[]", "README.md": b"words"}
BASE = tar({"etc/passwd": b"root", "bin/busybox": b"elf"}, member("bin/sh", tarfile.SYMTYPE, "/bin/busybox"),
           member("dev/null", tarfile.CHRTYPE))
IN_IMAGE = {f"models/{name}": data for name, data in MODEL.items()}
KINDS = {
    "files": (oras(MODEL), ""), "folder": (oras_folder("net", MODEL), "/net"), "raw": (modelpack(MODEL, raw=True), ""),
    "packed": (modelpack(MODEL, raw=False), ""), "image": (image(BASE, tar(IN_IMAGE)), ""),
    "image-zstd": (image(BASE, tar(IN_IMAGE), compression="zstd"), ""),
    "image-elsewhere": (image(BASE, tar({f"opt/net/{name}": data for name, data in MODEL.items()})), "/opt/net"),
    "index": (index((image(tar({"models/model.onnx": b"arm"})), "linux", "arm64"),
                    (image(tar({"models/model.onnx": b"note"}), note="attestation"), "unknown", "unknown"),
                    (image(tar(IN_IMAGE)), "linux", "amd64")), ""),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciRegistry]:
    with oci_registry.running(tmp_path_factory.mktemp("registry")) as found:
        for name, (pushed, _) in KINDS.items():
            found.push(f"team/{name}", "1.0", pushed)
        yield found


@pytest.fixture
def hub(server: OciRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OciRegistry:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nobody"))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def on_volume(tmp_path: Path) -> Path:
    for name, data in MODEL.items():
        (tmp_path / "volume" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "volume" / name).write_bytes(data)
    return tmp_path / "volume"


@pytest.mark.parametrize("kind", KINDS)
def test_however_a_model_was_pushed_it_has_the_digest_that_it_has_on_a_volume(
        kind: str, hub: OciRegistry, on_volume: Path, tmp_path: Path) -> None:
    pushed, path = KINDS[kind]
    folder, digest = got(f"oci://{hub.address}/team/{kind}:1.0{path}", tmp_path)
    assert content(folder) == MODEL
    assert digest == content_digest(on_volume)
    assert digest == got(f"oci://{hub.address}/team/{kind}@{pushed.digest}{path}", tmp_path / "again")[1]
    assert not [left for left in (tmp_path / "scratch").iterdir() if left not in (folder, *folder.parents)]


@pytest.mark.parametrize(("kind", "path"), [
    ("files", "tokenizer.json"), ("folder", "net/tokenizer.json"), ("raw", "tokenizer.json"),
    ("packed", "tokenizer.json"), ("image", "models/tokenizer.json"),
])
def test_one_file_can_be_meant(kind: str, path: str, hub: OciRegistry, tmp_path: Path) -> None:
    file, _ = got(f"oci://{hub.address}/team/{kind}:1.0/{path}", tmp_path, field="spec.accuracy.evaluation.uri")
    assert (file.name, file.read_bytes()) == ("tokenizer.json", b"[]")


@pytest.mark.parametrize(("name", "reason", "said"), [
    ("team/none:1.0", "SourceNotFound", "team/none has no 1.0 (HTTP 404 MANIFEST_UNKNOWN)"),
    ("team/files:2.0", "SourceNotFound", "team/files has no 2.0; it has 1.0 (HTTP 404 MANIFEST_UNKNOWN)"),
    (f"team/files@sha256:{'0' * 64}", "SourceNotFound", "MANIFEST_UNKNOWN"),
    ("team/files:1.0/none", "SourceNotFound", "at its top is 1_Pooling, README.md, config.json"),
    ("team/image-elsewhere:1.0", "SourceNotFound", "has no /models; at its top is bin, dev, etc, opt"),
])
def test_what_is_not_there_is_told(name: str, reason: str, said: str, hub: OciRegistry, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        got(f"oci://{hub.address}/{name}", tmp_path)
    assert (caught.value.reason, caught.value.field) == (reason, "spec.source.uri")
    assert said in caught.value.message
    assert caught.value.remedy


def docker_config(*keys: str, password: str = PASSWORD) -> str:
    entry = {"auth": base64.b64encode(f"{USER}:{password}".encode()).decode()}
    return json.dumps({"auths": dict.fromkeys(keys, entry)})


@pytest.mark.parametrize(("entries", "may"), [
    ({".dockerconfigjson": "{address}"}, True), ({".dockerconfigjson": "http://{address}/v2/"}, True),
    ({".dockerconfigjson": "{address}/team"}, True), ({".dockerconfigjson": "{address}/other"}, False),
    ({"REGISTRY_USERNAME": USER, "REGISTRY_PASSWORD": f"{PASSWORD}\n"}, True),
    ({"REGISTRY_USERNAME": USER, "REGISTRY_PASSWORD": "wrong"}, False), ({}, False),
])
def test_who_may_not_read_is_told_where_credentials_go(entries: dict[str, str], may: bool, hub: OciRegistry,
                                                       tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTRY_USERNAME", "REGISTRY_PASSWORD"):
        monkeypatch.delenv(name)
    for name, value in entries.items():
        config = name == ".dockerconfigjson"
        monkeypatch.setenv(name, docker_config(value.format(address=hub.address)) if config else value)
    if may:
        assert content(got(f"oci://{hub.address}/team/files:1.0", tmp_path)[0]) == MODEL
        return
    with pytest.raises(UserError) as caught:
        got(f"oci://{hub.address}/team/files:1.0", tmp_path)
    assert caught.value.reason == "SourceAccessDenied"
    assert "spec.source.secretRef" in caught.value.remedy
    assert "wrong" not in caught.value.message


def test_what_docker_login_left_behind_does_by_hand(hub: OciRegistry, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTRY_USERNAME", "REGISTRY_PASSWORD"):
        monkeypatch.delenv(name)
    (tmp_path / "nobody").mkdir()
    (tmp_path / "nobody/config.json").write_text(docker_config(hub.address))
    assert content(got(f"oci://{hub.address}/team/files:1.0", tmp_path)[0]) == MODEL


def test_all_is_of_one_manifest_though_the_tag_moves(hub: OciRegistry, tmp_path: Path) -> None:
    other = {**MODEL, "model.safetensors": b"others"}
    hub.push("team/moving", "latest", oras(MODEL))

    def move(fraction: float, detail: str) -> None:
        hub.push("team/moving", "latest", oras(other))

    path, digest = got(f"oci://{hub.address}/team/moving:latest", tmp_path, progress=move)
    assert content(path) == MODEL
    with pytest.raises(UserError) as caught:  # as the build would, which holds the source to what was resolved
        got(f"oci://{hub.address}/team/moving:latest", tmp_path / "build", digest=digest)
    assert caught.value.reason == "DigestMismatch"


def test_a_blob_that_is_damaged_in_the_registry_is_told(hub: OciRegistry, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Read twice, for it may have been damaged on its way."""
    monkeypatch.setattr(registry, "ATTEMPTS", 3)
    damaged = oras({**MODEL, "model.safetensors": b"to be damaged"})
    hub.push("team/damaged", "1", damaged)
    hub.lose(next(digest for digest, data in damaged.blobs.items() if data == b"to be damaged")).write_bytes(b"x" * 13)
    with pytest.raises(UserError) as caught:
        oci.OciFetcher(pause=lambda seconds: None).fetch(
            f"oci://{hub.address}/team/damaged:1", FetchContext(mounts={}, scratch=tmp_path / "scratch"))
    assert caught.value.reason == "SourceCorrupt"
    assert "other bytes than its digest is of" in caught.value.message
    assert not content(tmp_path / "scratch")


def test_more_than_there_is_room_for_is_refused_before_it_is_downloaded(hub: OciRegistry, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        got(f"oci://{hub.address}/team/files:1.0", tmp_path, size_limit=100)
    assert caught.value.reason == "SourceTooLarge"
    assert not content(tmp_path)


@pytest.mark.parametrize(("pushed", "reason", "said"), [
    (oras({"config.json": b"{}", "pytorch_model.bin": b"p"}), "PickleRefused", "pickle only (pytorch_model.bin)"),
    (oras_folder("net", {"pytorch_model.bin": b"p"}), "PickleRefused", "pickle only (net/pytorch_model.bin)"),
    (oras_folder("net", MODEL), "FormatUnknown", "but in folders: net/model.safetensors"),
    (artifact([(b"x", "application/vnd.ollama.image.model", {})]), "FormatUnknown", "names no file"),
    (artifact([(b"\x28\xb5\x2f\xfd", "application/vnd.cncf.model.weight.v1.tar+zstd", {})]), "SourceCorrupt",
     "no whole archive"),
    (image(tar({"models/a": b""}, member("models/b", tarfile.SYMTYPE, "../etc/passwd"))), "SourceUriInvalid",
     "models/b is a link to etc/passwd"),
])
def test_what_is_no_model_is_told(pushed: Artifact, reason: str, said: str, hub: OciRegistry, tmp_path: Path) -> None:
    hub.push("team/no-model", "1", pushed)
    with pytest.raises(UserError) as caught:
        got(f"oci://{hub.address}/team/no-model:1", tmp_path)
    assert caught.value.reason == reason
    assert said in caught.value.message
    assert caught.value.remedy


def test_a_signature_of_the_folder_is_of_what_was_pushed(hub: OciRegistry, on_volume: Path, tmp_path: Path) -> None:
    new_key(tmp_path / "ours")
    sign(on_volume, on_volume / "model.sig", tmp_path / "ours.key")
    signed = content(on_volume)
    hub.push("team/signed", "1", oras(signed))
    hub.push("team/signed", "2", oras({**signed, "tokenizer.json": b"other"}))
    asked = SignatureRequest(key_path=str(tmp_path / "ours.pub"), key_name="ConfigMap keys/ours.pub")

    def check(path: Path) -> None:
        check_signature(path, asked)

    assert got(f"oci://{hub.address}/team/signed:1", tmp_path, check=check)[1] == content_digest(on_volume)
    with pytest.raises(UserError) as caught:
        got(f"oci://{hub.address}/team/signed:2", tmp_path, check=check)
    assert caught.value.reason == "SignatureInvalid"


def test_a_registry_that_does_not_answer_is_tried_again_later(hub: OciRegistry, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ATTEMPTS", 1)
    with pytest.raises(TransientError) as caught:
        got("oci://127.0.0.1:9/team/files:1.0", tmp_path)
    assert caught.value.reason == "SourceUnreachable"
    assert "REGISTRY_PLAIN_HTTP" in caught.value.remedy


def test_a_resolve_step_takes_model_and_samples_from_a_registry(hub: OciRegistry, tmp_path: Path) -> None:
    """The messages are as on a volume."""
    graph = mlp().SerializeToString()
    hub.push("team/tiny", "1", oras({"model.onnx": graph}))
    hub.push("team/broken", "1", oras({"net/model.onnx": b"no graph"}))
    (tmp_path / "store").mkdir()
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/model.onnx").write_bytes(graph)
    request = BuildRequest(model_name="tiny", source=SourceRequest(uri=f"oci://{hub.address}/team/tiny:1"),
                           store_path=str(tmp_path / "store"))
    found = resolve(request, tmp_path / "scratch")
    assert (found.source.format, found.source.digest) == ("onnx", content_digest(tmp_path / "volume"))
    broken = replace(request, source=SourceRequest(uri=f"oci://{hub.address}/team/broken:1/net"))
    with pytest.raises(UserError) as caught:
        resolve(broken, tmp_path / "other")
    told = as_written(caught.value.report(), broken, tmp_path / "other")
    assert str(tmp_path) not in f"{told.message}{told.value}{told.remedy}"
    assert f"oci://{hub.address}/team/broken:1/net/model.onnx" in told.value


def test_a_job_reads_with_the_secret_that_image_pulls_have(server: OciRegistry, tmp_path: Path) -> None:
    server.push("team/job", "1", oras({"model.onnx": mlp().SerializeToString()}))
    uri = f"oci://{server.address}/team/job:1"
    secret = {".dockerconfigjson": docker_config(server.address), "REGISTRY_PLAIN_HTTP": server.address}
    outcome, _ = resolved(uri, resolve_container(uri, "pulls"), {"pulls": secret}, tmp_path / "job")
    assert outcome.ok, outcome.error
