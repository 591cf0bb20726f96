"""The one interface behind which every engine (ONNX Runtime, TensorRT, PyTorch) stands.

A new engine is a new module that implements :class:`Engine` and is named in ``registry.py``; nothing else changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.measure.layers import Folded
from enginewright_builder.models.base import SourceModel
from enginewright_builder.sources.formats import Located
from enginewright_builder.tensors import Call, Tensors

if TYPE_CHECKING:  # ONNX, which those that only ask for names of engines can do without
    from enginewright_builder.onnx_weights import Weights

# In the name of a rung whose builder looks at fewer kernels.
QUICKLY = "quick"


def quickly(name: str) -> str:
    """The name of the quick build of ``name``."""
    return f"{name} {QUICKLY}"


@dataclass(frozen=True, kw_only=True, order=True)
class BatchRange:
    """The batches ``low`` to ``high`` that an engine takes, tuned for ``best``: a TensorRT optimisation profile."""

    low: int
    best: int
    high: int


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One engine that could be built. ``ranges`` empty means: one engine for every batch, tuned for none.

    ``quick``: its builder looks at fewer kernels, which takes a part of the time (:data:`competition.cost.QUICK`).
    ``unavailable`` says why it cannot be built here, empty if it can.
    """

    backend: str
    precision: str
    ranges: tuple[BatchRange, ...] = ()
    quick: bool = False
    unavailable: str = ""

    @property
    def name(self) -> str:
        """``tensorrt fp16``, and ``tensorrt fp16 @1+8`` where it is tuned for batch 1 and batch 8; ``tensorrt fp16 @8
        quick`` where its builder looks at fewer kernels."""
        tuned = "+".join(str(one.best) for one in self.ranges)
        words = (self.backend, self.precision, f"@{tuned}" if tuned else "", QUICKLY if self.quick else "")
        return " ".join(filter(None, words))

    @property
    def one_batch(self) -> int:
        """The batch that an engine of a single range is compiled for; 0 of one for every batch."""
        return self.ranges[0].high if self.ranges else 0

    @property
    def gated_at(self) -> tuple[int, ...]:
        """The batches at which the gate compares it with the source model: each that it is tuned for, as each may run
        kernels of its own, and of a single range also one less, which runs in the wide profile beside the exact one, or
        filled up. Empty where one engine takes every batch."""
        exact = tuple(one.best for one in self.ranges)
        wider = len(self.ranges) == 1 and self.ranges[0].low < exact[0]
        return (*exact, exact[0] - 1) if wider else exact

    def covers(self, batch: int) -> bool:
        return not self.ranges or any(one.low <= batch <= one.high for one in self.ranges)


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """The source model as checked ONNX, the common ground of all engines.

    ``interface`` has the batch dimension first in every shape, as the free dimension ``batch``. ``given`` makes what
    the graph takes of what clients send, where that is not the same. ``missing`` says why there is no graph at
    ``path``, for users, and ``program_bytes`` is the size of the weights then; empty and 0 where there is one.
    """

    path: Path
    interface: Interface
    opset: int
    given: Callable[[Tensors], Tensors] = lambda inputs: inputs
    missing: str = ""
    program_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Of the graph and what lies beside it, or of the weights."""
        return self.program_bytes or sum(path.stat().st_size for path in self.path.parent.iterdir() if path.is_file())


@dataclass(frozen=True, kw_only=True)
class Joined:
    """How requests of different length run together (``pod/python_model/lengths.py``, which says more of each).

    ``fill`` has every input that is as long as the request, with what it is filled up with; ``cut`` by output the sizes
    that are; ``frames`` those that grow by one with each ``stride`` positions: ``(axis, stride, offset)``. ``left``:
    requests are filled up in front. ``buckets`` are lengths that engines are tuned for, ascending, the last is the
    longest that the model takes. Not ``marked``: nothing tells the model what is padding, and ``mask`` is the input
    that is as long as the request.
    """

    mask: str
    fill: Mapping[str, float]
    cut: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    run_positions: float = 0.0
    steps: tuple[int, ...] = ()
    buckets: tuple[int, ...] = ()
    left: bool = False
    frames: Mapping[str, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)
    marked: bool = True

    @property
    def described(self) -> dict[str, Any]:
        """As ``engines.json`` has it."""
        framed = {"frames": {name: [list(one) for one in axes] for name, axes in self.frames.items()}}
        return {"mask": self.mask, "fill": dict(self.fill), "left": self.left,
                "cut": {name: list(axes) for name, axes in self.cut.items()},
                "run_positions": self.run_positions, "steps": list(self.steps), **(framed if self.frames else {})}


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """What a rung may use.

    ``calibration`` holds batches of real inputs, apart from the evaluation data; empty if none. ``buckets`` are the
    batches that candidates are compared at, ascending, the last is ``max_batch_size``; ``example`` is one batch of
    typical inputs, for the sizes other than the batch. ``source`` is the model itself, for engines that compile it
    rather than its ONNX; ``located`` and ``stated`` (the user's interface) are what another process opens it from.
    ``timing_caches`` is a folder of the store that outlives the build, for what TensorRT measured and the graphs that
    it builds from; None without a store; what lies there counts with a MAC of ``keys``, where there are any.
    ``joined``: requests of different length are to run together. ``keep_precise`` names ONNX nodes that a lower
    precision has to leave as they are. ``weights`` is what the exported graph has of them, None before it is known.
    ``shelf`` is None where builds share nothing. ``time_left`` are the seconds
    until a trial is to stop: what can be stopped then stops, and raises :class:`OutOfTimeError`.
    """

    device: DeviceRequest
    runtime: RuntimeRequest
    max_batch_size: int
    calibration: Sequence[Tensors]
    workspace: Path
    progress: Callable[[float, str], None]
    buckets: tuple[int, ...] = ()
    example: Tensors | None = None
    source: SourceModel | None = None
    located: Located | None = None
    stated: Interface | None = None
    timing_caches: Path | None = None
    keep_precise: tuple[str, ...] = ()
    weights: Weights | None = None
    shelf: Shelf | None = None
    keys: Keys | None = None
    joined: Joined | None = None
    time_left: Callable[[], float] = lambda: math.inf

    def folder(self, rung: Rung) -> Path:
        """Where the files of its engine are made; it need not be there."""
        return self.workspace / rung.name.replace(" ", "-")


def not_served(context: BuildContext, lacks: str, library: str) -> str:
    """Why nothing runs an engine: the server image ``lacks`` what would. By hand there is no image: Triton runs with
    this Python, which has no ``library``."""
    if not context.runtime.server_image:
        return f"this Python, which Triton runs with by hand, has no {library}: install it"
    return (f"the server image cannot run it: it has {lacks}. Name another one in spec.serving.image; status.server "
            "shows what this one has")


def in_python(context: BuildContext) -> BuildContext:
    """For an engine that has something before or behind it which Triton's Python backend alone runs."""
    return replace(context, runtime=replace(context.runtime, backends=("python",)))


class OutOfTimeError(Exception):
    """A trial was stopped, as its time was over."""


class Shelf:
    """What engines want to use again in the next build, as it is costly to make. A caller that runs several builds
    clears it."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """None if it is not there."""
        return self._held.get(name)

    def put(self, name: str, value: Any) -> None:
        self._held[name] = value

    def clear(self) -> None:
        self._held.clear()


@dataclass(frozen=True, kw_only=True)
class Member:
    """One engine of a composite: it answers the batches up to ``up_to`` that no member before it takes."""

    up_to: int
    artifact: Artifact


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A built engine: what goes into the Triton version folder and how Triton runs it.

    ``files`` maps names inside the version folder (``1/``) to where they are now. ``triton_backend`` is ``python``,
    ``onnxruntime`` or ``tensorrt``; with ``python``, ``python_runtime`` (``onnxruntime``, ``tensorrt`` or ``torch``)
    says which library runs it there. ``parameters`` become ``config.pbtxt`` parameters. ``in_python`` are those with
    which ``python`` runs the same files, too, where ``triton_backend`` is another one; None where the server cannot.
    ``graph`` is the ONNX with this precision written in it, from which the engine was built: where a drift is looked
    for layer by layer. ``graph_seconds`` were spent on that, which the next engine from it needs no more.
    ``beside_seconds``: it was made beside other builds and took so long, which its own build did not; 0 if it was not.
    ``members`` is filled for a composite alone, ascending by ``up_to``; its ``files`` are then all of theirs.
    ``joined``: requests of different length run together, where Triton's Python backend runs it. ``folded`` has what of
    a run is not the model's own, ascending by batch; empty where nothing is, or that was not measured.
    """

    rung: Rung
    files: Mapping[str, Path]
    triton_backend: str
    interface: Interface
    runtime_version: str
    python_runtime: str = "onnxruntime"
    parameters: Mapping[str, str] = field(default_factory=dict)
    in_python: Mapping[str, str] | None = None
    graph: Path | None = None
    graph_seconds: float = 0.0
    beside_seconds: float = 0.0
    members: tuple[Member, ...] = ()
    joined: Joined | None = None
    folded: tuple[Folded, ...] = ()

    def folded_at(self, batch: float) -> Folded | None:
        """At the smallest batch measured that holds ``batch``, of the member that takes it."""
        folded = next((one.artifact for one in self.members if batch <= one.up_to), self).folded
        return next((one for one in folded if batch <= one.batch), folded[-1] if folded else None)

    @property
    def ways(self) -> tuple[Artifact, ...]:
        """This engine through each backend of the server that runs it, the preferred one first."""
        if self.in_python is None:
            return (self,)
        return self, replace(self, triton_backend="python", parameters=self.in_python, in_python=None)

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files.values())


class Runner(Protocol):
    """A loaded engine in this process, to measure accuracy and bare latency. Call it with one batch."""

    def __call__(self, inputs: Tensors) -> Tensors: ...

    def bind(self, inputs: Tensors) -> Call:
        """What is timed: on a GPU the inputs lie in its memory already, as every candidate needs the same copies."""
        ...

    def close(self) -> None: ...


class Engine(Protocol):
    """A backend. Raises :class:`enginewright_builder.errors.BuilderError` with a reason for what the user can mend."""

    name: str

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        """The ladder for this device, most precise first; one rung if ``precision`` is not ``auto``."""
        ...

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        """The same precision tuned for ``context.buckets``, tried only where ``rung`` was among the fastest."""
        ...

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact: ...

    def load(self, artifact: Artifact) -> Runner: ...


class Beside(Protocol):
    """Work for a later build that goes on in a process of its own, beside others. ``makes_engine``: all of that build's
    work, not its graph alone. ``made``: what it was begun for is there."""

    @property
    def makes_engine(self) -> bool: ...

    @property
    def running(self) -> bool: ...

    @property
    def made(self) -> bool: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def cancel(self) -> None: ...


@runtime_checkable
class Foresighted(Protocol):
    """An engine that can do part of a build beside others."""

    def at_a_time(self, cpus: int) -> int:
        """How many such works may go on at once on a machine of so many CPUs; 1 at least."""
        ...

    def foresees(self, rung: Rung) -> bool:
        """Whether there can be something of the kind to do for ``rung``."""
        ...

    def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Beside | None:
        """Starts it, for :meth:`Engine.build` to take what it made; None where there is nothing of the kind to do."""
        ...
