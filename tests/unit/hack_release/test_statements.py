"""Bills of materials, provenance, and signatures that openssl checks."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from release import provenance, sbom, signing
from release.__main__ import differences
from release.contents import Package

CREATED = "2026-01-01T00:00:00Z"
PACKAGES = [Package("deb", "libc6", "2.36"), Package("pypi", "Foo_Bar", "1.0", "MIT OR Apache-2.0"),
            Package("pypi", "Foo_Bar", "2.0", "LicenseRef-Own AND MIT")]


def bill() -> dict[str, Any]:
    subject = sbom.Subject(name="enginewright-operator", version="1.0.0", file="enginewright-operator.oci.tar",
                           purpose="CONTAINER", sha256="ab" * 32)
    return sbom.document(subject, PACKAGES, CREATED)


def test_a_bill_names_every_package_once() -> None:
    found = bill()
    names = [package["name"] for package in found["packages"]]
    assert names == ["enginewright-operator", "libc6", "Foo_Bar", "Foo_Bar"]
    identifiers = [package["SPDXID"] for package in found["packages"]]
    assert len(set(identifiers)) == 4
    contained = [relation["relatedSpdxElement"] for relation in found["relationships"]
                 if relation["relationshipType"] == "CONTAINS"]
    assert contained == identifiers[1:]
    assert found["packages"][2]["externalRefs"][0]["referenceLocator"] == "pkg:pypi/foo-bar@1.0"
    assert [package["licenseDeclared"] for package in found["packages"]] == [
        "Apache-2.0", "NOASSERTION", "MIT OR Apache-2.0", "LicenseRef-Own AND MIT"]
    assert [licence["licenseId"] for licence in found["hasExtractedLicensingInfos"]] == ["LicenseRef-Own"]


def test_a_bill_of_an_image_that_the_release_has_not_says_what_it_was_read_from() -> None:
    """It names no file: there is none to compare a digest with."""
    subject = sbom.Subject(name="enginewright-server-vllm", version="1.0.0", file="enginewright-server-vllm.locks",
                           purpose="CONTAINER", sha256="ab" * 32, read_from="Locks: requirements/vllm.txt sha256:cd")
    found = sbom.document(subject, PACKAGES, CREATED)
    root = found["packages"][0]
    assert root["sourceInfo"] == "Locks: requirements/vllm.txt sha256:cd"
    assert not {"packageFileName", "checksums"} & set(root)
    assert found["documentNamespace"].endswith("/enginewright-server-vllm.locks-" + "ab" * 32)
    assert "sourceInfo" not in bill()["packages"][0]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "release.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path],
                   check=True, capture_output=True, timeout=60)
    return path


def openssl_verifies(folder: Path, key: Path, content: bytes, signature: str) -> bool:
    (folder / "public").write_bytes(signing.public(signing.load(key, "")))
    (folder / "content").write_bytes(content)
    (folder / "signature").write_bytes(base64.b64decode(signature))
    done = subprocess.run(["openssl", "dgst", "-sha256", "-verify", "public", "-signature", "signature", "content"],
                          cwd=folder, capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def test_openssl_verifies_a_signature_and_refuses_another_content(tmp_path: Path, key: Path) -> None:
    made = signing.signature(signing.load(key, ""), b"sums")
    assert made == signing.signature(signing.load(key, ""), b"sums")
    assert openssl_verifies(tmp_path, key, b"sums", made)
    assert not openssl_verifies(tmp_path, key, b"sumz", made)


def test_the_envelope_is_signed_as_dsse_says(tmp_path: Path, key: Path) -> None:
    """Its signature is over the type and the payload with their lengths, by DSSE's protocol."""
    found = json.loads(signing.envelope(signing.load(key, ""), provenance.PAYLOAD, b'{"_type":"x"}'))
    assert base64.b64decode(found["payload"]) == b'{"_type":"x"}'
    signed = b'DSSEv1 28 application/vnd.in-toto+json 13 {"_type":"x"}'
    assert openssl_verifies(tmp_path, key, signed, found["signatures"][0]["sig"])


@pytest.mark.parametrize(("kind", "message"), [
    (["RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "no ECDSA key on P-256"),
    (["EC", "-pkeyopt", "ec_paramgen_curve:P-384"], "no ECDSA key on P-256"),
    (["EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-aes256", "-pass", "pass:secret"], "cannot be read"),
])
def test_a_key_that_does_not_sign_is_refused(tmp_path: Path, kind: list[str], message: str) -> None:
    path = tmp_path / "other.key"
    command = ["openssl", "genpkey", "-algorithm", *kind, "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with pytest.raises(signing.BadKeyError, match=message):
        signing.load(path, "")
    if "-aes256" in kind:
        assert signing.load(path, "secret").curve.name == "secp256r1"


def test_provenance_names_all_that_went_in_and_came_out() -> None:
    made = provenance.statement({"b": "2" * 64, "a": "1" * 64}, {"registry": "r"}, "c" * 40, {"l.txt": "3" * 64},
                                "https://x", "https://y")
    assert [subject["name"] for subject in made["subject"]] == ["a", "b"]
    definition = made["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"registry": "r"}
    assert definition["resolvedDependencies"][0] == {"uri": "git+https://y", "digest": {"gitCommit": "c" * 40}}
    assert definition["resolvedDependencies"][1] == {"uri": "l.txt", "digest": {"sha256": "3" * 64}}
    assert made["predicate"]["runDetails"]["builder"]["id"] == "https://x"


def test_what_differs_between_two_releases_is_named(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "same").write_text("x")
        (folder / "not").write_text(folder.name)
    (one / "alone").write_text("")
    assert differences(one, other) == ["alone", "not"]
    assert differences(one, one) == []
