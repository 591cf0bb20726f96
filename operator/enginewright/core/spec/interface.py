"""What the model looks like from outside: inputs, outputs, and what the engine or the server does before and behind
it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from enginewright.core.spec.base import MAX_NAME, Remedy, SpecModel
from enginewright_builder.contract import CANDIDATE_SEQUENCES, SEQUENCE_IDLE_US

Dtype = Literal["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
                "float16", "float32", "float64", "string"]
Dimension = Annotated[int, Field(ge=1, le=2**31 - 1)] | Annotated[
    str, Field(min_length=1, max_length=63, pattern=r"^([A-Za-z_][A-Za-z0-9_]*|[0-9]+\.\.[0-9]+)$")]

# More than any image has, and few enough for a rule's cost.
MAX_CHANNELS = 64
# Of a side of an image: up to here engines compute positions exactly in FP32.
MAX_PIXELS = 4096

Shape = Annotated[
    tuple[Dimension, ...],
    Remedy("write sizes (768), names of free dimensions (batch) or ranges (1..512)"),
]


class TensorSpec(SpecModel):
    """One input or output of the model."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    """Name of the tensor."""
    dtype: Dtype
    """Element type."""
    shape: Shape = Field(default=(), max_length=8)
    """Dimensions: sizes (768), names of free dimensions (batch), or ranges (1..512). Empty when the source
    tells."""


class NormaliseSpec(SpecModel):
    """How the source's own input is made of the bytes that clients send: (value × scale − mean) ÷ std, in FP32, as part
    of the engine."""

    scale: float = Field(default=1 / 255, gt=0)
    """What each byte is multiplied by; left out, it becomes a number from 0 to 1."""
    mean: tuple[float, ...] = Field(default=(0.0,), min_length=1, max_length=MAX_CHANNELS)
    """What is subtracted then: one number, or one for each channel."""
    std: tuple[Annotated[float, Field(gt=0)], ...] = Field(default=(1.0,), min_length=1, max_length=MAX_CHANNELS)
    """What that is divided by: one number, or one for each channel."""
    channels: Literal["first", "last"] = "first"
    """Where clients put the channels: first, [batch, 3, 224, 224], as the source has them; or last, [batch, 224, 224,
    3], as image files do, which the engine turns round."""


Pixels = Annotated[int, Field(ge=1, le=MAX_PIXELS)]


class ImageSizeSpec(SpecModel):
    """How large images become: height and width, or the shorter side alone."""

    height: Pixels | None = None
    """Pixels from top to bottom; with width."""
    width: Pixels | None = None
    """Pixels from left to right; with height."""
    shortest_edge: Pixels | None = None
    """Pixels of the shorter side; the longer one keeps its share. With cropSize."""


class CropSizeSpec(SpecModel):
    """What is cut out of the middle."""

    height: Pixels
    """Pixels from top to bottom."""
    width: Pixels
    """Pixels from left to right."""


class PreprocessSpec(SpecModel):
    """How what clients send becomes what the source takes. Images of the client's own size are resized, cut, then
    normalised, as part of the engine; names and arithmetic are those of the image processors of Hugging Face. Of texts
    the server makes token ids."""

    from_source: bool = False
    """Take all of it from the source's Hugging Face folder: of images, with normalise, from preprocessor_config.json;
    of texts, which need it, from tokenizer.json. Without the other fields."""
    size: ImageSizeSpec | None = None
    """What images are resized to. Sides of the shape are then numbers or ranges, such as 224..1024."""
    resample: Literal["bilinear", "bicubic"] | None = None
    """The filter, bilinear where none is named, with Pillow's arithmetic: each pixel is a weighted mean of all that it
    covers."""
    crop_size: CropSizeSpec | None = None
    """What is cut out of the middle then; at most what size says."""


class InputSpec(TensorSpec):
    """One input of the model."""

    preprocess: PreprocessSpec | None = None
    """With dtype uint8 clients send images as bytes, of their own size, and the engine resizes them: shape is what
    clients send, such as [batch, 224..1024, 224..1024, 3]; with normalise, or fromSource. With dtype string clients
    send texts in the place of all inputs of the source, and the server makes token ids of them: shape is [batch, 1],
    which may be left out, or [batch, 2] for pairs; with fromSource."""

    normalise: NormaliseSpec | None = None
    """Clients send bytes, and the engine normalises them: dtype is uint8 and shape what clients send, where the source
    itself takes float32. A quarter of the bytes travels. Evaluation and calibration data are bytes as well."""

    value: tuple[float, ...] | None = Field(default=None, min_length=1, max_length=MAX_CHANNELS)
    """The input is the same in every request, such as [16000] for a sampling rate: it becomes part of the engine,
    clients do not send it, and evaluation data leave it out. One number, or one for each element; not of Hugging
    Face folders. The other inputs may then be left out where the source tells them."""


class DetectionSpec(SpecModel):
    """What the outputs of a detector mean."""

    from_source: bool = False
    """The source is a Hugging Face folder, whose own processor says it. Beside it stand threshold and targetSizes
    alone. Other outputs are left out."""
    boxes: str = Field(default="", max_length=MAX_NAME)
    """The output of boxes, [batch, boxes, 4], beside scores [batch, boxes, classes]. Left out: the output itself has
    boxes in front of scores, [batch, 4 + classes, boxes], as YOLO's exports do."""
    box_format: Literal["cxcywh", "xyxy"] = "cxcywh"
    """What the four numbers of a box are: its centre, width and height, or its corners."""
    box_unit: Literal["relative", "pixels"] = "relative"
    """What they count: shares of the image's width and height, or pixels of the source's own input."""
    scoring: Literal["none", "softmax", "sigmoid"] = "none"
    """What makes scores of the output. softmax leaves a box its best class alone. With sigmoid, and with none, which
    takes scores as they are, each class of a box counts by itself."""
    background: Literal["none", "first", "last"] = "none"
    """Which class means that there is nothing. It is not answered, and the others keep their numbers."""
    threshold: float = Field(default=0.0, ge=0, le=1)
    """What a score must exceed. Rows below have score 0, label -1 and a box of zeros."""
    nms_threshold: float | None = Field(default=None, gt=0, le=1)
    """Of two boxes of one class whose intersection over union is above this, the better one stays. Needs threshold.
    Left out: all stay, as detectors without non-maximum suppression want it."""
    target_sizes: str = Field(default="", max_length=MAX_NAME)
    """The input of images in whose height and width boxes are answered, in pixels as clients send it. Left out: boxes
    stay in boxUnit."""


class PostprocessStepSpec(SpecModel):
    """What becomes of one output before clients get it, as part of the engine, under the same name. topK also
    answers under a second name."""

    output: str = Field(min_length=1, max_length=MAX_NAME)
    """Name of the source's output."""
    function: Literal["softmax", "sigmoid", "meanPooling", "l2Normalise", "argMax", "topK", "objectDetection"]
    """softmax, over the last dimension; sigmoid, of each number; meanPooling, the mean of the tokens' vectors without
    padding, [batch, tokens, width] to [batch, width]; l2Normalise, divided by the length, along the last dimension;
    argMax, the number of the best class as int32, [batch, classes] to [batch, 1]; topK, the scores of the k best
    classes from the best on, [batch, classes] to [batch, k], and beside them, as output NAME_indices, the numbers of
    these classes as int32. topK is the last step of its output. objectDetection, in the place of its outputs the k best
    detections as scores, labels and boxes: [batch, k], int32 [batch, k] and [batch, k, 4] with corners."""
    mask: str = Field(default="", max_length=MAX_NAME)
    """With meanPooling: the input that has 1 for each token and 0 for padding. Left out: attention_mask."""
    axis: int | None = Field(default=None, ge=1, le=7)
    """With argMax: the dimension of classes, 1 for the first behind the batch, as of segmentations, [batch, classes,
    height, width] to [batch, height, width]. Left out: the last."""
    k: int | None = Field(default=None, ge=1, le=3840)
    """With topK: how many classes, at most as many as there are. With objectDetection: how many detections; left out
    100, or as many as there are boxes. TensorRT picks no more than 3840."""
    detection: DetectionSpec | None = None
    """With objectDetection: what the outputs mean."""


class PadValueSpec(SpecModel):
    """What one input is filled up with."""

    input: str = Field(min_length=1, max_length=MAX_NAME)
    """Name of the input."""
    value: float
    """The number behind its end, such as the identifier of the pad token."""


class PaddingSpec(SpecModel):
    """How requests of different length become one batch: each is filled up at its end, and a mask tells the model
    so."""

    mask: str = Field(default="attention_mask", min_length=1, max_length=MAX_NAME)
    """The input that has 1 for each position and 0 for padding, [batch, length]. All inputs whose second size is free
    are as long as it. A Hugging Face model of sounds takes attention_mask where it is named here."""
    values: tuple[PadValueSpec, ...] = Field(default=(), max_length=32)
    """What inputs are filled up with. Left out: input_ids with the pad token of the source's own configuration, all
    others with 0."""


class StateSpec(SpecModel):
    """One tensor of state."""

    input_name: str = Field(min_length=1, max_length=MAX_NAME)
    """The source's input that takes it. The source or inputs tell each of its sizes as a number; one that is called
    like a batch is 1."""
    output_name: str = Field(min_length=1, max_length=MAX_NAME)
    """The source's output that has it for the next request, of the same type and shape."""
    data_file: str | None = Field(default=None, max_length=MAX_NAME, pattern=r"^[A-Za-z0-9_][-._A-Za-z0-9]*$")
    """What each sequence begins with: a file of NumPy in the source's folder, beside the .onnx, of the state's type and
    shape. Left out: zeros."""


class SequenceBatchingSpec(SpecModel):
    """Requests that belong to a sequence, whose state the server keeps: clients number their sequences, and send
    neither of the state's tensors. Names are Triton's."""

    state: tuple[StateSpec, ...] = Field(min_length=1, max_length=32)
    """What is kept from one request of a sequence to the next."""
    max_sequence_idle_microseconds: int = Field(default=SEQUENCE_IDLE_US, ge=1000, le=86_400_000_000)
    """A sequence without a request for so long is forgotten."""
    max_candidate_sequences: int = Field(default=CANDIDATE_SEQUENCES, ge=1, le=65_536)
    """How many sequences each instance of the model has at once. The first request of a further one waits until one of
    them ends or is forgotten."""


_BELOW = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*"
StepFunction = Annotated[
    str,
    Field(max_length=MAX_NAME, pattern=rf"^{_BELOW}\.py:[A-Za-z_][A-Za-z0-9_]*$"),
    Remedy("write FILE.py:FUNCTION, a file of the source's folder and a function in it, such as steps.py:tokens"),
]
StepFile = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME, pattern=rf"^{_BELOW}$"),
    Remedy("write the path of a file below the source's folder, without .. and without / in front"),
]


class PythonStepsSpec(SpecModel):
    """Functions of your own, in Python files of the source's folder, for what no graph does. They run beside the engine
    in the server, and in the build. Each takes and returns a dict of NumPy arrays by name, with the batch in front."""

    preprocess: StepFunction | None = None
    """FILE.py:FUNCTION that makes all inputs of the model of what clients send, which inputs then states."""
    postprocess: StepFunction | None = None
    """FILE.py:FUNCTION that makes what clients get, which outputs then states, of all that the model answers."""
    files: tuple[StepFile, ...] = Field(default=(), max_length=32)
    """Further files of the folder that the functions open or import. They lie beside the file of the function."""


class InterfaceSpec(SpecModel):
    """Inputs and outputs, where the source does not tell them, and what clients send and get instead."""

    inputs: tuple[InputSpec, ...] = Field(default=(), max_length=32)
    """Inputs in the model's order."""
    outputs: tuple[TensorSpec, ...] = Field(default=(), max_length=32)
    """Outputs in the model's order. Those that are not listed are left out, of ONNX, SavedModel, Keras and Hugging Face
    sources."""
    postprocess: tuple[PostprocessStepSpec, ...] = Field(default=(), max_length=8)
    """What engines do with outputs, in this order. The source itself stays as it is: answers are held against what its
    own would become."""
    padding: PaddingSpec | None = None
    """How requests of different length run together. Left out: where the model has an input attention_mask, or takes
    sounds, and the build finds that padding does not change its answers. Written: the build ends where padding changes
    them."""
    sequence_batching: SequenceBatchingSpec | None = None
    """Let the server keep the state of each sequence of requests, of ONNX sources. Left out: where a model takes and
    gives state, clients carry it. A change rebuilds the engine."""
    python_steps: PythonStepsSpec | None = None
    """Let the server run functions of your own before or behind the engine. Evaluation data are then what clients send,
    and the accuracy gate holds what they get. A change rebuilds the engine."""
