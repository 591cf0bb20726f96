"""NumPy's histogram, counted on a GPU: in calibration for INT8 one core fills one for each activation of each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Values a pass: bounds what a histogram takes of the GPU's memory beside the model, 12 bytes a value.
_CHUNK = 1 << 24


def count_on_gpu() -> None:
    """Lets ``numpy.histogram`` of this process count on the GPU, where PyTorch finds one.

    ModelOpt and ONNX Runtime's quantiser call it by that name and have no option for another. The counts are the same
    to the last one, so are the scales that come of them.
    """
    try:
        import torch
    except ImportError:
        return
    if torch.cuda.is_available():
        np.histogram = histogram_on("cuda")


def count_on_cpu() -> None:
    """The same on all of the process's cores, where the GPU is others'."""
    try:
        import torch  # noqa: F401  (needed by the counts)
    except ImportError:
        return
    np.histogram = histogram_on("cpu")


def histogram_on(device: str) -> Callable[..., Any]:
    """``numpy.histogram`` that counts FP32 values within a range on PyTorch's ``device``; what else it is asked for,
    NumPy does."""
    in_numpy = np.histogram

    def histogram(a: Any, bins: Any = 10, range: Any = None, **rest: Any) -> Any:
        values = np.asarray(a)
        edges = np.histogram_bin_edges(values, bins, range) if range is not None and not rest else None
        if edges is None or {values.dtype, edges.dtype} != {np.dtype(np.float32)}:
            return in_numpy(a, bins, range, **rest)
        try:
            return _counts(values.ravel(), edges, device), edges
        except RuntimeError:  # no memory left beside the model, or no kernel for this device
            return in_numpy(a, bins, range)

    return histogram


def _counts(values: np.ndarray[Any, Any], edges: np.ndarray[Any, Any], device: str) -> np.ndarray[Any, Any]:
    """How many of ``values`` (FP32) lie in each bin of ``edges`` (FP32, rising); the last bin holds its upper edge, as
    NumPy's does. Values outside and NaN are in none."""
    import torch

    bins = len(edges) - 1
    total = np.zeros(bins, dtype=np.intp)
    on_device = torch.from_numpy(edges).to(device)
    for begin in range(0, len(values), _CHUNK):
        chunk = torch.from_numpy(values[begin:begin + _CHUNK]).to(device)
        # 0 lies before the first edge, bins + 1 on the last one or after it.
        index = torch.bucketize(chunk, on_device, right=True, out_int32=True)
        total += torch.bincount(index, minlength=bins + 2)[1:bins + 1].cpu().numpy()
        total[-1] += int((chunk == on_device[-1]).sum())
    return total
