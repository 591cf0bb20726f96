"""How the engine is served: batching, instances, the server's pod, and where the engine is kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from enginewright.core.spec.base import AccountName, ImageName, SpecModel, StoreUri
from enginewright.core.spec.pod_template import PodTemplateSpec
from enginewright.core.spec.queue import QueueSpec
from enginewright.core.spec.resources import ResourcesSpec
from enginewright.core.spec.source import SecretReference


class BatchingSpec(SpecModel):
    """Dynamic batching. What is left out is measured and chosen. To form no batches at all, set engine.maxBatchSize to
    1."""

    preferred_batch_sizes: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(default=(), max_length=16)
    """Batch sizes that the server tries to form. Left out: measured and chosen."""
    max_queue_delay_microseconds: int | None = Field(default=None, ge=0, le=10_000_000)
    """How long a request may wait for others to join its batch. Left out: measured and chosen."""

    @property
    def fixed(self) -> bool:
        """Whether something is given here that would be measured otherwise."""
        return bool(self.preferred_batch_sizes) or self.max_queue_delay_microseconds is not None


class InstancesSpec(SpecModel):
    """Copies of the model in one replica."""

    count: int | None = Field(default=None, ge=1, le=64)
    """Instances of the model in one replica (for each GPU). Left out: measured and chosen."""


class ResponseCacheSpec(SpecModel):
    """Answer repeated requests from a replica's memory. For engines with one output, whose inputs have one size that
    requests choose. A change makes a new revision and rebuilds nothing."""

    size_mebibytes: int = Field(ge=1, le=1_048_576)
    """MiB of memory for answers in each replica; the oldest go first. It is added to the operator's own request of
    memory, and counts in those of serving.resources."""


class ServingSpec(SpecModel):
    """The server's pods."""

    image: ImageName = ""
    """Server image; empty takes the operator's. Its runtime must be the one that the engine is built with."""
    resources: ResourcesSpec = Field(default_factory=ResourcesSpec)
    """CPU and memory of the server's container. Accelerators are chosen under placement."""
    pod_template: PodTemplateSpec = Field(default_factory=PodTemplateSpec)
    """Additions to the serving pods."""
    queue: QueueSpec | None = None
    """What becomes of requests that wait in a replica: how many, how long, and in which order. Left out: all wait, in
    the order in which they came."""
    response_cache: ResponseCacheSpec | None = None
    """Answer repeated requests from a replica's memory. Left out: each is computed."""


class StoreSpec(SpecModel):
    """Where engines are kept."""

    # Not written into objects: the operator has a default of its own.
    uri: StoreUri = Field(default="pvc://enginewright-store", json_schema_extra={"default": None})
    """Engine store: pvc://CLAIM or pvc://CLAIM/folder, s3://BUCKET/prefix or gs://BUCKET/prefix. Build Jobs write it
    and servers read it, so that claims on several nodes need ReadWriteMany; from a bucket each replica fetches its
    engine. Absent: config.defaultStore of the operator's chart, else pvc://enginewright-store."""
    secret_ref: SecretReference | None = None
    """Credentials to list, read, write and delete in the bucket: Jobs and replicas have its entries as environment
    variables, such as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, or
    GOOGLE_SERVICE_ACCOUNT_KEY."""
    service_account_name: AccountName = ""
    """ServiceAccount of Jobs and replicas, where a cloud gives workloads an identity by it. Its own token is not
    mounted. Left out: the namespace's default."""
