"""Reading a registry where it does not do as usual: a fake of one. The usual is in
``tests/integration/test_oci_registry.py``, from a real one."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from enginewright_builder.errors import BuilderError, TransientError, UserError
from enginewright_builder.sources import registry
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.oci import OciFetcher
from support.artifacts import IMAGE_CONFIG, IMAGE_LAYER, TITLE, Artifact, artifact, image, index, oras, tar
from support.fake_registry import BASIC, PASSWORD, REPOSITORY, USER, FakeRegistry, serving

MODEL = {"config.json": b"{}", "model.safetensors": b"weights" * 100, "tokenizer.json": b"[]"}
BEARER = 'Bearer realm="{realm}",service="registry, of tests",scope="repository:acme/net:pull"'
CHALLENGES = ('Basic realm="tests"', BEARER, f'Basic realm="tests", {BEARER}', 'bearer realm="{realm}"')


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRegistry]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nobody"))
    with serving(FakeRegistry({"1": oras(MODEL)})) as state:
        yield state


def got(fake: FakeRegistry, tmp_path: Path, reference: str = "1",
        pauses: list[float] | None = None) -> dict[str, bytes]:
    context = FetchContext(mounts={}, scratch=tmp_path / "scratch")
    told = list[float]() if pauses is None else pauses
    folder = OciFetcher(pause=told.append).fetch(f"oci://{fake.address}/{REPOSITORY}:{reference}", context)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(fake: FakeRegistry, tmp_path: Path, reference: str = "1") -> BuilderError:
    with pytest.raises(BuilderError) as caught:
        got(fake, tmp_path, reference)
    assert not [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()], "nothing is left of it"
    return caught.value


def log_in(monkeypatch: pytest.MonkeyPatch, password: str = PASSWORD) -> None:
    monkeypatch.setenv("REGISTRY_USERNAME", USER)
    monkeypatch.setenv("REGISTRY_PASSWORD", password)


@pytest.mark.parametrize("challenge", CHALLENGES)
def test_user_and_password_or_a_token_for_them(challenge: str, fake: FakeRegistry, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    fake.challenge = challenge
    log_in(monkeypatch)
    assert got(fake, tmp_path) == MODEL
    token = "earer" in challenge
    assert len(fake.of("tokens")) == token
    assert {one.authorization for one in fake.of("registry")} == {"", "Bearer token-1" if token else BASIC}


@pytest.mark.parametrize("challenge", CHALLENGES)
@pytest.mark.parametrize("password", ["", "wrong"])
def test_who_may_not_read_is_told(challenge: str, password: str, fake: FakeRegistry, tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    fake.challenge = challenge
    if password:
        log_in(monkeypatch, password)
    error = refused(fake, tmp_path)
    assert (error.reason, error.field) == ("SourceAccessDenied", "spec.source.uri")
    assert "kubernetes.io/dockerconfigjson" in error.remedy


@pytest.mark.parametrize("challenge", ['Digest realm="tests"', "Negotiate", ""])
def test_a_password_is_not_sent_to_who_did_not_ask_for_one(challenge: str, fake: FakeRegistry, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    fake.challenge = challenge
    log_in(monkeypatch)
    if challenge:
        assert refused(fake, tmp_path).reason == "SourceAccessDenied"
    else:
        assert got(fake, tmp_path) == MODEL
    assert {one.authorization for one in fake.asked} == {""}


def test_a_token_that_ran_out_is_asked_for_anew(fake: FakeRegistry, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    fake.challenge, fake.uses = BEARER, 2
    log_in(monkeypatch)
    assert got(fake, tmp_path) == MODEL
    assert fake.good == 2


def test_no_password_is_sent_to_where_blobs_are_redirected(fake: FakeRegistry, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    fake.challenge, fake.redirects, fake.cut = BEARER, True, 1
    log_in(monkeypatch)
    assert got(fake, tmp_path) == MODEL
    assert len(fake.of("storage")) == len(MODEL) + 1, "each file, and what was left of the one that broke"
    assert {one.authorization for one in fake.of("storage")} == {""}
    assert [one.range for one in fake.of("storage") if one.range] == ["bytes=1-"], "a part is asked for there as well"


def test_a_broken_connection_is_taken_up_where_it_broke(fake: FakeRegistry, tmp_path: Path) -> None:
    """As often as it gets further, if not for ever."""
    data = b"0123456789abcdef" * 64
    fake.artifacts["big"], fake.cut = oras({"model.onnx": data}), 7
    pauses = list[float]()
    assert got(fake, tmp_path, "big", pauses) == {"model.onnx": data}
    asked = [one.range for one in fake.asked if "/blobs/" in one.path]
    assert asked == ["", *(f"bytes={1024 - (1024 >> part)}-" for part in range(1, 8))]
    assert pauses == [0.5] * 7


def test_a_registry_that_knows_no_parts_is_read_anew(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.ranges, fake.cut = False, 1
    assert got(fake, tmp_path) == MODEL


def test_one_that_never_gets_further_is_tried_again_later(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.ranges, fake.cut = False, 1000
    error = refused(fake, tmp_path)
    assert isinstance(error, TransientError)
    assert error.reason == "SourceUnreachable"


@pytest.mark.parametrize("trouble", ["wrong", "refused"])
def test_what_goes_wrong_once_is_asked_for_again(trouble: str, fake: FakeRegistry, tmp_path: Path) -> None:
    setattr(fake, trouble, 1)
    assert got(fake, tmp_path) == MODEL


def test_other_bytes_than_the_digest_is_of_are_told(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.wrong = 1000
    error = refused(fake, tmp_path)
    assert isinstance(error, UserError)
    assert (error.reason, "other bytes" in error.message) == ("SourceCorrupt", True)
    assert len([one for one in fake.asked if "/blobs/" in one.path]) == 2


def test_a_blob_longer_than_the_manifest_says_is_not_read_to_its_end(fake: FakeRegistry, tmp_path: Path) -> None:
    lied = oras(MODEL)
    fake.artifacts["1"] = Artifact(lied.manifest.replace(b'"size": 700', b'"size": 10'), lied.blobs)
    assert "longer than the 10 bytes" in refused(fake, tmp_path).message


@pytest.mark.parametrize("change", ["stated", "content"])
def test_a_manifest_is_held_against_its_digest(change: str, fake: FakeRegistry, tmp_path: Path) -> None:
    asked = fake.artifacts["1"].digest
    if change == "content":
        fake.artifacts = {asked: oras({"model.onnx": b"another"})}
    else:
        fake.stated = f"sha256:{'0' * 64}"
    error = refused(fake, tmp_path, "1" if change == "stated" else f"1@{asked}")
    assert error.reason == "SourceCorrupt"
    assert "the manifest that the registry gives is not sha256:" in error.message


def test_a_registry_without_its_own_blobs_is_told(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.artifacts["1"] = Artifact(fake.artifacts["1"].manifest, {})
    error = refused(fake, tmp_path)
    assert (error.reason, "BLOB_UNKNOWN" in error.message) == ("SourceNotFound", True)


@pytest.mark.parametrize(("platforms", "chosen"), [
    ((("linux", "arm64"), ("linux", "amd64")), 1), ((("linux", "arm64"), ("linux", "riscv64")), 0),
    ((("unknown", "unknown"), ("windows", "amd64")), 1),
])
def test_of_several_platforms_the_same_one_is_read_everywhere(platforms: tuple[tuple[str, str], ...], chosen: int,
                                                              fake: FakeRegistry, tmp_path: Path) -> None:
    images = [image(tar({"models/model.onnx": str(number).encode()})) for number in range(len(platforms))]
    fake.artifacts = {"1": index(*((one, *platform) for one, platform in zip(images, platforms, strict=True))),
                      **{one.digest: one for one in images}}
    assert got(fake, tmp_path) == {"model.onnx": str(chosen).encode()}


@pytest.mark.parametrize(("manifest", "reason", "said"), [
    (b"<html>", "SourceCorrupt", "is no JSON"), (b"[]", "SourceCorrupt", "is no object"),
    (b'{"schemaVersion": 1, "fsLayers": []}', "FormatUnknown", "no artifact with layers (schema 1)"),
    (b'{"manifests": [{"digest": "sha256:../../x"}]}', "SourceCorrupt", "no SHA-256 digest"),
    (b'{"layers": [{"digest": "sha256:../../x", "size": 1}]}', "FormatUnknown", "without a size or a SHA-256 digest"),
    (b'{"layers": ["x"]}', "FormatUnknown", "without a size or a SHA-256 digest"),
    (b'{"layers": []}', "SourceNotFound", "nothing that a build reads"),
    (b" " * (registry.MANIFEST_BYTES + 1), "SourceCorrupt", "more than 4194304 bytes"),
])
def test_manifests_that_make_no_sense(manifest: bytes, reason: str, said: str, fake: FakeRegistry,
                                      tmp_path: Path) -> None:
    fake.artifacts = {"1": Artifact(manifest, {})}
    error = refused(fake, tmp_path)
    assert error.reason == reason
    assert said in error.message


@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "/etc/x", "a/../../x", "x" * 251])
def test_names_that_lead_elsewhere_are_refused_before_anything_is_downloaded(name: str, fake: FakeRegistry,
                                                                             tmp_path: Path) -> None:
    fake.artifacts = {"1": oras({name: b"x", "model.onnx": b"o"})}
    assert refused(fake, tmp_path).reason == "SourceUriInvalid"
    assert not any("/blobs/" in one.path for one in fake.asked)


@pytest.mark.parametrize("names", [("config.json", "pytorch_model.bin"), ("weights.ckpt",)])
def test_pickles_are_refused_before_they_are_downloaded(names: tuple[str, ...], fake: FakeRegistry,
                                                        tmp_path: Path) -> None:
    fake.artifacts = {"1": oras(dict.fromkeys(names, b"p"))}
    assert refused(fake, tmp_path).reason == "PickleRefused"
    assert not any("/blobs/" in one.path for one in fake.asked)


@pytest.mark.parametrize("pushed", [
    artifact([(b"onnx", IMAGE_LAYER, {TITLE: "model.onnx"})], (b"{}", IMAGE_CONFIG)),
    artifact([(b"onnx", IMAGE_LAYER, {TITLE: "model.onnx"})], (b'{"a": 1}', IMAGE_CONFIG), artifactType="a/b"),
])
def test_what_only_looks_like_an_image_is_none(pushed: Artifact, fake: FakeRegistry, tmp_path: Path) -> None:
    """For registries that know nothing else."""
    fake.artifacts = {"1": pushed}
    assert got(fake, tmp_path) == {"model.onnx": b"onnx"}


def test_what_is_not_meant_is_not_downloaded(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.artifacts = {"1": artifact([(b"large", "a/b", {"org.opencontainers.image.title": "model/model.onnx"}),
                                     (b"small", "a/b", {"org.opencontainers.image.title": "data/samples.npz"})])}
    context = FetchContext(mounts={}, scratch=tmp_path / "scratch", field="spec.accuracy.evaluation.uri")
    file = OciFetcher().fetch(f"oci://{fake.address}/{REPOSITORY}:1/data/samples.npz", context)
    assert file.read_bytes() == b"small"
    assert len([one for one in fake.asked if "/blobs/" in one.path]) == 1


def certificate(folder: Path) -> Path:
    """Of 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a registry of tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256()))
    pem = serialization.Encoding.PEM
    (folder / "tls.pem").write_bytes(made.public_bytes(pem) + key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return folder / "tls.pem"


@pytest.fixture
def encrypted(fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """An address other than this machine's own, to which nothing is encrypted."""
    monkeypatch.setattr(registry, "is_loopback", lambda name: False)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate(tmp_path))
    with serving(FakeRegistry({"1": oras(MODEL)}, tls=tls)) as state:
        yield state


def test_a_registry_is_spoken_to_by_tls_with_a_certificate_that_is_trusted(
        encrypted: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ATTEMPTS", 1)
    error = refused(encrypted, tmp_path)
    assert (error.reason, "certificate verify failed" in error.message) == ("SourceUnreachable", True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.pem"))
    assert got(encrypted, tmp_path) == MODEL
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    assert refused_for_its_environment(encrypted, tmp_path) == "SSL_CERT_FILE or SSL_CERT_DIR cannot be used"


def refused_for_its_environment(fake: FakeRegistry, tmp_path: Path) -> str:
    with pytest.raises(UserError) as caught:
        got(fake, tmp_path / "none")
    assert (caught.value.reason, caught.value.field) == ("CredentialsInvalid", "spec.source.secretRef")
    return caught.value.message.partition(":")[0]


@pytest.mark.parametrize("server", ["storage", "tokens"])
def test_nothing_goes_on_unencrypted_that_began_encrypted(server: str, encrypted: FakeRegistry, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.pem"))
    log_in(monkeypatch)
    encrypted.redirects, encrypted.challenge = server == "storage", BEARER if server == "tokens" else ""
    error = refused(encrypted, tmp_path)
    assert (error.reason, "encrypted" in error.message) == ("SourceUriInvalid", True)
    assert not encrypted.of(server)


@pytest.mark.parametrize(("host", "named", "plain"), [
    ("127.0.0.1:5000", "", True), ("[::1]:5000", "", True), ("localhost", "", True), ("registry.example", "", False),
    ("registry.storage:5000", "registry.storage:5000", True), ("registry.storage:5001", "registry.storage:5000", False),
    ("b.example", "a.example, B.example\n", True), ("127.0.0.1.example", "", False),
])
def test_who_is_spoken_to_without_tls(host: str, named: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PLAIN_HTTP", named)
    assert registry._is_plain(host) is plain


@pytest.mark.parametrize("uri", [
    "oci://registry.example/net", "oci://registry.example/net:", "oci://registry.example/Net:1", "oci://acme/net:1",
    "oci://registry.example:99999/net:1", "oci://registry.example/net@sha256:abc", "oci://registry.example:1",
    "oci://user:password@registry.example/net:1", "oci://registry.example/a//b:1", "oci:///net:1",
    "oci://registry.example/net:1/../x", "oci://registry.example/net:1/%2e%2e/x", "oci://registry.example/net:1?x",
    "oci://registry.example/net:1:2", f"oci://registry.example/net:{'a' * 129}",
])
def test_what_names_no_artifact_is_told(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        OciFetcher().fetch(uri, FetchContext(mounts={}, scratch=tmp_path))
    assert (caught.value.reason, caught.value.field, caught.value.value) == ("SourceUriInvalid", "spec.source.uri", uri)
    assert "oci://REGISTRY/REPOSITORY:TAG" in caught.value.remedy
