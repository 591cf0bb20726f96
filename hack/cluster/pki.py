"""Certificates of one cluster, made with the openssl program, and kubeconfigs that use them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.steps import ClusterError

DAYS = 3650
_KEY_TYPE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificate:
    """What to certify.

    Attributes:
        name: the files are `<name>.crt` and `<name>.key`.
        user: common name; the user name for Kubernetes.
        group: organisation; the group for Kubernetes.
        alternatives: names a server answers to, as `DNS:…` or `IP:…`; a certificate with none is a client's.
        authority: name of the authority that signs it. etcd has one of its own: a client of the API server may not
            for that reason read its database.
    """

    name: str
    user: str
    group: str = ""
    alternatives: tuple[str, ...] = ()
    authority: str = "ca"


def subject(certificate: Certificate) -> str:
    """The subject as openssl wants it: `/O=group/CN=user`."""
    return (f"/O={certificate.group}" if certificate.group else "") + f"/CN={certificate.user}"


def create(directory: Path, certificates: Sequence[Certificate]) -> None:
    """Make the authorities, the service accounts' signing key and every certificate that is not there yet.

    Raises:
        ClusterError: openssl is missing or refuses.
    """
    for name in {certificate.authority for certificate in certificates}:
        if not (directory / f"{name}.crt").exists():
            extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
            _request(directory, Certificate(name, f"enginewright-{name}", authority=name), extensions)
    if not (directory / "service-accounts.key").exists():
        key, public = directory / "service-accounts.key", directory / "service-accounts.pub"
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{key}.tmp")
        _openssl("ec", "-in", f"{key}.tmp", "-pubout", "-out", str(public))
        os.rename(f"{key}.tmp", key)
    for certificate in certificates:
        if not (directory / f"{certificate.name}.crt").exists():
            _request(directory, certificate, _extensions(certificate))


def _extensions(certificate: Certificate) -> tuple[str, ...]:
    common = ("basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature")
    if not certificate.alternatives:
        return (*common, "extendedKeyUsage=clientAuth")
    names = ",".join(certificate.alternatives)
    # etcd's server is its own client, too.
    return (*common, "extendedKeyUsage=serverAuth,clientAuth", f"subjectAltName={names}")


def _request(directory: Path, certificate: Certificate, extensions: tuple[str, ...]) -> None:
    """Key and certificate in one call; the certificate is renamed into place last: present means complete."""
    key, final = directory / f"{certificate.name}.key", directory / f"{certificate.name}.crt"
    signer: tuple[str, ...] = ()
    if certificate.authority != certificate.name:
        authority = directory / certificate.authority
        signer = ("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key")
    added = tuple(word for extension in extensions for word in ("-addext", extension))
    _openssl(
        "req", "-x509", "-config", str(_empty_config(directory)), "-subj", subject(certificate), *_KEY_TYPE,
        "-days", str(DAYS), *signer, *added, "-keyout", str(key), "-out", f"{final}.tmp",
    )
    os.rename(f"{final}.tmp", final)


def _empty_config(directory: Path) -> Path:
    """The distribution's openssl.cnf adds extensions of its own, which would then stand twice."""
    config = directory / "openssl.cnf"
    if not config.exists():
        config.write_text("[req]\ndistinguished_name = name\n[name]\n")
    return config


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise ClusterError("openssl is missing: run hack/bin-deps.sh")
    done = subprocess.run((program, *arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")


def kubeconfig(server: str, user: str, authority: bytes, certificate: bytes, key: bytes) -> str:
    """A kubeconfig that holds everything itself, so that it can be copied. JSON, which is YAML, too."""

    def encode(content: bytes) -> str:
        return base64.b64encode(content).decode()

    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "enginewright", "cluster": {"server": server, "certificate-authority-data": encode(authority)}}
            ],
            "users": [
                {
                    "name": user,
                    "user": {"client-certificate-data": encode(certificate), "client-key-data": encode(key)},
                }
            ],
            "contexts": [{"name": "enginewright", "context": {"cluster": "enginewright", "user": user}}],
            "current-context": "enginewright",
        },
        indent=1,
    )


def write_kubeconfig(path: Path, directory: Path, name: str, server: str) -> Path:
    """Write the kubeconfig of certificate `name` to `path`, readable by its owner alone."""
    contents = [(directory / file).read_bytes() for file in ("ca.crt", f"{name}.crt", f"{name}.key")]
    text = kubeconfig(server, name, *contents)
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    temporary.rename(path)
    return path
