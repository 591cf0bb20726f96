"""Sources that must be signed: what is let through, and what is refused, before anything is opened."""

from __future__ import annotations

import datetime
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from enginewright_builder.contract import BuildRequest, SignatureRequest
from enginewright_builder.errors import UserError
from enginewright_builder.pipeline import run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.sources.signature import check_signature
from support.signing import PEM, new_key, sign, signer

Make = Callable[..., BuildRequest]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        new_key(folder / name)
    (folder / "rubbish.pub").write_text("no key")
    return folder


@pytest.fixture
def folder(tmp_path: Path, keys: Path) -> Path:
    """A model's folder, signed by our key."""
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "sub" / "weights.bin").write_bytes(b"weights")
    sign(model, model / "model.sig", keys / "ours.key")
    return model


def asked(keys: Path, name: str = "ours.pub", path: str = "", method: str = "key") -> SignatureRequest:
    return SignatureRequest(key_path=str(keys / name), key_name=f"ConfigMap keys/{name}", path=path,
                            method="certificate" if method == "certificate" else "key")


def test_what_was_signed_is_let_through(folder: Path, keys: Path) -> None:
    check_signature(folder, asked(keys))
    (folder / "model.sig").rename(folder / "sub" / "other.sig")
    with pytest.raises(UserError, match=r"there is no model\.sig"):
        check_signature(folder, asked(keys))


def test_a_single_file_has_its_signature_beside_it(tmp_path: Path, keys: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"graph")
    sign(model, tmp_path / "m.onnx.sig", keys / "ours.key")
    check_signature(model, asked(keys))
    (tmp_path / "m.onnx.sig").rename(tmp_path / "elsewhere.sig")
    check_signature(model, asked(keys, path="elsewhere.sig"))
    model.write_bytes(b"grapH")
    with pytest.raises(UserError, match="not what was signed"):
        check_signature(model, asked(keys, path="elsewhere.sig"))


def changed(model: Path) -> None:
    (model / "sub" / "weights.bin").write_bytes(b"weightz")


def added(model: Path) -> None:
    (model / "metric.onnx").write_bytes(b"new")


def removed(model: Path) -> None:
    (model / "config.json").unlink()


def renamed(model: Path) -> None:
    (model / "config.json").rename(model / "other.json")


def unsigned(model: Path) -> None:
    (model / "model.sig").unlink()


def rubbish(model: Path) -> None:
    (model / "model.sig").write_text("{}")


def empty(model: Path) -> None:
    (model / "model.sig").write_text("")


def nothing(model: Path) -> None:
    pass


@pytest.mark.parametrize(("harm", "key", "reason", "words"), [
    (changed, "ours.pub", "SignatureInvalid", "weights.bin"), (added, "ours.pub", "SignatureInvalid", "metric.onnx"),
    (removed, "ours.pub", "SignatureInvalid", "config.json"), (renamed, "ours.pub", "SignatureInvalid", "config.json"),
    (rubbish, "ours.pub", "SignatureInvalid", "not what was signed"),
    (empty, "ours.pub", "SignatureInvalid", "not what was signed"),
    (unsigned, "ours.pub", "SignatureMissing", "model.sig"),
    (nothing, "theirs.pub", "SignatureInvalid", "public key"),
    (nothing, "rubbish.pub", "SignatureInvalid", "elliptic-curve public key in PEM"),
    (nothing, "none.pub", "SignatureKeyMissing", "ConfigMap keys/none.pub is not there"),
], ids=lambda value: getattr(value, "__name__", str(value)))
def test_what_is_refused(harm: Callable[[Path], None], key: str, reason: str, words: str, folder: Path,
                         keys: Path) -> None:
    harm(folder)
    with pytest.raises(UserError) as caught:
        check_signature(folder, asked(keys, key))
    assert caught.value.reason == reason
    assert words in str(caught.value)
    assert caught.value.field.startswith("spec.source.signature")
    assert caught.value.remedy


def certificate(keys: Path, name: str) -> None:
    """A root that issued a signer's certificate for the key ``name``."""
    root_key, now = new_key(keys / f"{name}-root"), datetime.datetime.now(datetime.UTC)
    signer = serialization.load_pem_private_key((keys / f"{name}.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)

    def issue(subject: str, key: ec.EllipticCurvePublicKey, *, authority: bool) -> x509.Certificate:
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} root")])
        builder = (
            x509.CertificateBuilder().issuer_name(issuer).public_key(key).serial_number(x509.random_serial_number())
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(
                digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                decipher_only=False), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
        )
        if not authority:
            builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        return builder.sign(root_key, hashes.SHA256())

    for file, made in (("root", issue(f"{name} root", root_key.public_key(), authority=True)),
                       ("signer", issue(name, signer.public_key(), authority=False))):
        (keys / f"{name}-{file}.crt").write_bytes(made.public_bytes(PEM))


def test_certificates(folder: Path, keys: Path) -> None:
    for name in ("ours", "theirs"):
        certificate(keys, name)
    signature = folder / "model.sig"
    signature.unlink()
    signer(signature).use_certificate_signer(
        private_key=keys / "ours.key", signing_certificate=keys / "ours-signer.crt",
        certificate_chain=[keys / "ours-root.crt"],
    ).sign(folder, signature)
    check_signature(folder, asked(keys, "ours-root.crt", method="certificate"))
    with pytest.raises(UserError, match="not what was signed"):
        check_signature(folder, asked(keys, "theirs-root.crt", method="certificate"))
    changed(folder)
    with pytest.raises(UserError, match=r"weights\.bin"):
        check_signature(folder, asked(keys, "ours-root.crt", method="certificate"))


def test_a_resolve_step_refuses_before_it_opens_anything(folder: Path, keys: Path, request_for: Make,
                                                         tmp_path: Path) -> None:
    """The folder is no model: that would be said next."""
    def reason(name: str) -> str:
        outcome = run_resolve(request_for(folder, signature=asked(keys)), tmp_path / name, Tracker(JsonLines(
            io.StringIO())))
        assert outcome.error is not None
        return outcome.error.reason

    assert reason("signed") == "FormatUnknown"
    added(folder)
    assert reason("added") == "SignatureInvalid"
    unsigned(folder)
    assert reason("unsigned") == "SignatureMissing"


def test_a_signed_source_has_the_digest_and_fingerprint_that_it_has_without_asking(
        perceptron: Path, keys: Path, request_for: Make, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    shutil.copyfile(perceptron, model)
    sign(model, tmp_path / "m.onnx.sig", keys / "ours.key")
    found = [run_resolve(request_for(model, signature=signature), tmp_path / name, Tracker(JsonLines(io.StringIO())))
             for name, signature in (("with", asked(keys)), ("without", None))]
    assert all(outcome.ok for outcome in found), found
    assert found[0].source == found[1].source
    assert found[0].fingerprint == found[1].fingerprint != ""
