"""Certificates, checked by openssl itself."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from cluster import assembly, pki
from cluster.pki import Certificate

SERVER = Certificate("server", "kube-apiserver", alternatives=("DNS:localhost", "IP:127.0.0.1"))
CLIENT = Certificate("client", "alice", "system:masters")
ETCD = Certificate("etcd", "etcd", alternatives=("IP:127.0.0.1",), authority="etcd-ca")


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("openssl", *map(str, arguments)), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pki")
    pki.create(made, [SERVER, CLIENT, ETCD])
    return made


@pytest.mark.parametrize(
    ("name", "authority", "purpose", "valid"),
    [
        ("server", "ca", "sslserver", True),
        ("client", "ca", "sslclient", True),
        ("client", "ca", "sslserver", False),
        ("etcd", "etcd-ca", "sslserver", True),
        ("etcd", "etcd-ca", "sslclient", True),
        ("client", "etcd-ca", "sslclient", False),
        ("etcd", "ca", "sslserver", False),
    ],
)
def test_each_is_valid_for_its_authority_and_purpose_alone(
    directory: Path, name: str, authority: str, purpose: str, valid: bool
) -> None:
    command = ("verify", "-purpose", purpose, "-CAfile", directory / f"{authority}.crt", directory / f"{name}.crt")
    assert (openssl(*command).returncode == 0) is valid


def test_a_server_answers_to_its_names(directory: Path) -> None:
    text = openssl("x509", "-in", directory / "server.crt", "-noout", "-ext", "subjectAltName").stdout
    assert "DNS:localhost" in text
    assert "IP Address:127.0.0.1" in text


def test_a_client_is_its_user_and_group(directory: Path) -> None:
    text = openssl("x509", "-in", directory / "client.crt", "-noout", "-subject").stdout
    assert "O = system:masters" in text
    assert "CN = alice" in text


def test_what_is_there_is_kept_and_what_is_new_is_added(directory: Path) -> None:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    pki.create(directory, [SERVER, CLIENT, ETCD, Certificate("later", "bob")])
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert after.keys() - before.keys() == {"later.crt", "later.key"}
    assert before.items() <= after.items()


def test_keys_are_readable_by_their_owner_alone(directory: Path) -> None:
    assert {path.stat().st_mode & 0o077 for path in directory.glob("*.key")} == {0}


def test_a_kubeconfig_holds_its_credentials_and_is_private(directory: Path, tmp_path: Path) -> None:
    path = pki.write_kubeconfig(tmp_path / "kubeconfig", directory, "client", "https://127.0.0.1:1")
    assert path.stat().st_mode & 0o777 == 0o600
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    stored = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
    assert stored == (directory / "client.crt").read_bytes()


def test_names_of_the_clusters_certificates_are_unique() -> None:
    names = [certificate.name for certificate in assembly.CERTIFICATES]
    assert len(set(names)) == len(names)
