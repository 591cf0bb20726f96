"""Runs AOTInductor packages of PyTorch: in the builder, to measure them, and inside Triton's Python backend, to serve
them.

Copied beside ``model.py`` into the version folder; it may import only the standard library, NumPy and PyTorch. On a GPU
all work goes through one stream, and a session is for one thread at a time.

A CUDA graph holds the addresses and the shapes it was captured with. So each shape that comes back gets a graph with
inputs and outputs of its own, and a batch is padded up to the next bucket, so that few shapes come.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
# Shapes whose graphs are kept; past this the least recently used one goes.
MAX_GRAPHS = 64
# Runs before a capture: kernels are loaded and libraries take their workspaces in the first ones, which a capture may
# not (PyTorch's documentation of CUDA graphs, "Whole-network capture").
_WARMUPS = 3
# ``cudaErrorHostMemoryAlreadyRegistered``: by another session of this process.
_ALREADY_REGISTERED = 712
# How ``aoti_compile_and_package`` calls the one model of a package.
_MODEL = "model"

# Triton's arrays are read-only views, and nothing here writes to them.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class Session:
    """The package and its description (``.pt2`` and ``.json``) among ``files``, on CUDA device ``device``, or on the
    CPU if that is negative.

    The description says ``inputs`` and ``outputs`` (name, dtype, and shape with null for a free size), ``batch`` to
    which the package is frozen (0: free), ``tf32``, whether products may be rounded to it, and ``cpu_flags`` that the
    machine's processor must have. ``buckets`` are batches whose graphs are captured at once where nothing else is free;
    other shapes get theirs when they come the second time; without buckets nothing is captured. ``parameters``:
    ``threads`` of this process (default: PyTorch's own choice). Without ``ahead`` a graph
    is captured when its batch comes: each took up to two seconds for a model of convolutions (EfficientNet).

    Raises ``RuntimeError`` where the package cannot be loaded here.
    """

    def __init__(self, folder: Path, files: Sequence[str], *, device: int = 0, buckets: Sequence[int] = (),
                 parameters: Mapping[str, str] | None = None, ahead: bool = True) -> None:
        package, description = (Path(folder) / next(name for name in files if name.endswith(ending))
                                for ending in (".pt2", ".json"))
        self._described = json.loads(description.read_text(encoding="utf-8"))
        self.input_names = [spec["name"] for spec in self._described["inputs"]]
        self.output_names = [spec["name"] for spec in self._described["outputs"]]
        self._on_gpu, self._frozen, self._buckets = device >= 0, int(self._described["batch"]), sorted(buckets)
        self.takes_members = self._on_gpu
        _check_processor(self._described["cpu_flags"])
        if threads := int((parameters or {}).get("threads", "0")):
            torch.set_num_threads(threads)
        self._graphs: collections.OrderedDict[tuple[Shape, ...], Graph | None] = collections.OrderedDict()
        if self._on_gpu:
            # Before the package is loaded, which expects CUDA to be there.
            self._device = torch.device("cuda", device)
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()
        self._loader: Any = _loaded(package, device)
        if self._on_gpu and ahead:
            self._capture_ahead()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Answers for one batch. Raises ``ValueError`` for a batch above the frozen one."""
        tensors = [torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in self.input_names]
        batch = len(tensors[0])
        with self._ready():
            if not self._on_gpu:
                answers = self._call(_padded(tensors, self._size(batch)))
            else:
                answers = self._fetched(self._answered([tensors]), batch)
            return {name: value[:batch].numpy() for name, value in zip(self.output_names, answers, strict=True)}

    def run_members(self, batch: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Answers of each member, all members run as one batch on the GPU. Where the inputs are arrays the answers are
        arrays, and where they come from :meth:`receive` the answers lie on the GPU."""
        arrays = isinstance(batch[0][self.input_names[0]], np.ndarray)
        members = [[_tensor(inputs[name]) for name in self.input_names] for inputs in batch]
        rows = [len(tensors[0]) for tensors in members]
        with self._ready():
            outputs = self._answered(members)
            if arrays:
                split = [_split(value, rows) for value in self._fetched(outputs, sum(rows))]
                return [{name: part.numpy() for name, part in zip(self.output_names, parts, strict=True)}
                        for parts in zip(*split, strict=True)]
            # Copies, so that the next answer does not write over these.
            split = [_split(value[:sum(rows)].clone(), rows) for value in outputs]
            self._stream.synchronize()
            return [dict(zip(self.output_names, parts, strict=True)) for parts in zip(*split, strict=True)]

    def register(self, address: int, size: int) -> None:
        """Page-locks host memory that stays mapped as long as this process lives: a copy from it to the GPU is not
        staged. Raises ``RuntimeError`` where CUDA refuses."""
        error = int(torch.cuda.cudart().cudaHostRegister(address, size, 0))  # type: ignore[no-untyped-call]
        if error not in (0, _ALREADY_REGISTERED):
            raise RuntimeError(f"CUDA: error {error} of cudaHostRegister")

    def receive(self, tensor: Any) -> torch.Tensor:
        """A view of a tensor that speaks DLPack, on this session's GPU (copied there if it lies elsewhere)."""
        view: torch.Tensor = torch.utils.dlpack.from_dlpack(tensor)
        return view.to(self._device)

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], object]:
        """On a GPU inputs are copied there now, and outputs stay there."""
        tensors = [torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in self.input_names]
        wanted = _padded(tensors, self._size(len(tensors[0])))
        if not self._on_gpu:
            return lambda: self._call(wanted)
        with self._ready():
            held = [tensor.to(self._device) for tensor in wanted]
            graph = self._graph(_shapes(held), seen=True) if self._buckets else None
            if graph is not None:
                graph.fill([held])
            self._stream.synchronize()

        def call() -> object:
            with self._ready():
                value = self._call(held)
                self._stream.synchronize()
                return value

        return call if graph is None else lambda: self._replayed(graph)

    def _replayed(self, graph: Graph) -> object:
        """A captured run keeps the settings that it was captured with: to set them again would cost a small model a
        tenth of its time."""
        with torch.cuda.stream(self._stream):
            value = graph.replay()
        self._stream.synchronize()
        return value

    def close(self) -> None:
        """Gives the GPU's memory back; a session that is closed already stays so."""
        self._graphs.clear()
        self._loader = None

    @contextlib.contextmanager
    def _ready(self) -> Iterator[None]:
        """On this session's stream, with FP32 products as they were when it was measured: packages call cuBLAS and
        cuDNN, which read the process's setting at every call."""
        with torch.inference_mode():
            if not self._on_gpu:
                yield
                return
            matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
            before = matmul.allow_tf32, cudnn.allow_tf32
            matmul.allow_tf32 = cudnn.allow_tf32 = self._described["tf32"]
            try:
                with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
                    yield
            finally:
                matmul.allow_tf32, cudnn.allow_tf32 = before

    def _call(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Answers row by row: Triton takes no others through DLPack, and a compiler that computes in NHWC leaves them
        so even where the program asks for rows (PyTorch 2.11 on a GPU)."""
        return [value.contiguous() for value in self._loader.run(list(tensors))]

    def _answered(self, members: Sequence[Sequence[torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Outputs on the GPU, valid until the next call; the rows of all members lie one after the other."""
        total = sum(len(tensors[0]) for tensors in members)
        shapes = tuple((self._size(total), *tensor.shape[1:]) for tensor in members[0])
        graph = self._graph(shapes)
        if graph is not None:
            graph.fill(members)
            return graph.replay()
        joined = [torch.cat([part.to(self._device) for part in parts]) if len(members) > 1
                  else parts[0].to(self._device) for parts in zip(*members, strict=True)]
        return self._call(_padded(joined, shapes[0][0]))

    def _fetched(self, outputs: Sequence[torch.Tensor], batch: int) -> list[torch.Tensor]:
        """Copies in page-locked memory, which PyTorch keeps for the next ones, so that the next answer does not write
        over these."""
        held = [torch.empty((batch, *value.shape[1:]), dtype=value.dtype, pin_memory=True).copy_(
            value[:batch], non_blocking=True) for value in outputs]
        self._stream.synchronize()
        return held

    def _size(self, batch: int) -> int:
        """The batch that is run: the frozen one, or the next bucket where a graph is replayed."""
        if self._frozen and batch > self._frozen:
            raise ValueError(f"a batch of {batch} is above {self._frozen}, which this engine is compiled for")
        if self._frozen or not self._on_gpu:
            return self._frozen or batch
        return next((size for size in self._buckets if batch <= size), batch)

    def _graph(self, shapes: tuple[Shape, ...], *, seen: bool = False) -> Graph | None:
        """From the second time on: a shape that never comes back is not worth a capture."""
        if not self._buckets:
            return None
        graph = self._graphs.get(shapes)
        if graph is None:
            graph = self._captured(shapes) if seen or shapes in self._graphs else None
            self._graphs[shapes] = graph
        self._graphs.move_to_end(shapes)
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)
        return graph

    def _captured(self, shapes: Sequence[Shape]) -> Graph | None:
        types = [getattr(torch, spec["dtype"]) for spec in self._described["inputs"]]
        inputs = [torch.zeros(shape, dtype=kind, device=self._device)
                  for shape, kind in zip(shapes, types, strict=True)]
        try:
            return Graph(self._call, inputs, self._stream, self._pool)
        except RuntimeError as error:
            print(f"no CUDA graph for {shapes}: {error}", file=sys.stderr)
            self._buckets = []
            return None

    def _capture_ahead(self) -> None:
        shapes = [spec["shape"][1:] for spec in self._described["inputs"]]
        if any(size is None for shape in shapes for size in shape):
            return  # the size to capture is unknown
        for batch in dict.fromkeys(self._size(size) for size in list(self._buckets)):
            with self._ready():
                self._graph(tuple((batch, *shape) for shape in shapes), seen=True)


class Graph:
    """One captured run. ``inputs`` are what it reads and ``outputs`` what it writes, at every replay.

    Rows beyond those filled keep what was there before: zeros or older inputs, the answers of which are not read.
    """

    def __init__(self, call: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]], inputs: list[torch.Tensor],
                 stream: torch.cuda.Stream, pool: Any) -> None:
        self.inputs = inputs
        for _ in range(_WARMUPS):
            call(inputs)
        stream.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        # Other threads of the process (Triton's stub has some) may call CUDA meanwhile.
        with torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self.outputs = call(inputs)

    def fill(self, members: Sequence[Sequence[torch.Tensor]]) -> None:
        begin = 0
        for tensors in members:
            end = begin + len(tensors[0])
            for target, tensor in zip(self.inputs, tensors, strict=True):
                target[begin:end].copy_(tensor, non_blocking=True)
            begin = end

    def replay(self) -> list[torch.Tensor]:
        self._graph.replay()
        return self.outputs


def _loaded(package: Path, device: int) -> Any:
    """What ``torch._inductor.aoti_load_package`` wraps. That would also compare this processor with the one compiled
    for, to warn: a newer one is meant, a lesser one is refused here. For it, it tries the C++ compiler with every
    instruction set that the processor has, which was most of a replica's cold start (9 of 11 s, two cores)."""
    _share_cxx_library()
    # One thread at a time is what a capture needs, too: otherwise the runner takes locks and events.
    one_thread, runners = True, 1
    return torch._C._aoti.AOTIModelPackageLoader(str(package), _MODEL, one_thread, runners, device)


def _share_cxx_library() -> None:
    """Makes the process's C++ library the one that packages use.

    Some compilers link one of their own into the package (``-static-libstdc++``, or what a newer release adds to the
    system's). It then works with a locale that the process's library has made, whose facets stand in another order, and
    the process dies in ``std::regex`` as the package is loaded. Triton's stub has it in global scope anyway.
    """
    with contextlib.suppress(OSError):  # no GNU C++ library, so nothing that a package could mix up with it
        ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)


def _tensor(value: Any) -> torch.Tensor:
    """Views, both."""
    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _split(value: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
    """Views of ``rows`` rows each."""
    return [value[end - count:end] for count, end in zip(rows, itertools.accumulate(rows), strict=True)]


def _padded(tensors: Sequence[torch.Tensor], size: int) -> list[torch.Tensor]:
    """Repeats the last row: real values, of which no operator makes NaN that it does not make of the row itself."""
    missing = size - len(tensors[0])
    if missing <= 0:
        return list(tensors)
    return [torch.cat([tensor, tensor[-1:].expand(missing, *tensor.shape[1:])]) for tensor in tensors]


def _shapes(tensors: Sequence[torch.Tensor]) -> tuple[Shape, ...]:
    return tuple(tuple(tensor.shape) for tensor in tensors)


def _check_processor(needed: Sequence[str]) -> None:
    """An instruction that the processor lacks would end the process without a word."""
    if not needed:
        return
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        have = next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith(("flags", "Features"))),
                    set())
    if missing := sorted(set(needed) - have):
        raise RuntimeError(f"this engine is compiled for processors with {', '.join(needed)}; this one lacks "
                           f"{', '.join(missing)}")
