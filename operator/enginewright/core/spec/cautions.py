"""What is valid and seldom meant: what ``validate`` warns of before an object is applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from enginewright.core.spec.model import Spec
from enginewright.core.spec.placement import GPUSpec


@dataclass(frozen=True, kw_only=True)
class Caution:
    """``field`` is a path such as ``spec.accuracy.evaluation``, ``message`` what comes of what it says, ``remedy`` what
    to write to avoid that."""

    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}; {self.remedy}"


def cautions(spec: Spec) -> tuple[Caution, ...]:
    """None where ``spec`` says all that a model in production needs."""
    return (*_synthetic_data(spec), *_any_product(spec), *_full_steps(spec))


def _synthetic_data(spec: Spec) -> Iterator[Caution]:
    if spec.accuracy.evaluation is None:
        yield Caution(field="spec.accuracy.evaluation",
                      message="is left out, so the build makes inputs up, and proves accuracy on those alone "
                              "(VerifiedOnSyntheticData)",
                      remedy="give the uri of samples like production's, .npz or .jsonl")


def _any_product(spec: Spec) -> Iterator[Caution]:
    """Of each class of a fleet, or of the one that there is."""
    if spec.placement.classes:
        for index, one in enumerate(spec.placement.classes):
            if one.accelerator == "gpu":
                yield from _without_product(f"spec.placement.classes[{index}].gpu.product", one.gpu)
    elif spec.placement.accelerator == "gpu":
        yield from _without_product("spec.placement.gpu.product", spec.placement.gpu)


def _full_steps(spec: Spec) -> Iterator[Caution]:
    for index, step in enumerate(spec.rollout.steps):
        if step.weight == 100:
            yield Caution(field=f"spec.rollout.steps[{index}].weight",
                          message="is 100, which is no step: promotion follows the last step below 100, so there is no "
                                  "analysis under all traffic",
                          remedy="leave this step out, or write a share below 100")


def _without_product(field: str, gpu: GPUSpec | None) -> Iterator[Caution]:
    if gpu is None or not gpu.product:
        yield Caution(field=field,
                      message="is left out, so the build takes whichever GPU is free, and replicas then run only on "
                              "that product",
                      remedy="write the product, as in the node label nvidia.com/gpu.product")
