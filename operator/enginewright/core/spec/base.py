"""What all models of the API share: strictness, camelCase names, and the types of names, digests and URIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from enginewright_builder.contract import CAPTURED_SCHEME

# Bounded so that the apiserver can estimate what a CEL rule over them costs.
MAX_NAME = 253
MAX_OBJECT_NAME = 40  # leaves room for -resolve-<8> and the pod's own suffix in the 63 characters of a label
MAX_TEXT = 1024

REMEDY_KEY = "x-remedy"


@dataclass(frozen=True)
class Remedy:
    """Field metadata: what to write when the value is refused. The apiserver says it, too, see ``structural``."""

    text: str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core), REMEDY_KEY: self.text}


class SpecModel(BaseModel):
    """Frozen, refuses unknown fields, camelCase in YAML and snake_case in Python."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True,
                              validate_by_alias=True, allow_inf_nan=False, use_attribute_docstrings=True)


# DNS-1123 subdomain, the form of a claim's name, without the dots' fine print.
CLAIM_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
# Buckets as their clouds have them, without the fine print; a hub's repository, and its branch, tag or commit.
_BUCKET = r"(s3|gs)://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
_REPOSITORY = r"hf://[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}(@[^\s/?#@]+)?"
# A registry has a dot, a port or the name localhost, as image references have it; and a tag, a digest or both.
_REGISTRY = (r"(localhost(:[0-9]{1,5})?|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:[0-9]{1,5})?|[A-Za-z0-9-]+:[0-9]{1,5}|"
             r"\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?)")
_ARTIFACT_NAME = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_ARTIFACT_DIGEST = "@sha256:[0-9a-f]{64}"
_ARTIFACT = (rf"oci://{_REGISTRY}/{_ARTIFACT_NAME}(/{_ARTIFACT_NAME})*"
             rf"(:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}({_ARTIFACT_DIGEST})?|{_ARTIFACT_DIGEST})")
_WEB = r"https://([^\s/?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
SOURCE_URI_PATTERN = (rf"^((pvc://{CLAIM_NAME}|{_BUCKET}|{_REPOSITORY}|{_ARTIFACT})(/[^\s?#]+)?|{_WEB}(/\S*)?|"
                      rf"file:///[^\s?#]+)$")
STORE_URI_PATTERN = rf"^(pvc://{CLAIM_NAME}|{_BUCKET})(/[A-Za-z0-9._-]+)*$"


def in_bucket(store_uri: str) -> bool:
    """Whether the engine store is a bucket, and not a volume."""
    return store_uri.startswith(("s3://", "gs://"))


# Or requests that the monitors of an OptimisedModel of the namespace captured.
DATA_URI_PATTERN = rf"{SOURCE_URI_PATTERN}|^{CAPTURED_SCHEME}[a-z]([-a-z0-9]*[a-z0-9])?$"
SourceUri = Annotated[
    str,
    Field(max_length=MAX_TEXT, pattern=SOURCE_URI_PATTERN),
    Remedy("write pvc://CLAIM/path, hf://ORG/NAME@REVISION, s3://BUCKET/path, gs://BUCKET/path, "
           "oci://REGISTRY/REPOSITORY:TAG, https://host/path, or file:///path (a path inside the builder image)"),
]
DataUri = Annotated[
    str,
    Field(max_length=MAX_TEXT, pattern=DATA_URI_PATTERN),
    Remedy("write pvc://CLAIM/path, hf://ORG/NAME@REVISION, s3://BUCKET/path, gs://BUCKET/path, "
           "oci://REGISTRY/REPOSITORY:TAG, https://host/path, file:///path (a path inside the builder image), or "
           "captured://MODEL (what an OptimisedModel of the namespace captured)"),
]
StoreUri = Annotated[
    str,
    Field(max_length=512, pattern=STORE_URI_PATTERN),
    Remedy("write pvc://CLAIM or pvc://CLAIM/folder, naming a PersistentVolumeClaim of the object's namespace, or "
           "s3://BUCKET/prefix or gs://BUCKET/prefix"),
]
Digest = Annotated[
    str,
    Field(max_length=71, pattern=r"^(sha256:[0-9a-f]{64})?$"),
    Remedy("write sha256: and 64 lower-case hexadecimal digits, or leave it out to have it resolved and recorded"),
]
SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME, pattern=rf"^{SUBDOMAIN}$"),
    Remedy("write the name of a Kubernetes object: lower-case letters, digits, '-' and '.'"),
]
AccountName = Annotated[
    str,
    Field(max_length=MAX_NAME, pattern=rf"^({CLAIM_NAME})?$"),
    Remedy("write the name of a ServiceAccount of the object's namespace, or leave it out for the namespace's default"),
]
LabelValue = Annotated[str, Field(max_length=63)]
ImageName = Annotated[str, Field(max_length=512, pattern=r"^\S*$"), Remedy("write an image reference, without spaces")]
