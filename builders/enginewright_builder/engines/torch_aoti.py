"""Compiled PyTorch: the source model itself through ``torch.export`` and AOTInductor, served with CUDA graphs.

One package takes every batch; specialised ones are compiled for one batch, and smaller batches are filled up to it.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping, Sequence

from enginewright_builder.engines.base import (
    Artifact,
    BatchRange,
    BuildContext,
    ExportedModel,
    Rung,
    Runner,
    not_served,
)
from enginewright_builder.engines.buckets import bucket_ranges
from enginewright_builder.engines.session_parameters import BUCKETS, captured_batches
from enginewright_builder.engines.torch_ahead import PackageAhead, room
from enginewright_builder.engines.torch_compile import PACKAGE_FILE, compile_program, compiler, describe
from enginewright_builder.errors import BuilderError, UserError, first_line, known_or
from enginewright_builder.models.base import TorchProgram
from enginewright_builder.session_runner import SessionRunner
from enginewright_builder.system import available_cpus

# Half precision on CPUs is left out: without AMX it is emulated, and the build node need not be the serving one.
_GPU_LADDER, _CPU_LADDER = ("fp32", "tf32", "bf16", "fp16"), ("fp32",)
DEVICE = "device"
# Packages that are compiled at once. Most of a compilation is one thread's work, and the package for every batch takes
# as long as two for single batches, so that with three at a time all are there when the first is.
_PACKAGES, _CPUS_EACH = 3, 5
# On the shelf: what is being compiled beside the builds.
_AHEAD = "torch ahead"


class TorchEngine:
    name = "torch"

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        ladder = _GPU_LADDER if context.device.accelerator == "gpu" else _CPU_LADDER
        reason = _why_not(context)
        return [Rung(backend=self.name, precision=name, unavailable=reason) for name in ladder
                if precision in ("auto", name)]

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        """On a GPU a package for each bucket, the smallest first: with the batch known the compiler chooses kernels
        that it cannot choose for a free one. On a CPU one for single samples alone: rows that are filled up
        cost as much there as real ones."""
        ranges = bucket_ranges(context.buckets)
        if len(ranges) < 2:
            return ()
        if context.device.accelerator != "gpu":
            ranges = (BatchRange(low=1, best=1, high=1),)
        return [Rung(backend=self.name, precision=rung.precision, ranges=(one,)) for one in ranges]

    def at_a_time(self, cpus: int) -> int:
        return max(1, min(_PACKAGES, cpus // _CPUS_EACH))

    def foresees(self, rung: Rung) -> bool:
        return not rung.unavailable

    def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> PackageAhead | None:
        """Compiles its package. None where the process could not open the source, or the GPU's memory does not hold it
        once more."""
        begun = _begun(context)
        if rung.unavailable or context.shelf is None or context.located is None or rung.name in begun:
            return None
        if not room(model.size_bytes, sum(one.running for one in begun.values())):
            return None
        ahead = PackageAhead.started(rung, context, context.located, PACKAGE_FILE)
        context.shelf.put(_AHEAD, {**begun, rung.name: ahead})
        return ahead

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        """Raises :class:`UserError` ``CandidateFailed`` for what PyTorch cannot trace or compile."""
        import torch

        batch = rung.one_batch
        program = context.source.torch_program(rung.precision, batch) if context.source else None
        if program is None:
            raise _failed(rung, "the source cannot be traced by torch.export")
        folder = context.folder(rung)
        folder.mkdir(parents=True, exist_ok=True)
        tf32 = rung.precision == "tf32"
        package = folder / PACKAGE_FILE
        ahead = _begun(context).get(rung.name)
        beside = ahead.finish(package, context) if ahead else 0.0
        if not beside:
            context.progress(0.1, f"compiling {rung.name}")
            try:
                compile_program(program, folder, context.workspace, tf32=tf32)
            except Exception as error:  # exporter and compiler fail in many classes of their own
                raise _explained(rung, error) from error
        description = describe(folder, model.interface, batch=batch, tf32=tf32)
        return Artifact(rung=rung, files={path.name: path for path in (package, description)}, triton_backend="python",
                        python_runtime=self.name, interface=model.interface, beside_seconds=beside,
                        runtime_version=f"torch {torch.__version__}", parameters=_parameters(rung, program, context))

    def load(self, artifact: Artifact) -> Runner:
        from enginewright_builder.pod.python_model.aoti_session import Session

        folder = next(iter(artifact.files.values())).parent
        return SessionRunner(Session(folder, list(artifact.files), device=int(artifact.parameters[DEVICE]),
                                     buckets=captured_batches(artifact), ahead=False,
                                     parameters={"threads": str(available_cpus())}))


def _begun(context: BuildContext) -> Mapping[str, PackageAhead]:
    """By the names of their rungs."""
    found = context.shelf.get(_AHEAD) if context.shelf else None
    return found if isinstance(found, dict) else {}


def _why_not(context: BuildContext) -> str:
    installed = importlib.util.find_spec("torch") is not None
    if TorchEngine.name not in context.runtime.python_runtimes:
        if installed and not context.runtime.server_image:
            return "by hand it is left out on a CPU, where it takes long to compile: write --backend torch to have it"
        return not_served(context, "no PyTorch for Triton's Python backend", "PyTorch")
    if not installed:
        return "this builder image has no PyTorch"
    if not compiler():
        return "this builder image has no C++ compiler, which PyTorch's compiler needs: install g++"
    if context.source is None or context.source.torch_program("fp32") is None:
        return "the source is no PyTorch program that torch.export could trace: give a Hugging Face folder or a .pt2"
    if context.device.accelerator != "gpu":
        return ""
    import torch

    return "" if torch.cuda.is_available() else "PyTorch finds no CUDA device here"


def _parameters(rung: Rung, program: TorchProgram, context: BuildContext) -> dict[str, str]:
    """On a GPU CUDA graphs are captured: of a package for one batch its own, else of the sizes that batches are filled
    up to, the buckets and their halves. More would cost each replica a second or two of its start."""
    if not any(argument.is_cuda for argument in program.args):
        return {DEVICE: "-1"}
    buckets = [size for size in context.buckets if rung.covers(size)]
    halves = [] if rung.ranges else [size // 2 for below, size in itertools.pairwise(buckets) if size // 2 > below]
    return {DEVICE: "0", BUCKETS: ",".join(map(str, sorted({*buckets, *halves})))}


def _explained(rung: Rung, error: Exception) -> BuilderError:
    """The model's, unless it is memory."""
    return known_or(error, _failed(rung, first_line(error, 300)))


def _failed(rung: Rung, text: str) -> UserError:
    return UserError("CandidateFailed", f"{rung.name} cannot be built: {text}", field="spec.engine.backend",
                     value=rung.backend, remedy="write auto or onnxruntime, or make the forward pass free of branches "
                                                "on tensor values")
