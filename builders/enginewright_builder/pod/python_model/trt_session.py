"""Runs TensorRT plans: in the builder, to measure them, and inside Triton's Python backend, to serve them.

Copied beside ``model.py`` into the version folder; it may import only the standard library, NumPy, TensorRT and
``cuda.bindings``. All work goes through one stream, so all contexts share one scratch memory, and a session is for one
thread at a time.

Inputs go to the engine's own buffers by one copy where that is possible: from the GPU, or from page-locked memory of
the host. Other memory of the host is staged in page-locked memory first.

A CUDA graph holds the addresses and the shapes it was captured with. So inputs and outputs lie in buffers that never
move, large enough for every profile, and each shape has a context and a graph of its own. To make one takes as long as
hundreds of runs, so a request must not wait for it: batches are filled up to one of few sizes (:func:`steps`), which
are captured when the session opens.
"""

from __future__ import annotations

import collections
import ctypes
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
# Shapes whose graphs are kept. A graph takes some MiB at most; past this the least recently used one goes.
MAX_GRAPHS = 64
# And shapes that are counted until they get one.
MAX_COUNTED = 1024
# A shape that was not captured when the session opened gets its graph when it comes the second time, as long as there
# are few graphs; then only if it comes often, as texts of any length would have graphs made all the time.
FEW_GRAPHS, SECOND, OFTEN = 16, 2, 32
_DLPACK_CUDA = 2
_DLPACK_KINDS = {0: "int", 1: "uint", 2: "float", 6: "bool"}


class ShapeNotCoveredError(ValueError):
    """No optimisation profile takes these shapes; the message says which shapes there are."""


@dataclass(frozen=True)
class Profile:
    """One optimisation profile of one plan: for each input its smallest, best and largest shape, the batch first."""

    engine: int
    index: int
    ranges: Mapping[str, tuple[Shape, Shape, Shape]] = field(hash=False)

    def fit(self, shapes: Shapes) -> tuple[int, int] | None:
        """Rows to add in front so that it takes ``shapes``, and how far it is from its best then; None if it cannot.

        The distance is Triton's own: the sum of differences over all dimensions.
        """
        missing, distance = 0, 0
        for name, (low, best, high) in self.ranges.items():
            batch, *sizes = shapes[name]
            inside = len(shapes[name]) == len(low) and all(
                a <= size <= b for a, size, b in zip(low[1:], sizes, high[1:], strict=True))
            if not inside or batch > high[0]:
                return None
            missing = max(missing, low[0] - batch)
            distance += sum(abs(size - wanted) for size, wanted in zip((max(batch, low[0]), *sizes), best, strict=True))
        return missing, distance

    def __str__(self) -> str:
        return ", ".join(f"{name}[{', '.join(_span(a, b) for a, b in zip(low, high, strict=True))}]"
                         for name, (low, _, high) in self.ranges.items())


def steps(low: int, high: int) -> list[int]:
    """Batches of ``low`` to ``high`` that are run as they are, the powers of two and half way between: 1, 2, 3, 4, 6,
    8, 12, 16, 24 … and ``high``. A batch between two of them gets at most half as many rows again."""
    powers = [1 << power for power in range(high.bit_length())]
    between = [size + size // 2 for size in powers if size > 1]
    return sorted({size for size in (*powers, *between) if low <= size <= high} | {high})


def filled_up(profile: Profile, shapes: Shapes) -> Shapes:
    """``shapes`` with the rows of the next step that ``profile`` takes."""
    low = max(low[0] for low, _, _ in profile.ranges.values())
    high = min(high[0] for _, _, high in profile.ranges.values())
    rows = next(iter(shapes.values()))[0]
    wanted = next((step for step in steps(low, high) if step >= rows), rows)
    return {name: (wanted, *shape[1:]) for name, shape in shapes.items()}


def choose(profiles: Sequence[Profile], shapes: Shapes) -> tuple[Profile, Shapes]:
    """The profile that adds the fewest rows, of those the nearest to its best shape, of those the first; with the
    shapes to run at. Raises :class:`ShapeNotCoveredError`."""
    if len({shape[:1] for shape in shapes.values()}) != 1:
        raise ValueError(f"inputs differ in their batch: {_text(shapes)}")
    fits = [(fit, profile) for profile in profiles if (fit := profile.fit(shapes)) is not None]
    if not fits:
        raise ShapeNotCoveredError(f"{_text(shapes)} is outside every optimisation profile of this engine; it takes "
                              + " or ".join(dict.fromkeys(map(str, profiles))))
    (missing, _), profile = min(fits, key=lambda pair: pair[0])
    return profile, {name: (shape[0] + missing, *shape[1:]) for name, shape in shapes.items()}


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}..{high}"


def _text(shapes: Shapes) -> str:
    return ", ".join(f"{name}{list(shape)}" for name, shape in shapes.items())


_Key = tuple[Profile, tuple[Shape, ...]]


class Session:
    """The plans ``files`` in ``folder`` as one model; all of them have the same inputs and outputs.

    With ``buckets`` the graphs of all :func:`steps` up to the largest of them are captured at once, at each profile's
    best sizes where more than the batch is free. Other shapes get theirs when they come back. Raises ``RuntimeError``
    where a plan cannot be loaded, ``ValueError`` for one whose outputs depend on values.
    """

    takes_members = True

    def __init__(self, folder: Path, files: Sequence[str], *, device: int = 0, buckets: Sequence[int] = ()) -> None:
        self._gpu = Gpu(device)
        self._engines: list[Any] = []
        self._contexts: dict[Profile, Any] = {}
        self._graphs = collections.OrderedDict[_Key, Launch]()
        self._counts = collections.OrderedDict[_Key, int]()
        self._bound: list[Launch] = []
        try:
            self._open([Path(folder) / name for name in files])
            self._capture_ahead(max(buckets, default=0))
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Answers for one batch. An input is an array, or a tensor on this GPU that speaks DLPack.

        Raises :class:`ShapeNotCoveredError`, and ``ValueError`` for a missing input or another type.
        """
        return {name: array.copy() for name, array in self.run_members([inputs])[0].items()}

    def run_members(self, batch: Sequence[Mapping[str, Any]]) -> list[dict[str, Array]]:
        """Answers of each member, all members run as one batch; their inputs differ in nothing but their rows.

        Each input is as for :meth:`run`, or from :meth:`receive`. Answers lie in page-locked memory that is theirs
        until the session is closed. Raises as :meth:`run` does.
        """
        self._gpu.activate()
        members = [{name: self._tensor(name, inputs) for name in self.input_names} for inputs in batch]
        rows = [next(iter(tensors.values())).shape[0] for tensors in members]
        wanted = {name: (sum(tensors[name].shape[0] for tensors in members), *tensor.shape[1:])
                  for name, tensor in members[0].items()}
        profile, shapes = choose(self._profiles, wanted)
        for name in self.input_names:
            self._gpu.fill(self._memory[name], name, [tensors[name] for tensors in members])
        launch = self._launch(profile, filled_up(profile, shapes))
        launch()
        outputs, parts, begin = self._fetch(launch.outputs), [], 0
        for count in rows:
            parts.append({name: array[begin:begin + count] for name, array in outputs.items()})
            begin += count
        return parts

    def receive(self, tensor: Any) -> HostTensor | DeviceTensor:
        """A view of one of Triton's tensors where it lies."""
        return as_tensor(tensor, self._gpu.handle)

    def register(self, address: int, size: int) -> None:
        """Page-locks host memory that stays mapped as long as this session lives: inputs that lie in it go to the GPU
        without being staged. Raises ``RuntimeError`` where CUDA refuses."""
        self._gpu.activate()
        self._gpu.register(address, size)

    def bind(self, inputs: Mapping[str, Any], profiler: Any = None) -> Callable[[], None]:
        """Runs on inputs that lie in the GPU's memory from now on, and returns when the answer is complete. A
        ``tensorrt.IProfiler`` gets each layer after each run; nothing is captured then, as TensorRT does not
        report the layers of a graph."""
        self._gpu.activate()
        tensors = {name: self._tensor(name, inputs) for name in self.input_names}
        profile, shapes = choose(self._profiles, {name: tensor.shape for name, tensor in tensors.items()})
        addresses = dict(self._memory)
        for name, tensor in tensors.items():
            addresses[name] = self._gpu.allocate(self._size(name, shapes[name]))
            self._gpu.fill(addresses[name], name, [tensor])
        context = self._context(profile)
        if profiler is not None:
            context.profiler = profiler
        launch = self._made(context, shapes, addresses, graph=profiler is None)
        self._bound.append(launch)

        def call() -> None:
            launch()
            self._gpu.wait()

        return call

    def close(self) -> None:
        """Frees all memory of the GPU; a session that is closed already stays so."""
        for launch in (*self._bound, *self._graphs.values()):
            launch.close()
        self._bound.clear()
        self._graphs.clear()
        self._contexts.clear()
        self._engines.clear()
        self._gpu.close()

    def _open(self, paths: Sequence[Path]) -> None:
        import tensorrt as trt

        log = _logger(trt)
        trt.init_libnvinfer_plugins(log, "")
        self._runtime = trt.Runtime(log)
        for path in paths:
            engine = self._runtime.deserialize_cuda_engine(path.read_bytes())
            if engine is None:
                raise RuntimeError(f"TensorRT {trt.__version__} cannot load {path.name}: {log.last}")
            self._engines.append(engine)
        first = self._engines[0]
        names = [first.get_tensor_name(index) for index in range(first.num_io_tensors)]
        self.input_names = [name for name in names if first.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        self.output_names = [name for name in names if name not in self.input_names]
        self._types = {name: np.dtype(trt.nptype(first.get_tensor_dtype(name))) for name in names}
        self._profiles = [_profile(engine, number, index, self.input_names)
                          for number, engine in enumerate(self._engines)
                          for index in range(engine.num_optimization_profiles)]
        scratch = max(engine.device_memory_size_v2 for engine in self._engines)
        self._scratch = self._gpu.allocate(scratch), scratch
        self._allocate()

    def _allocate(self) -> None:
        """Buffers that hold the largest shapes of every profile."""
        self._sizes = dict.fromkeys((*self.input_names, *self.output_names), 0)
        for profile in self._profiles:
            context = self._contexts[profile] = self._context(profile)
            shapes = {name: largest for name, (_, _, largest) in profile.ranges.items()}
            for name, shape in {**shapes, **_set_shapes(context, shapes, self.output_names)}.items():
                self._sizes[name] = max(self._sizes[name], self._size(name, shape))
        self._memory = {name: self._gpu.allocate(size) for name, size in self._sizes.items()}

    def _context(self, profile: Profile) -> Any:
        import tensorrt as trt

        engine = self._engines[profile.engine]
        context = engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        if context is None:
            raise RuntimeError("TensorRT could not make an execution context: the GPU may be out of memory")
        if not context.set_optimization_profile_async(profile.index, self._gpu.handle):
            raise RuntimeError(f"TensorRT refused optimisation profile {profile.index}")
        self._gpu.wait()
        context.set_device_memory(*self._scratch)
        return context

    def _launch(self, profile: Profile, shapes: Shapes, *, ahead: bool = False) -> Launch:
        """With a graph once it has come back, or ``ahead``: one that never comes back is not worth a capture."""
        key = profile, tuple(shapes[name] for name in self.input_names)
        if key in self._graphs:
            self._graphs.move_to_end(key)
            return self._graphs[key]
        count = self._counts.pop(key, 0) + 1
        if not ahead and count < (SECOND if len(self._graphs) < FEW_GRAPHS else OFTEN):
            self._counts[key] = count
            if len(self._counts) > MAX_COUNTED:
                self._counts.popitem(last=False)
            return self._made(self._contexts[profile], shapes, self._memory, graph=False)
        launch = self._graphs[key] = self._made(self._context(profile), shapes, self._memory, graph=True)
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)[1].close()
        return launch

    def _made(self, context: Any, shapes: Shapes, addresses: Mapping[str, int], *, graph: bool) -> Launch:
        outputs = _set_shapes(context, shapes, self.output_names)
        for name, shape in outputs.items():
            if self._size(name, shape) > self._sizes[name]:
                raise RuntimeError(f"output {name!r} is larger for {_text(shapes)} than for the largest inputs")
        return Launch(self._gpu, context, addresses, outputs, graph=graph)

    def _capture_ahead(self, largest: int) -> None:
        """All that batches up to ``largest`` are filled up to. The best sizes of a profile are those of the evaluation
        data, and so the likeliest."""
        for batch in range(1, largest + 1):
            for one in self._profiles:
                likely = {name: (batch, *best[1:]) for name, (_, best, _) in one.ranges.items()}
                profile, shapes = choose(self._profiles, likely)
                self._launch(profile, filled_up(profile, shapes), ahead=True)

    def _tensor(self, name: str, inputs: Mapping[str, Any]) -> HostTensor | DeviceTensor:
        if name not in inputs:
            raise ValueError(f"input {name!r} is missing; there are {', '.join(inputs)}")
        given = inputs[name]
        tensor = given if isinstance(given, HostTensor | DeviceTensor) else as_tensor(given, self._gpu.handle)
        if tensor.dtype != self._types[name]:
            raise ValueError(f"input {name!r} is {tensor.dtype}, the engine takes {self._types[name]}")
        return tensor

    def _fetch(self, shapes: Shapes) -> dict[str, Array]:
        arrays = {name: self._gpu.download(self._memory[name], shape, self._types[name])
                  for name, shape in shapes.items()}
        self._gpu.wait()
        return arrays

    def _size(self, name: str, shape: Shape) -> int:
        return prod(shape) * self._types[name].itemsize


class Launch:
    """One execution context whose shapes are set, over fixed addresses; as a CUDA graph where it can be captured.

    ``outputs`` are the shapes of its answers. Raises ``RuntimeError`` where TensorRT refuses to run.
    """

    def __init__(self, gpu: Gpu, context: Any, addresses: Mapping[str, int], outputs: Shapes, *, graph: bool) -> None:
        self._gpu, self._context, self.outputs = gpu, context, outputs
        self._graph: Any = None
        for name, address in addresses.items():
            context.set_tensor_address(name, address)
        if graph:
            # The first enqueue after a change of shapes does work of its own, which must not be captured.
            self._enqueue()
            gpu.wait()
            self._graph = gpu.capture(self._enqueue)

    def __call__(self) -> None:
        if self._graph is not None:
            self._gpu.launch(self._graph)
        else:
            self._enqueue()

    @property
    def is_graph(self) -> bool:
        return self._graph is not None

    def _enqueue(self) -> None:
        if not self._context.execute_async_v3(self._gpu.handle):
            raise RuntimeError("TensorRT could not run the engine; the log says why")

    def close(self) -> None:
        if self._graph is not None:
            self._gpu.drop(self._graph)
        self._graph = self._context = None


@dataclass(frozen=True)
class HostTensor:
    array: Array

    @property
    def shape(self) -> Shape:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def reshape(self, shape: Shape) -> HostTensor:
        return HostTensor(self.array.reshape(shape))


@dataclass(frozen=True)
class DeviceTensor:
    """Contiguous memory of a GPU. ``owner`` keeps it alive."""

    pointer: int
    shape: Shape
    dtype: np.dtype[Any]
    owner: object

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def reshape(self, shape: Shape) -> DeviceTensor:
        """The same memory, with as many values."""
        return replace(self, shape=shape)


class _DLTensor(ctypes.Structure):
    """Head of ``DLManagedTensor``, from the DLPack specification, version 0.8."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64))


def as_tensor(value: Any, stream: int) -> HostTensor | DeviceTensor:
    """An array as it is; a tensor on a GPU by its pointer, ready on ``stream``; any other tensor as an array.

    The DLPack capsule is read, never consumed, so its maker frees it, once ``owner`` is gone.
    """
    if isinstance(value, np.ndarray):
        return HostTensor(value)
    if not _on_gpu(value):
        return HostTensor(value.as_numpy() if hasattr(value, "as_numpy") else np.from_dlpack(value))
    capsule = value.to_dlpack() if hasattr(value, "to_dlpack") else value.__dlpack__(stream=stream)
    pointer, shape, dtype = read_capsule(capsule)
    return DeviceTensor(pointer, shape, dtype, (value, capsule))


def _on_gpu(value: Any) -> bool:
    if hasattr(value, "is_cpu"):  # Triton's tensors; PyTorch's has the same name as an attribute
        return not (value.is_cpu() if callable(value.is_cpu) else value.is_cpu)
    return bool(value.__dlpack_device__()[0] == _DLPACK_CUDA)


def read_capsule(capsule: object) -> tuple[int, Shape, np.dtype[Any]]:
    """Address, shape and type of what a DLPack capsule holds. Raises ``ValueError`` unless contiguous in C order."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    head = _DLTensor.from_address(get(capsule, b"dltensor"))
    shape = tuple(head.shape[axis] for axis in range(head.ndim))
    if head.strides and any(size > 1 and head.strides[axis] != prod(shape[axis + 1:])
                            for axis, size in enumerate(shape)):
        raise ValueError("a tensor on the GPU must be contiguous")
    if head.code not in _DLPACK_KINDS or head.lanes != 1:
        raise ValueError("a tensor on the GPU has a type that NumPy lacks")
    kind = _DLPACK_KINDS[head.code]
    dtype = np.dtype(np.bool_ if kind == "bool" else f"{kind}{head.bits}")
    return (head.data or 0) + head.byte_offset, shape, dtype


class Gpu:
    """One stream of one GPU, and all the memory that was asked of it. Raises ``RuntimeError`` with CUDA's error."""

    def __init__(self, device: int) -> None:
        from cuda.bindings import runtime as cuda

        self._cuda, self._device = cuda, device
        self._memory: list[int] = []
        self._pinned: dict[str, tuple[int, Array]] = {}
        self._registered: list[tuple[int, int]] = []
        self._own: list[int] = []
        self._answers = Lent(lambda size: int(self._do(cuda.cudaMallocHost(size))),
                             lambda pointer: self._do(cuda.cudaFreeHost(pointer)))
        self.activate()
        # Never the default stream: it cannot be captured.
        self._stream = self._do(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
        self.handle = int(self._stream)

    def activate(self) -> None:
        """CUDA's current device belongs to the thread, and who calls may have changed it."""
        self._do(self._cuda.cudaSetDevice(self._device))

    def allocate(self, size: int) -> int:
        """Zeroed: rows that no request filled must be harmless."""
        pointer = int(self._do(self._cuda.cudaMalloc(max(size, 1))))
        self._memory.append(pointer)
        self._do(self._cuda.cudaMemsetAsync(pointer, 0, size, self._stream))
        return pointer

    def fill(self, address: int, name: str, tensors: Sequence[HostTensor | DeviceTensor]) -> None:
        """Copies ``tensors``, which are the rows of input ``name``, one after the other to ``address``.

        A copy from the host needs page-locked memory to be asynchronous. Where the array lies in none, it is staged.
        """
        sizes = [prod(tensor.shape) * tensor.dtype.itemsize for tensor in tensors]
        kinds, begin = self._cuda.cudaMemcpyKind, 0
        for tensor, size in zip(tensors, sizes, strict=True):
            if isinstance(tensor, DeviceTensor):
                self._copy(address + begin, tensor.pointer, size, kinds.cudaMemcpyDeviceToDevice)
            elif (source := self._page_locked(tensor.array)) is not None:
                self._copy(address + begin, source, size, kinds.cudaMemcpyHostToDevice)
            else:
                pointer, view = self._pin(name, (sum(sizes),), np.dtype(np.uint8))
                np.copyto(view[begin:begin + size].view(tensor.dtype).reshape(tensor.shape), tensor.array)
                self._copy(address + begin, pointer + begin, size, kinds.cudaMemcpyHostToDevice)
            begin += size

    def register(self, address: int, size: int) -> None:
        """Memory that another session of this process has registered counts, and is left to it at the end."""
        result = self._cuda.cudaHostRegister(address, size, self._cuda.cudaHostRegisterDefault)
        if result[0] == self._cuda.cudaError_t.cudaErrorHostMemoryAlreadyRegistered:
            self._cuda.cudaGetLastError()
        else:
            self._do(result)
            self._own.append(address)
        self._registered.append((address, address + size))

    def _page_locked(self, array: Array) -> int | None:
        """Where ``array`` lies, if all of it is registered and in C order."""
        if not self._registered or not array.flags.c_contiguous:
            return None
        begin = int(array.__array_interface__["data"][0])
        inside = any(low <= begin and begin + array.nbytes <= high for low, high in self._registered)
        return begin if inside else None

    def download(self, address: int, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Page-locked memory, filled after the next :meth:`wait`."""
        array = self._answers.lend(shape, dtype)
        self._copy(int(array.__array_interface__["data"][0]), address, array.nbytes,
                   self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost)
        return array

    def wait(self) -> None:
        self._do(self._cuda.cudaStreamSynchronize(self._stream))

    def capture(self, work: Callable[[], None]) -> Any:
        """``work`` as an executable graph; None where something in it cannot be captured."""
        cuda = self._cuda
        self._do(cuda.cudaStreamBeginCapture(self._stream, cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal))
        try:
            work()
        except RuntimeError:
            cuda.cudaStreamEndCapture(self._stream)
            cuda.cudaGetLastError()
            return None
        error, graph = cuda.cudaStreamEndCapture(self._stream)
        if error != cuda.cudaError_t.cudaSuccess:
            cuda.cudaGetLastError()
            return None
        executable = self._do(cuda.cudaGraphInstantiate(graph, 0))
        self._do(cuda.cudaGraphDestroy(graph))
        return executable

    def launch(self, graph: Any) -> None:
        self._do(self._cuda.cudaGraphLaunch(graph, self._stream))

    def drop(self, graph: Any) -> None:
        self.wait()
        self._do(self._cuda.cudaGraphExecDestroy(graph))

    def close(self) -> None:
        for pointer in self._memory:
            self._do(self._cuda.cudaFree(pointer))
        for pointer, _ in self._pinned.values():
            self._do(self._cuda.cudaFreeHost(pointer))
        self._answers.close()
        for address in self._own:
            self._do(self._cuda.cudaHostUnregister(address))
        self._memory.clear()
        self._pinned.clear()
        self._registered.clear()
        self._own.clear()
        if self._stream is not None:
            self._do(self._cuda.cudaStreamDestroy(self._stream))
        self._stream = None

    def _pin(self, name: str, shape: Shape, dtype: np.dtype[Any]) -> tuple[int, Array]:
        """Page-locked memory of ``name``, enlarged when it is too small. Nothing is under way in it then: every run
        ends with :meth:`wait`."""
        size = prod(shape) * dtype.itemsize
        pointer, raw = self._pinned.get(name, (0, np.empty(0, np.uint8)))
        if raw.nbytes < size or not pointer:
            if pointer:
                self.wait()
                self._do(self._cuda.cudaFreeHost(pointer))
            pointer = int(self._do(self._cuda.cudaMallocHost(max(size, 1))))
            raw = np.ctypeslib.as_array((ctypes.c_uint8 * max(size, 1)).from_address(pointer))
            self._pinned[name] = pointer, raw
        return pointer, raw[:size].view(dtype).reshape(shape)

    def _copy(self, target: int, source: int, size: int, kind: Any) -> None:
        self._do(self._cuda.cudaMemcpyAsync(target, source, size, kind, self._stream))

    def _do(self, result: tuple[Any, ...]) -> Any:
        error, *values = result
        if error != self._cuda.cudaError_t.cudaSuccess:
            raise RuntimeError(f"CUDA: {self._cuda.cudaGetErrorString(error)[1].decode()}")
        return values[0] if values else None


class Lent:
    """Host memory that is lent as arrays: what an array lay in is lent again once its last view is gone, so that
    answers need not be copied to outlive the next run. Where nothing free is large enough it is given back."""

    def __init__(self, allocate: Callable[[int], int], free: Callable[[int], object]) -> None:
        self._allocate, self._give_back = allocate, free
        self._sizes: dict[int, int] = {}
        self._free: list[int] = []

    def lend(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        size = max(prod(shape) * dtype.itemsize, 1)
        pointer = self._taken(size)
        block = (ctypes.c_uint8 * size).from_address(pointer)
        weakref.finalize(block, self._free.append, pointer).atexit = False
        return np.ctypeslib.as_array(block)[:prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def _taken(self, size: int) -> int:
        large = [pointer for pointer in self._free if self._sizes[pointer] >= size]
        if large:
            smallest = min(large, key=self._sizes.__getitem__)
            self._free.remove(smallest)
            return smallest
        while self._free:
            useless = self._free.pop()
            del self._sizes[useless]
            self._give_back(useless)
        pointer = self._allocate(size)
        self._sizes[pointer] = size
        return pointer

    def close(self) -> None:
        """Whatever was lent is not to be read any more."""
        for pointer in self._sizes:
            self._give_back(pointer)
        self._sizes.clear()
        self._free.clear()


def _profile(engine: Any, number: int, index: int, inputs: Iterable[str]) -> Profile:
    def shapes(name: str) -> tuple[Shape, Shape, Shape]:
        low, best, high = (tuple(shape) for shape in engine.get_tensor_profile_shape(name, index))
        return low, best, high

    return Profile(number, index, {name: shapes(name) for name in inputs})


def _set_shapes(context: Any, shapes: Shapes, outputs: Iterable[str]) -> dict[str, Shape]:
    """Sets the inputs' shapes, returns the outputs'. Raises ``ValueError`` where those depend on values."""
    for name, shape in shapes.items():
        if not context.set_input_shape(name, shape):
            raise ShapeNotCoveredError(f"TensorRT refuses {name}{list(shape)}")
    found = {name: tuple(context.get_tensor_shape(name)) for name in outputs}
    for name, shape in found.items():
        if any(size < 0 for size in shape):
            raise ValueError(f"the shape of output {name!r} depends on values: {list(shape)}")
    return found


def _logger(trt: Any) -> Any:
    """Errors go to stderr, which Triton puts into its own log, and the last is kept for a message."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.last = "TensorRT gave no reason"

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.last = message
                print(f"TensorRT: {message}", file=sys.stderr, flush=True)

    return Log()
