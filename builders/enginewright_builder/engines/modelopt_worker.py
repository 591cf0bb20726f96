"""The process in which NVIDIA's ModelOpt rewrites one ONNX graph: ``python -m …modelopt_worker JOB.json``.

A process of its own, since ModelOpt replaces parts of ONNX Runtime's quantiser for all that use it in a process, prints
to stdout, where the builder's progress goes, and keeps a whole model's activations while it calibrates.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from enginewright_builder.engines.modelopt_graphs import AUTOCAST, LARGEST_BYTES, LOWER, QUANTIZE, Job, load_batches
from enginewright_builder.engines.modelopt_histograms import count_on_cpu, count_on_gpu
from enginewright_builder.engines.modelopt_masks import clip_masks
from enginewright_builder.system import end_with_parent

# Above half of FP16's largest number a node stays in FP32: other inputs than these may reach further.
_DATA_MAX = 32_000.0


def main(arguments: Sequence[str]) -> None:
    end_with_parent()
    job = Job(**json.loads(Path(arguments[0]).read_text()))
    {AUTOCAST: _autocast, QUANTIZE: _quantize, LOWER: _lower}[job.task](job)


def _autocast(job: Job) -> None:
    """Nodes whose values or weights do not fit stay in FP32; with BF16, whose range is FP32's, only the kept ones."""
    from modelopt.onnx.autocast import convert_to_mixed_precision

    half = job.precision == "fp16"
    batches = load_batches(Path(job.data))[:1] if half else []
    model = convert_to_mixed_precision(
        job.source, low_precision_type=job.precision, keep_io_types=True, nodes_to_exclude=_patterns(job.keep),
        data_max=_DATA_MAX if batches else np.inf, init_max=np.finfo(np.float16).max if half else np.inf,
        calibration_data=batches[0] if batches else None, providers=["cpu"])
    _save(model, Path(job.target))


def _lower(job: Job) -> None:
    """All but the Q/DQ that the graph already holds goes to half precision; its scales stay as they were trained."""
    from modelopt.onnx.autocast.convert import convert_to_f16

    _save(convert_to_f16(onnx.load(job.source), low_precision_type=job.precision, keep_io_types=True), Path(job.target))


def _quantize(job: Job) -> None:
    """Weights per channel; what is left computes in FP16, without which INT8 is slower than FP16 alone."""
    if job.beside:
        # ModelOpt asks TensorRT for its plugins where it finds it, and TensorRT ends the process where it sees no GPU.
        sys.modules["tensorrt"] = None  # type: ignore[assignment]
    from modelopt.onnx.quantization import quantize

    if job.beside:
        count_on_cpu()
    else:
        count_on_gpu()
    model = onnx.load(_simplified(job) if job.beside else job.source)
    additions = clip_masks(model)
    clipped = Path(job.target).with_name("clipped.onnx")
    _save(model, clipped)
    quantize(str(clipped), quantize_mode=job.precision, calibration_data_reader=_Batches(load_batches(Path(job.data))),
             # FP8 has an exponent, so cutting off outliers gains it nothing.
             calibration_method="entropy" if job.precision == "int8" else "max", calibration_eps=_providers(job),
             nodes_to_exclude=_patterns((*job.keep, *additions)), high_precision_dtype="fp16",
             output_path=job.target, log_level="ERROR")


def _simplified(job: Job) -> str:
    """With the attention that TensorRT knows, as ``trt_graphs`` does it where this is not beside other builds."""
    from enginewright_builder.engines.trt_attention import simplified

    return str(simplified(Path(job.source), Path(job.target).with_name("simplified-beside.onnx"), print))


class _Batches:
    """ModelOpt's ``CalibrationDataReader`` by shape. The largest batch is first: by it ModelOpt tells which products
    are too small for tensor cores."""

    def __init__(self, batches: Sequence[dict[str, Any]]) -> None:
        self._batches = sorted(batches, key=lambda batch: -sum(array.size for array in batch.values()))
        self._next = 0

    def get_next(self) -> dict[str, Any] | None:
        self._next += 1
        return self._batches[self._next - 1] if self._next <= len(self._batches) else None

    def get_first(self) -> dict[str, Any]:
        return self._batches[0]

    def rewind(self) -> None:
        self._next = 0


def _providers(job: Job) -> list[str]:
    import onnxruntime

    if job.beside:
        return ["cpu"]
    return ["cuda:0", "cpu"] if "CUDAExecutionProvider" in onnxruntime.get_available_providers() else ["cpu"]


def _patterns(names: Sequence[str]) -> list[str]:
    return [f"{re.escape(name)}$" for name in names]


def _save(model: onnx.ModelProto, target: Path) -> None:
    onnx.save(model, str(target), save_as_external_data=model.ByteSize() > LARGEST_BYTES,
              location=f"{target.name}.data")


if __name__ == "__main__":
    main(sys.argv[1:])
