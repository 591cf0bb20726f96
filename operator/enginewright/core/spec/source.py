"""Where the model and its data come from, and who may read them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from enginewright.core.spec.base import (
    MAX_NAME,
    MAX_TEXT,
    AccountName,
    DataUri,
    Digest,
    ObjectName,
    Remedy,
    SourceUri,
    SpecModel,
)

Format = Literal["auto", "onnx", "huggingface", "exported-program", "torchscript", "saved-model", "keras"]
EntryName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME, pattern=r"^[-._a-zA-Z0-9]+$"),
    Remedy("write the name of an entry: letters, digits, '-', '_' and '.'"),
]
SignaturePath = Annotated[
    str,
    Field(max_length=MAX_TEXT, pattern=r"^([^/\s][^\s]*)?$"),
    Remedy("write a path relative to the source's folder, such as model.sig, without spaces"),
]


class DataSpec(SpecModel):
    """Data for calibration or evaluation."""

    uri: DataUri
    """Where the data is, by the same schemes as the model: .npz with one array for each model input, or .jsonl with
    {"text": ...} or {"<input>": [...]} on each line. captured://MODEL is the newest capture of live requests to an
    OptimisedModel of the namespace that uses the same store (spec.quality.capture); with a digest, that capture. Where
    evaluation and calibration name the same, each gets half of its samples."""
    samples: int = Field(default=0, ge=0, le=1_000_000)
    """How many samples to use, taken from the start; 0 means all of them."""
    digest: Digest = ""
    """SHA-256 of the content, checked before use. Resolved and recorded in status when absent."""


class KeySelector(SpecModel):
    """An entry of a ConfigMap or Secret in the object's namespace."""

    name: ObjectName
    """Name of the ConfigMap or Secret."""
    key: EntryName
    """Name of the entry."""


class SignatureSpec(SpecModel):
    """An OpenSSF model signature, checked before anything of the source is opened."""

    method: Literal["key", "certificate"] = "key"
    """key: the entry has an elliptic-curve public key. certificate: it has the certificates that are trusted to have
    issued the signer's."""
    config_map_key_ref: KeySelector | None = None
    """The public key or certificates, in PEM: an entry of a ConfigMap. Either this or secretKeyRef."""
    secret_key_ref: KeySelector | None = None
    """The same in a Secret."""
    path: SignaturePath = ""
    """Where the signature lies, relative to the source's folder. Left out: model.sig in a model's folder, or the
    model's file name with .sig behind it."""

    @property
    def key(self) -> KeySelector:
        """Of a valid spec, which has one of the two."""
        found = self.secret_key_ref or self.config_map_key_ref
        assert found is not None
        return found

    @property
    def kind(self) -> Literal["ConfigMap", "Secret"]:
        """Of the object that holds the key."""
        return "Secret" if self.secret_key_ref else "ConfigMap"


class SecretReference(SpecModel):
    """A Secret of the object's namespace, whose entries are environment variables."""

    name: ObjectName
    """Its name."""


class SourceSpec(SpecModel):
    """The model as it was trained."""

    uri: SourceUri
    """Where the model is: pvc://CLAIM/path, hf://ORG/NAME@REVISION, s3://BUCKET/path, gs://BUCKET/path,
    oci://REGISTRY/REPOSITORY:TAG, https://host/path, or file:///path inside the builder image (for development).
    Pickled checkpoints are refused."""
    format: Format = "auto"
    """What the source is: onnx, huggingface (config and safetensors), exported-program (.pt2), torchscript, saved-model
    (TensorFlow's folder) or keras (.keras). auto looks at the files. The last two need a builder image with
    TensorFlow."""
    digest: Digest = ""
    """SHA-256 of the source, as sha256:<64 hex digits>. Checked before use; resolved and recorded in status when
    absent."""
    signature: SignatureSpec | None = None
    """How the source must be signed. Absent: no signature is asked for. Not with https:// and hf:// sources."""
    secret_ref: SecretReference | None = None
    """Credentials to read the source and the data: resolve and build Jobs read its entries HF_TOKEN and HF_ENDPOINT,
    AWS_* such as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, and GOOGLE_* such as
    GOOGLE_SERVICE_ACCOUNT_KEY; for a registry a Secret of type kubernetes.io/dockerconfigjson, or REGISTRY_USERNAME and
    REGISTRY_PASSWORD; and those of proxies and certificates, such as HTTPS_PROXY and SSL_CERT_FILE. Other entries have
    no effect."""
    service_account_name: AccountName = ""
    """ServiceAccount of resolve and build Jobs, where a cloud gives workloads an identity by it. Its own token is not
    mounted. Left out: the namespace's default."""
