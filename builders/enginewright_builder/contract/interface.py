"""What a model takes and gives, as clients send it and as it is stated in a spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Normalise:
    """How the source's own input is made of the bytes that clients send: ``(value * scale - mean) / std`` in FP32.
    ``mean`` and ``std`` have one number, or one for each channel. ``channels`` is where clients put these."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: Literal["first", "last"] = "first"


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """How the images that clients send become as large as the source takes them, before they are normalised: resized to
    ``height`` × ``width``, or so that the shorter side has ``shortest_edge`` pixels, by the filter ``resample``; then
    cut to ``crop_height`` × ``crop_width`` around the middle. 0 means not asked for. ``from_source``: this and the
    normalisation stand in the source's ``preprocessor_config.json``; of strings, which are texts, it says that the
    server makes token ids of them by its ``tokenizer.json``."""

    from_source: bool = False
    height: int = 0
    width: int = 0
    shortest_edge: int = 0
    resample: Literal["bilinear", "bicubic"] = "bilinear"
    crop_height: int = 0
    crop_width: int = 0

    @property
    def made(self) -> tuple[int, int]:
        """Height and width of what the source is given."""
        return self.crop_height or self.height, self.crop_width or self.width


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One model input or output. ``shape`` holds sizes, names of free dimensions (``batch``) or ranges (``1..512``).
    With ``normalise`` or ``preprocess`` type and shape are those of what clients send. ``value``: the input is the same
    in all requests, and clients do not send it; one number, or one for each element."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] = ()
    normalise: Normalise | None = None
    preprocess: Preprocess | None = None
    value: tuple[float, ...] = ()


# Behind the name of an output of which ``topK`` picks: the output that has the numbers of the classes picked.
INDICES = "_indices"


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How a detector's raw outputs mean boxes. ``boxes`` is the output that has them, ``[batch, boxes, 4]``; empty
    where the output of scores has them in front, ``[batch, 4 + classes, boxes]``. ``box_unit`` says what 1 is: the
    whole image, or a pixel of the source's input. With scoring ``softmax`` a box is of its best class alone, else of
    each class by itself. ``threshold`` is what a score must exceed. ``nms_threshold`` is the overlap above which the
    weaker of two boxes of one class is dropped; 0 keeps both. ``target_sizes`` is the input whose height and width
    boxes are answered in; empty leaves them in ``box_unit``. ``from_source``: all but ``threshold`` and
    ``target_sizes`` stands in the source's own processor."""

    boxes: str = ""
    box_format: Literal["cxcywh", "xyxy"] = "cxcywh"
    box_unit: Literal["relative", "pixels"] = "relative"
    scoring: Literal["none", "softmax", "sigmoid"] = "none"
    background: Literal["none", "first", "last"] = "none"
    threshold: float = 0.0
    nms_threshold: float = 0.0
    target_sizes: str = ""
    from_source: bool = False


@dataclass(frozen=True, kw_only=True)
class PostprocessStep:
    """What becomes of the source's ``output`` before clients get it, under the same name. ``mask`` is the input that
    marks tokens, for ``meanPooling``; else empty. ``axis`` is that of classes, for ``argMax``: 0, which is the batch's,
    means the last. ``k`` is how many ``topK`` or ``objectDetection`` picks; 0 lets ``objectDetection`` pick 100, or all
    boxes where there are fewer. ``detection`` is for ``objectDetection``; else None."""

    output: str
    function: Literal["softmax", "sigmoid", "meanPooling", "l2Normalise", "argMax", "topK", "objectDetection"]
    mask: str = ""
    axis: int = 0
    k: int = 0
    detection: Detection | None = None


@dataclass(frozen=True, kw_only=True)
class PadValue:
    """What ``input`` is filled up with."""

    input: str
    value: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Padding:
    """How requests of different length become one batch. ``mask`` is the input that has 1 for what is there and 0 for
    padding; its second size is the length. ``values`` are for inputs that the source's own pad token, or 0, does not
    suit."""

    mask: str
    values: tuple[PadValue, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StateTensor:
    """State that a model takes as input ``input_name`` and gives back as output ``output_name``. A sequence begins with
    the numbers of ``data_file``, a ``.npy`` in the source's folder, or with zeros. ``begins`` are those numbers in
    their order, once a build has read them."""

    input_name: str
    output_name: str
    data_file: str = ""
    begins: tuple[float, ...] = ()


# Triton's own default.
SEQUENCE_IDLE_US = 1_000_000
CANDIDATE_SEQUENCES = 128


@dataclass(frozen=True, kw_only=True)
class SequenceBatching:
    """The server keeps ``state`` of each sequence of requests. It forgets a sequence after
    ``max_sequence_idle_us`` without a request; each instance of the model has ``max_candidate_sequences`` at once, and
    more wait for one of them to end."""

    state: tuple[StateTensor, ...]
    max_sequence_idle_us: int = SEQUENCE_IDLE_US
    max_candidate_sequences: int = CANDIDATE_SEQUENCES


@dataclass(frozen=True, kw_only=True)
class PythonSteps:
    """Functions of the user's own, ``FILE.py:FUNCTION`` in the source's folder: ``preprocess`` makes all that the model
    takes of what clients send, ``postprocess`` what clients get of all that it answers. Empty: there is none. ``files``
    of that folder lie beside them wherever they run."""

    preprocess: str = ""
    postprocess: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Interface:
    """``outputs`` are the source's own; ``postprocess`` is applied to them in its order. ``padding`` None:
    as the source suggests. ``sequence_batching`` None: the server keeps no state, and clients send all that the model
    takes. With ``python_steps`` that preprocess ``inputs`` are what clients send, with those that postprocess
    ``outputs`` are what clients get, and the source tells its own."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    postprocess: tuple[PostprocessStep, ...] = ()
    padding: Padding | None = None
    sequence_batching: SequenceBatching | None = None
    python_steps: PythonSteps | None = None
