"""The whole of ``spec``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from enginewright.core.spec.base import SpecModel
from enginewright.core.spec.batch import BatchSpec
from enginewright.core.spec.engine import AccuracySpec, EngineSpec, ObjectiveSpec
from enginewright.core.spec.interface import InterfaceSpec
from enginewright.core.spec.placement import PlacementSpec
from enginewright.core.spec.quality import QualitySpec
from enginewright.core.spec.rollout import AutoscalingSpec, RolloutSpec
from enginewright.core.spec.serving import BatchingSpec, InstancesSpec, ServingSpec, StoreSpec
from enginewright.core.spec.source import SourceSpec
from enginewright_builder.contract import BUDGET_SECONDS, GENERATE_BUDGET_SECONDS


class Spec(SpecModel):
    """What the model is, and what it must achieve."""

    source: SourceSpec
    """The model: where it is, and what."""
    task: Literal["infer", "generate"] = "infer"
    """What the model does: infer answers tensors with tensors, and Triton serves it; generate is a causal language
    model, which continues text token by token, and vLLM serves it by OpenAI's API. Of an object that exists it cannot
    be changed."""
    interface: InterfaceSpec | None = None
    """Inputs and outputs, where the source does not state them."""
    engine: EngineSpec = Field(default_factory=EngineSpec)
    """Which candidates are built."""
    accuracy: AccuracySpec = Field(default_factory=AccuracySpec)
    """What an engine must keep of the model's accuracy to be served."""
    objective: ObjectiveSpec = Field(default_factory=ObjectiveSpec)
    """Latency and throughput to achieve."""
    batching: BatchingSpec = Field(default_factory=BatchingSpec)
    """Dynamic batching."""
    instances: InstancesSpec = Field(default_factory=InstancesSpec)
    """Model instances in one replica."""
    placement: PlacementSpec = Field(default_factory=PlacementSpec)
    """Hardware for building and serving."""
    serving: ServingSpec = Field(default_factory=ServingSpec)
    """The server's pods."""
    rollout: RolloutSpec = Field(default_factory=RolloutSpec)
    """How a new engine takes over."""
    replicas: int | None = Field(default=None, ge=0, le=1000)
    """Fixed number of replicas, 1 when absent; kubectl scale and other scalers write it through /scale (set it where
    they read it first). Not together with autoscaling."""
    autoscaling: AutoscalingSpec | None = None
    """Let the load decide on the number of replicas. Not together with replicas."""
    quality: QualitySpec | None = None
    """Hold a few live answers against the unquantised source model, off the serving path. Absent: no request is looked
    at. The engine is built with its reference, so that adding this rebuilds it."""
    batch: BatchSpec | None = None
    """Run a data set through the engine once, as a Job, and serve no requests: with the same builds and proofs, the
    most inferences a second, and without latency, replicas and rollouts."""
    revision_history_limit: int = Field(default=5, ge=0, le=50)
    """How many old revisions status keeps. To go back to one that served, annotate the object with
    enginewright.io/rollback-to: its engine is kept as long as it is."""
    store: StoreSpec = Field(default_factory=StoreSpec)
    """Where engines are kept."""
    suspend: bool = False
    """Start no builds, rollouts or scaling; what serves keeps serving."""

    @property
    def budget_seconds(self) -> int:
        """Of a build, where ``engine`` states none by task and accelerator; of a fleet the longest of its classes."""
        if self.engine.build_budget_seconds is not None:
            return self.engine.build_budget_seconds
        if self.task == "generate":
            return GENERATE_BUDGET_SECONDS
        classes = self.placement.classes or ()
        return max(BUDGET_SECONDS[one.accelerator] for one in (*classes, *(() if classes else (self.placement,))))
