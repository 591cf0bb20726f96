"""What the server image has."""

from __future__ import annotations

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel
from enginewright.core.status.conditions import FailureStatus


class LibraryStatus(StatusModel):
    """A library of an image."""

    name: str
    """Its name."""
    version: str
    """Its version."""


class RuntimeStatus(StatusModel):
    """What engines are built for, of what the server image has and a build can prove."""

    backends: tuple[str, ...] = ()
    """Triton's backends: python, onnxruntime, tensorrt."""
    python_runtimes: tuple[str, ...] = ()
    """Libraries that Triton's Python backend runs engines with: onnxruntime, tensorrt, torch."""


class ServerStatus(StatusModel):
    """What the server image has, by its own account. The operator asks the image again when spec.serving.image or the
    operator's own images change, or when a replica runs another digest of the same name."""

    image: str
    """The image, as it is named."""
    key: str | None = None
    """Identifies what was asked: both images and the digest that a replica was seen with."""
    image_id: str | None = Field(default=None, alias="imageID")
    """Its digest on the node where it was asked."""
    triton: str | None = None
    """Version of Triton Inference Server."""
    python: str | None = None
    """Version of Python."""
    architecture: str | None = None
    """Architecture of the node where it was asked."""
    backends: tuple[str, ...] | None = None
    """All of Triton's backends in it."""
    caches: tuple[str, ...] | None = None
    """All of Triton's caches in it. Absent where it was asked by an operator that did not want to know."""
    libraries: tuple[LibraryStatus, ...] | None = None
    """What it has to run engines with."""
    runtime: RuntimeStatus | None = None
    """What engines are built for. Part of the fingerprint."""
    cuda: str | None = None
    """The least CUDA that it asks of a node's driver."""
    drivers: tuple[str, ...] | None = None
    """Branches of drivers that run it although their CUDA is older."""
    builder_image: str | None = None
    """The builder image, asked at the same time."""
    builder_libraries: tuple[LibraryStatus, ...] | None = None
    """What that has to build engines with."""
    digests: tuple[str, ...] | None = None
    """Digests that replicas had under this name, for each of which the image was asked once more."""
    attempts: int | None = None
    """Failed attempts to ask it."""
    last_failure_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the last attempt failed."""
    last_failure: FailureStatus | None = None
    """Why the last attempt failed."""
    failure: FailureStatus | None = None
    """An error that waits for a change."""
    spec_key: str | None = None
    """Identifies what of the spec a Job depends on, as it was when it failed."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""
