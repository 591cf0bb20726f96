"""A client of an object store as the environment says, and what its answers mean.

The store's place and credentials come from the names that the clouds' own tools use (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``GOOGLE_SERVICE_ACCOUNT_KEY``, …), or in the pod's workload identity:
https://developmentseed.org/obstore/latest/authentication/.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Any, Literal

from enginewright_builder.errors import brief

# Read with one request each: a connection that breaks costs no more than this.
PART_BYTES = 32 << 20
_CLIENT = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "300s"}
_RETRY: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
# The services of the machine's own identity: they are asked where no other credentials are given.
_IDENTITY_SERVICES = ("169.254.169.254", "169.254.170.", "metadata.google.internal", "fd00:ec2::254")
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class UnusableError(ValueError):
    """What the environment says of a bucket makes no sense. The message has no value of it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def connect(scheme: str, bucket: str) -> Any:
    """A client as the environment says, which asks nothing yet. Raises :class:`UnusableError`."""
    pair = [bool(os.environ.get(name)) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    if scheme == "s3" and pair[0] != pair[1]:
        raise UnusableError("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are a pair, and one is missing", "give both")
    try:
        return _client(scheme, bucket)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of the client's Rust
            raise
        kind = "AWS_" if scheme == "s3" else "GOOGLE_"
        raise UnusableError(f"the {kind}* entries cannot be used: {brief(error)}",
                            "write them as the cloud's own tools want them") from error


def _client(scheme: str, bucket: str) -> Any:
    from obstore.store import GCSStore, S3Store  # only where it is used

    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    # An address without encryption is used as it is: stores inside a cluster often have none. That of gs:// is
    # Google's, or stands in the credentials.
    options: Any = {**_CLIENT, "allow_http": scheme == "gs" or endpoint.lower().startswith("http://")}
    return (GCSStore if scheme == "gs" else S3Store)(bucket, client_options=options, retry_config=_RETRY)


def answer(error: Exception) -> tuple[Literal["denied", "missing", "unreachable"], str]:
    """What a store's answer means, and what it said."""
    text = str(error)
    status, code = (match[1] if match else "" for match in (_STATUS.search(text), _CODE.search(text)))
    if any(service in text for service in _IDENTITY_SERVICES):
        return "denied", "no credentials are given, and the pod has no identity that has any"
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403"):
        return "denied", code or f"HTTP {status}"
    if status == "404":
        return "missing", code or "HTTP 404"
    return "unreachable", brief(error)
