"""A line for each model: how it is made, and what becomes of it. ``docs/inputs.md`` shows the table;
``tests/integration/builder_triton/test_inputs.py`` takes each of them from the source to an answer of a tritonserver,
or to the error by which it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

from enginewright_builder.contract import Interface, TensorSpec
from support.inputs import graphs, programs, torchserve
from support.inputs import tensorflow_models as tensors
from support.inputs.tensorflow import made

PROGRAM = "exported program"
MAR = "TorchServe's `.mar`"
SAVED, KERAS, FILE = "SavedModel", "Keras", "model.keras"
BATCHES, CALLS = "several samples a call", "each request is one call"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """``says`` stands in the message or the remedy."""

    reason: str
    says: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """``make`` writes the source into a folder and returns its path. ``served`` is ``BATCHES``, ``CALLS``, or why
    not. ``how`` and ``source`` are for those who read the table."""

    name: str
    make: Callable[[Path], Path]
    served: str | Refused
    how: str = ""
    interface: Interface | None = None
    source: str = "ONNX"


def _onnx(make: Callable[[], onnx.ModelProto]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "model.onnx"
        onnx.save(make(), path)
        return path

    return write


def _beside(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(graphs.product(["batch", 16], ["batch", 8]), path, save_as_external_data=True, location="weights.bin",
              size_threshold=0)
    return path


def _without_weights(folder: Path) -> Path:
    path = _beside(folder)
    (folder / "weights.bin").unlink()
    return path


ENTRIES = (
    Entry(name="the batch in front, by any name", make=_onnx(lambda: graphs.product(["N", 16], ["N", 8])),
          served=BATCHES),
    Entry(name="free sizes without a name", make=_onnx(lambda: graphs.product([None, 16], [None, 8])), served=BATCHES),
    Entry(name="free sizes written as -1", make=_onnx(graphs.minus_one), served=BATCHES),
    Entry(name="several free sizes", make=_onnx(lambda: graphs.product(["batch", "rows", 16], ["batch", "rows", 8])),
          served=BATCHES, how="State ranges in `spec.interface`, such as `[batch, 1..64, 16]`."),
    Entry(name="sounds of free length, a frame for each ten numbers", make=_onnx(graphs.sound), served=BATCHES,
          how="Sounds of different length are joined where padding changes no answer."),
    Entry(name="no batch at all", make=_onnx(lambda: graphs.product([16], [8])), served=CALLS),
    Entry(name="one number a sample, in and out (a recommender's user and item)", make=_onnx(graphs.recommender),
          served=BATCHES, how="Clients send and get `[batch, 1]`. Evaluation data has `5` or `[5]` for a sample."),
    Entry(name="a scalar beside a batch", make=_onnx(graphs.scalar_beside_batch), served=CALLS,
          how="Clients send the scalar as `[1]`."),
    Entry(name="state in and out, the rate as a scalar, `If` on the rate (the shapes of Silero VAD)",
          make=_onnx(graphs.voice), served=CALLS,
          how="The client keeps the state and sends it with its next request, or the server does: "
              "`spec.interface.sequenceBatching`."),
    Entry(name="the same, where `spec.interface` says the rate", make=_onnx(lambda: graphs.voice(slow=16)),
          served=CALLS, interface=Interface(inputs=(TensorSpec(name="sound", dtype="float32", shape=("batch", 32)),
                                      TensorSpec(name="state", dtype="float32", shape=(2, "batch", 8)),
                                      TensorSpec(name="sr", dtype="int64", value=(16000,)))),
          how="The rate is part of the engine, and clients do not send it. Of `If` the branch for it is left."),
    Entry(name="a scalar beside a batch that `spec.interface` gives a value", make=_onnx(graphs.scalar_beside_batch),
          served=BATCHES, interface=Interface(inputs=(TensorSpec(name="threshold", dtype="float32", value=(0.5,)),)),
          how="`inputs: [{name: threshold, dtype: float32, value: [0.5]}]`; clients do not send it."),
    Entry(name="a scalar as the answer", make=_onnx(graphs.scalar_answer), served=CALLS,
          how="Clients get it as `[1]`."),
    Entry(name="time in front, each frame depends on those before", make=_onnx(graphs.time_first), served=CALLS,
          how="Requests joined along it would change each other's answers."),
    Entry(name="a batch that only the declared shapes fix", make=_onnx(lambda: graphs.frozen_shapes(1)),
          served=BATCHES, how="The batch is freed; answers alone and beside others must agree."),
    Entry(name="a batch that is fixed in targets of Reshape", make=_onnx(lambda: graphs.frozen_reshape(4)),
          served=BATCHES, how="The batch is freed; answers alone and beside others must agree."),
    Entry(name="a batch that is fixed, and each answer depends on all of it",
          make=_onnx(lambda: graphs.frozen_together(4)), served=CALLS,
          how="One call holds as many samples as are fixed. Evaluation data holds single samples."),
    Entry(name="a number of results that depends on the values", make=_onnx(graphs.found_places),
          served=Refused(reason="UnsupportedModel", says="fixed number of results")),
    Entry(name="`bool` in and out", make=_onnx(graphs.masked), served=BATCHES),
    Entry(name="`uint8`", make=_onnx(graphs.from_bytes), served=BATCHES),
    Entry(name="`float16`", make=_onnx(lambda: graphs.product(["batch", 16], ["batch", 8], kind=graphs.F16)),
          served=BATCHES),
    Entry(name="`float64`", make=_onnx(lambda: graphs.product(["batch", 16], ["batch", 8], kind=graphs.F64)),
          served=BATCHES),
    Entry(name="texts (`string`) in", make=_onnx(graphs.words), served=BATCHES,
          how="Evaluation data in `.jsonl`: `{\"word\": [\"a\", \"b\"]}`, or `{\"text\": \"…\"}` for a single text."),
    Entry(name="texts out", make=_onnx(lambda: graphs.words(answers_words=True)),
          served=Refused(reason="InterfaceInvalid", says="leave that to the client")),
    Entry(name="texts beside numbers, where `spec.interface` lists the numbers", make=_onnx(
        lambda: graphs.trees(names=("bad", "fair", "good"))), served=BATCHES,
        interface=Interface(outputs=(TensorSpec(name="probability", dtype="float32"),)),
        how="`outputs: [{name: probability, dtype: float32}]`; other outputs are left out."),
    Entry(name="trees of scikit-learn's converter: classes, and probabilities as maps (`ZipMap`)",
          make=_onnx(graphs.trees), served=BATCHES,
          how="Clients get a tensor with a column for each class, in the order that the note of the build says."),
    Entry(name="`bfloat16`", make=_onnx(lambda: graphs.product(["batch", 16], ["batch", 8], kind=graphs.BF16)),
          served=Refused(reason="InterfaceInvalid", says="put a Cast at the graph's border")),
    Entry(name="complex numbers", make=_onnx(graphs.complex_numbers),
          served=Refused(reason="InterfaceInvalid", says="put a Cast at the graph's border")),
    Entry(name="a sequence of tensors", make=_onnx(graphs.sequence),
          served=Refused(reason="InterfaceInvalid", says="not a tensor")),
    Entry(name="no input", make=_onnx(graphs.no_inputs),
          served=Refused(reason="InterfaceInvalid", says="the graph has no inputs")),
    Entry(name="a sequence of one length, with a mask", make=_onnx(graphs.bert_like), served=BATCHES,
          how="Evaluation data are padded to it."),
    Entry(name="`Loop`", make=_onnx(graphs.looped), served=BATCHES),
    Entry(name="operators of a domain of one's own", make=_onnx(graphs.custom),
          served=Refused(reason="UnsupportedOperator", says="standard ONNX operators")),
    Entry(name="operators that the file itself defines as functions", make=_onnx(graphs.function), served=BATCHES),
    Entry(name="operators of ONNX Runtime's own (`com.microsoft`)", make=_onnx(graphs.contributed), served=BATCHES),
    Entry(name="weights in 4 bits, in `MatMulNBits`", make=_onnx(lambda: graphs.few_bits(native=True)), served=BATCHES,
          how="Every candidate keeps them, and the report says so; TensorRT has no such operator."),
    Entry(name="weights in 4 bits, behind `DequantizeLinear`", make=_onnx(lambda: graphs.few_bits(native=False)),
          served=BATCHES, how="Every candidate keeps them, and the report says so."),
    Entry(name="weights in a file beside the graph", make=_beside, served=BATCHES,
          how="Name the folder, or the file with its weights beside it."),
    Entry(name="weights in a file that is missing", make=_without_weights,
          served=Refused(reason="SourceCorrupt", says="put all files of the model into one folder")),
    Entry(name="opset 7", make=_onnx(lambda: graphs.product(["batch", 16], ["batch", 8], opset=7)), served=BATCHES),
    Entry(name="opset 5", make=_onnx(lambda: graphs.product(["batch", 16], ["batch", 8], opset=5)), served=BATCHES,
          how="Opsets below 7 are converted to 13; answers must be those of ONNX's own reference."),
    Entry(name="opset 26", make=_onnx(lambda: graphs.product(["batch", 16], ["batch", 8], opset=26)), served=BATCHES,
          how="As far as the image's ONNX Runtime knows it."),
    Entry(name="an opset that is not out yet", make=_onnx(
        lambda: graphs.product(["batch", 16], ["batch", 8], opset=28)),
          served=Refused(reason="UnsupportedModel", says="export it again with opset 18")),
    Entry(name="an IR version that is not out yet", make=_onnx(graphs.from_the_future),
          served=Refused(reason="UnsupportedModel", says="save it with ir_version")),
    Entry(name="a free size that the user fixes", make=_onnx(
        lambda: graphs.product(["batch", "rows", 16], ["batch", "rows", 8])), served=BATCHES,
        interface=Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4, 16)),))),
    Entry(name="the batch in front", make=programs.free, served=BATCHES, source=PROGRAM),
    Entry(name="a batch that is fixed", make=programs.frozen, served=BATCHES, source=PROGRAM,
          how="It is exported to ONNX and freed there; answers alone and beside others must agree."),
    Entry(name="state in and out, and a scalar", make=programs.with_state, served=CALLS, source=PROGRAM,
          how="The client keeps the state and sends it with its next request."),
    Entry(name="the same, where `spec.interface` gives the scalar a value and the batch is in front",
          make=programs.with_gain, served=BATCHES, source=PROGRAM, interface=programs.GAIN,
          how="Clients do not send it."),
    Entry(name="a scalar as the answer", make=programs.mean, served=CALLS, source=PROGRAM,
          how="Clients get it as `[1]`."),
    Entry(name="a batch in front that it was traced with", make=programs.traced, served=BATCHES, source="TorchScript",
          interface=Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=(programs.FROZEN, 16)),)),
          how="It is exported to ONNX and freed there, where `spec.interface` states the number."),
    Entry(name="state in and out, and a scalar", make=programs.traced_with_state, served=CALLS, source="TorchScript",
          interface=Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=(1, 16)),
                                      TensorSpec(name="state", dtype="float32", shape=(2, 1, 8)),
                                      TensorSpec(name="gain", dtype="float32", shape=(1,)))),
          how="`spec.interface` states the sizes of one call."),
    Entry(name="a number that `spec.interface` gives a value", make=programs.scripted_with_gain, served=BATCHES,
          source="TorchScript", interface=Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 16)),
                                                            *programs.GAIN.inputs)),
          how="Arguments of type `float`, `int` and `bool` need one; tensors may have one."),
    Entry(name="a scripted loop over a sequence, with recurrent cells", make=programs.scripted_cells, served=BATCHES,
          source="TorchScript", interface=Interface(inputs=(
              TensorSpec(name="steps", dtype="float32", shape=("batch", "1..50", 6)),))),
    Entry(name="lists, tuples and dicts of tensors", make=programs.scripted_structures, served=BATCHES,
          source="TorchScript", interface=Interface(inputs=tuple(
              TensorSpec(name=name, dtype="float32", shape=("batch", 4))
              for name in ("pair.a", "pair.b", "more.0", "state.0", "state.1"))),
          how="Each tensor is an input: `pair.a` of the dict `pair`, `more.0` of the list `more`. Outputs of a dict "
              "are called by its keys: `total.0`."),
    Entry(name="TorchScript and a handler", make=torchserve.archived(programs.traced), served=BATCHES, source=MAR,
          interface=Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=(programs.FROZEN, 16)),)),
          how="The handler is left out: clients send what the model itself takes."),
    Entry(name="an exported program and a handler", make=torchserve.archived(programs.free), served=BATCHES,
          source=MAR),
    Entry(name="a pickled state dict, its class and a handler",
          make=torchserve.archived(torchserve.pickled, modelFile="net.py"), source=MAR,
          served=Refused(reason="PickleRefused", says="(model.pth, of a class in net.py)")),
    Entry(name="the batch in front, from Keras's `model.export`", make=made(tensors.perceptron), served=BATCHES,
          source=SAVED),
    Entry(name="images with channels last, convolutions, batch normalisation", make=made(tensors.images),
          served=BATCHES, source=SAVED, how="Clients send channels last, as the source takes them."),
    Entry(name="a recurrent network over token ids (`While`)", make=made(tensors.recurrent), served=BATCHES,
          source=SAVED),
    Entry(name="several inputs and outputs, a mask, attention", make=made(tensors.attention), served=BATCHES,
          source=SAVED),
    Entry(name="rows of a table: Keras's `Normalization`, `gelu`", make=made(tensors.tabular), served=BATCHES,
          source=SAVED),
    Entry(name="sounds to spectra: `tf.signal.stft`", make=made(tensors.sounds), served=BATCHES, source=SAVED,
          how="As products with cosines and sines, where the transform's length is a constant."),
    Entry(name="a batch that is fixed", make=made(tensors.frozen), served=BATCHES, source=SAVED,
          how="The batch is freed; answers alone and beside others must agree with TensorFlow's."),
    Entry(name="state in and out, and a scalar", make=made(tensors.with_state), served=CALLS, source=SAVED,
          how="The client keeps the state and sends it with its next request."),
    Entry(name="a scalar beside a batch that `spec.interface` gives a value", make=made(tensors.with_gain),
          served=BATCHES, source=SAVED, interface=programs.GAIN, how="Clients do not send it."),
    Entry(name="no serving signature", make=made(tensors.without_signature), source=SAVED,
          served=Refused(reason="UnsupportedModel", says="has no serving signature 'serving_default'")),
    Entry(name="an operator that reads a file", make=made(tensors.reading), source=SAVED,
          served=Refused(reason="UnsupportedOperator", says="ReadFile")),
    Entry(name="a table of words", make=made(tensors.words), source=SAVED,
          served=Refused(reason="UnsupportedOperator", says="tables")),
    Entry(name="an operator that ONNX does not have", make=made(tensors.unknown), source=SAVED,
          served=Refused(reason="UnsupportedOperator", says="Lgamma")),
    Entry(name="random numbers", make=made(tensors.random), source=SAVED,
          served=Refused(reason="UnsupportedModel", says="answers the same call in another way each time")),
    Entry(name="Keras's own layers, with sums between them", make=made(tensors.keras_layers, FILE), served=BATCHES,
          source=KERAS),
    Entry(name="a `Lambda` layer", make=made(tensors.keras_lambda, FILE), source=KERAS,
          served=Refused(reason="PickleRefused", says="has code in it: keras.layers.Lambda")),
    Entry(name="a pickle in the file", make=made(tensors.keras_pickle, FILE), source=KERAS,
          served=Refused(reason="PickleRefused", says="layer.pkl")),
    Entry(name="a class of one's own", make=made(tensors.keras_own_class, FILE), source=KERAS,
          served=Refused(reason="UnsupportedModel", says="classes of one's own")),
    Entry(name="Keras's format of old (`.h5`)", make=made(tensors.keras_h5, "model.h5"), source=KERAS,
          served=Refused(reason="FormatUnknown", says="model.save('model.keras')")),
)
