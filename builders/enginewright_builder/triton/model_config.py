"""``config.pbtxt`` through Triton's own protobuf schema, never by pasting strings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tritonclient.grpc import model_config_pb2

from enginewright_builder.contract import Interface, ServingChoice
from enginewright_builder.engines.base import Tensors


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """All that a ``config.pbtxt`` says.

    ``interface`` has the batch first in every shape, as in :class:`ExportedModel`; with ``serving.max_batch_size`` 0 the
    shapes are written whole. ``gpus`` empty means CPU; several get ``serving.instance_count`` instances each. ``profiles``
    are TensorRT optimisation profile indices, in batch order ``profile_batches`` for their CUDA graphs. ``warmup`` is one
    batch of inputs (its leading size is the batch); None leaves warm-up out.
    """

    name: str
    triton_backend: str
    interface: Interface
    serving: ServingChoice
    parameters: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()
    profiles: tuple[int, ...] = ()
    graph_batches: tuple[int, ...] = ()
    default_model_filename: str = ""
    warmup: Tensors | None = None


def model_config(model: ServedModel) -> model_config_pb2.ModelConfig:
    """Raises :class:`UserError` ``InterfaceInvalid`` for a type or shape that Triton cannot take."""
    raise NotImplementedError


def to_text(config: model_config_pb2.ModelConfig) -> str:
    """Text format, with ``max_batch_size: 0`` written out: text format drops defaults, and Triton then guesses."""
    raise NotImplementedError


def parse_text(text: str) -> model_config_pb2.ModelConfig:
    raise NotImplementedError
