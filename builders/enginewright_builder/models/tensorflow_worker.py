"""The process that holds TensorFlow: ``python3 -I -S tensorflow_worker.py FOLDER``, FOLDER having the packages of
``requirements/tensorflow.txt``. It imports nothing of this project and no package of the builder's, and reads and
writes JSON lines, and arrays in files.

What it opens was looked through before (``sources/saved_model.py``, ``sources/keras_file.py``).
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import sys
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

# Of names while a graph is converted: the user's may be such that TensorFlow writes them otherwise.
_IN, _OUT = "enginewright__in_", "enginewright__out_"
# linux/prctl.h
_PR_SET_PDEATHSIG = 1


def main(packages: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    sys.path.insert(0, packages)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print
    model = Model()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(model, f"do_{asked.pop('do')}")(**asked)
        except MemoryError:
            raise
        except Exception as error:  # of TensorFlow, Keras, tf2onnx and what they call
            text = " ".join(str(error).split()) or type(error).__name__
            answer = {"error": f"{type(error).__name__}: {text}"[:600]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Model:
    """A source, once it is open."""

    def __init__(self) -> None:
        self._call: Callable[..., Mapping[str, Any]]
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._loaded: Any = None

    def do_open(self, path: str, kind: str, signature: str, work: str, threads: int) -> dict[str, Any]:
        """A folder with a SavedModel, or a file of Keras's, which is exported to a folder in ``work`` first."""
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        if kind == "keras":
            path = _exported(path, work)
        self._loaded = tf.saved_model.load(path)
        self._call = call = self._loaded.signatures[signature]
        # In an order that does not depend on how TensorFlow keeps them.
        self._inputs = dict(sorted(call.structured_input_signature[1].items()))
        self._outputs = dict(sorted(call.structured_outputs.items()))
        return {"inputs": [_described(name, spec) for name, spec in self._inputs.items()],
                "outputs": [_described(name, spec) for name, spec in self._outputs.items()], "version": tf.__version__}

    def do_convert(self, target: str, opset: int) -> dict[str, Any]:
        """ONNX with the signature's names, an input for each of the signature's that it needs."""
        import onnx
        import tensorflow as tf
        from tf2onnx import convert

        names, given, answered = list(self._inputs), self._call, list(self._outputs)

        def renamed(*tensors: Any) -> dict[str, Any]:
            found = given(**dict(zip(names, tensors, strict=True)))
            return {f"{_OUT}{index}": found[name] for index, name in enumerate(answered)}

        specs = [tf.TensorSpec(spec.shape, spec.dtype, name=f"{_IN}{index}")
                 for index, spec in enumerate(self._inputs.values())]
        function = tf.function(renamed, input_signature=specs)
        _teach()
        model, _ = convert.from_function(function, specs, opset=opset)
        _keep_constants(model.graph, function.get_concrete_function(*specs))
        for value in (*model.graph.input, *model.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if not dim.HasField("dim_value"):  # tf2onnx numbers free sizes through
                    dim.Clear()
        large = model.ByteSize() > 1_800_000_000
        onnx.save(model, target, save_as_external_data=large, location=os.path.basename(target) + ".data")
        return {"inputs": {value.name: names[int(value.name.removeprefix(_IN).partition(":")[0])]
                           for value in model.graph.input},
                "outputs": {value.name: answered[int(value.name.removeprefix(_OUT).partition(":")[0])]
                            for value in model.graph.output}}

    def do_run(self, inputs: str, outputs: str) -> dict[str, Any]:
        """Arrays are numbered in the signature's order."""
        import numpy as np
        import tensorflow as tf

        with np.load(inputs, allow_pickle=False) as file:
            given = {name: tf.constant(file[f"array_{index}"], spec.dtype)
                     for index, (name, spec) in enumerate(self._inputs.items())}
        found = self._call(**given)
        np.savez(outputs, **{f"array_{index}": found[name].numpy() for index, name in enumerate(self._outputs)})
        return {}


# What tf2onnx has no operator for, by the input, a tensor of 1 and a maker of operators: ``gelu`` has the first.
_WRITTEN: dict[str, Callable[[str, str, Callable[..., str]], tuple[str, list[str]]]] = {
    "Erfc": lambda x, one, make: ("Sub", [one, make("Erf", x)]),
    "Expm1": lambda x, one, make: ("Sub", [make("Exp", x), one]),
    "Log1p": lambda x, one, make: ("Log", [make("Add", x, one)]),
}


def _teach() -> None:
    """Adds to what tf2onnx converts."""
    import numpy as np
    from tf2onnx import utils
    from tf2onnx.handler import tf_op

    def write(ctx: Any, node: Any, **kwargs: Any) -> None:
        del kwargs
        name, found = node.output[0], node.input[0]
        types = {"shapes": [ctx.get_shape(name)], "dtypes": [ctx.get_dtype(name)]}
        number = utils.map_onnx_to_numpy_type(ctx.get_dtype(name))
        one = ctx.make_const(utils.make_name("one"), np.array(1, number)).output[0]
        ctx.remove_node(node.name)
        last, inputs = _WRITTEN[node.type](found, one, lambda kind, *of: ctx.make_node(kind, of, **types).output[0])
        ctx.make_node(last, inputs, outputs=[name], **types)

    tf_op.register_handler(write, 9, list(_WRITTEN), "", {})
    # In the place of tf2onnx's own, which know fewer shapes and readers.
    tf_op.register_handler(lambda ctx, node, **kwargs: None, 13, ["RFFT"], "", {})
    tf_op.register_handler(_write_part, 13, ["ComplexAbs", "Real", "Imag"], "", {})


def _write_part(ctx: Any, node: Any, **kwargs: Any) -> None:
    """The magnitude, real or imaginary part of a real Fourier transform of a constant length, by products with cosines
    and sines: ONNX has no complex numbers. Others stay as they are, and are refused by name."""
    import numpy as np
    from tf2onnx import utils
    from tf2onnx.onnx_opset.signal import ComplexAbsOp

    transform = node.inputs[0]
    if transform.type != "RFFT":
        if node.type == "ComplexAbs":
            ComplexAbsOp.version_13(ctx, node, **kwargs)
        return
    signal, length, shape = transform.input[0], transform.inputs[1], ctx.get_shape(transform.input[0])
    if not length.is_const() or not shape or shape[-1] < 1:
        return
    points = int(length.get_tensor_value(as_list=False)[0])
    rows = np.arange(shape[-1])[:, None]
    waves = np.where(rows < points, np.exp(-2j * np.pi / points * rows * np.arange(points // 2 + 1)), 0)
    name, number = node.output[0], utils.map_onnx_to_numpy_type(ctx.get_dtype(signal))
    types = {"shapes": [ctx.get_shape(name)], "dtypes": [ctx.get_dtype(name)]}
    ctx.remove_node(node.name)

    def part(values: Any, **last: Any) -> str:
        wave = ctx.make_const(utils.make_name("waves"), values.astype(number)).output[0]
        return str(ctx.make_node("MatMul", [signal, wave], **types, **last).output[0])

    if node.type != "ComplexAbs":
        part(waves.real if node.type == "Real" else waves.imag, outputs=[name])
        return
    squares = [ctx.make_node("Mul", [one, one], **types).output[0] for one in map(part, (waves.real, waves.imag))]
    ctx.make_node("Sqrt", [ctx.make_node("Add", squares, **types).output[0]], outputs=[name], **types)


def _keep_constants(graph: Any, function: Any) -> None:
    """Numbers that the model was given beside its weights, as those of Keras's ``Normalization``: tf2onnx leaves them
    as inputs."""
    from onnx import numpy_helper

    values = {placeholder.name: value for value, placeholder in function.graph.captures}
    for value in [value for value in graph.input if not value.name.startswith(_IN)]:
        graph.initializer.append(numpy_helper.from_array(values[value.name].numpy(), value.name))
        graph.input.remove(value)


def _described(name: str, spec: Any) -> dict[str, Any]:
    """``shape`` is null where not even the number of dimensions is known; a free size is."""
    shape = None if spec.shape.rank is None else list(spec.shape)
    return {"name": name, "dtype": spec.dtype.name, "shape": shape}


def _exported(path: str, work: str) -> str:
    import keras

    _check_weights(path)
    model = keras.saving.load_model(path, compile=False, safe_mode=True)
    folder = os.path.join(work, "exported-keras")
    model.export(folder, format="tf_saved_model", verbose=False)
    return folder


def _check_weights(path: str) -> None:
    """HDF5 knows links to, and arrays in, other files."""
    import h5py

    with zipfile.ZipFile(path) as archive:
        content = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(content, "r") as file:
        stack = [file]
        while stack:
            group = stack.pop()
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise ValueError(f"the weights link to what is no part of the file: {name[:100]!r}")
                found = group[name]
                if isinstance(found, h5py.Dataset):
                    if found.external or found.is_virtual:
                        raise ValueError(f"the weights are in another file: {name[:100]!r}")
                else:
                    stack.append(found)


if __name__ == "__main__":
    main(sys.argv[1])
