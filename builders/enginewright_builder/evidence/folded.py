"""What of an engine's time goes to the steps that were folded into its graph, by ONNX Runtime's own profile of it.

Of other libraries, and on a GPU, nothing is known: they join these steps with the model's own operators, and ONNX
Runtime tells of a GPU when kernels were launched, not what they took.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from enginewright_builder.contract import Interface, PostprocessStep
from enginewright_builder.engines.base import Artifact
from enginewright_builder.measure.layers import Folded
from enginewright_builder.measure.ort_profile import ort_events, ort_runs
from enginewright_builder.measure.profile import Event
from enginewright_builder.onnx_postprocess import behind
from enginewright_builder.onnx_preprocess import in_front
from enginewright_builder.tensors import Tensors
from enginewright_builder.texts import is_text

log = logging.getLogger(__name__)

# Runs of a batch: the first is left out, as it allocates.
_RUNS, _SECONDS = 9, 1.0


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How names of nodes begin that were written into the graph in front of the model and behind it."""

    preprocess: tuple[str, ...] = ()
    postprocess: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.preprocess or self.postprocess)


def steps_of(sent: Interface, postprocess: Sequence[PostprocessStep]) -> Steps:
    """Of a graph whose clients send what ``sent`` says. Texts are made token ids of before it."""
    return Steps(preprocess=tuple(in_front(one.name) for one in sent.inputs
                                  if (one.normalise or one.preprocess) and not is_text(one)),
                 postprocess=tuple(dict.fromkeys(behind(step.output) for step in postprocess)))


def measure_folded(artifact: Artifact, steps: Steps, calls: Mapping[int, Tensors], accelerator: str
                   ) -> tuple[Folded, ...]:
    """At each batch of ``calls``, which have what the graph takes; empty where it cannot be measured. Never raises: a
    report without these layers is better than no engine."""
    if not steps or artifact.rung.backend != "onnxruntime" or accelerator == "gpu":
        return ()
    model = next(path for name, path in artifact.files.items() if name.endswith(".onnx"))
    try:
        return tuple([_shares(batch, ort_events(model, artifact.parameters, inputs, least=2, most=_RUNS,
                                                seconds=_SECONDS), steps)
                      for batch, inputs in sorted(calls.items())])
    except Exception as error:  # any class of ONNX Runtime's
        log.warning("the steps in the graph of %s could not be timed", artifact.rung.name, exc_info=error)
        return ()


def not_apart(steps: Steps, engines: Sequence[Sequence[Folded]]) -> tuple[str, ...]:
    """Which steps are within model compute, as they could not be separated in each of ``engines``, in words."""
    asked = [name for name in ("preprocess", "postprocess") if getattr(steps, name)]
    unknown = [name for name in asked if not all(
        folded and all(getattr(one, name) is not None for one in folded) for folded in engines)]
    return tuple(f"Model compute has the {name}ing in it that is folded into the graph: what this engine takes for it "
                 "by itself cannot be measured." for name in unknown)


def _shares(batch: int, events: Sequence[Event], steps: Steps) -> Folded:
    runs = list(ort_runs(events))[1:]

    def share(names: tuple[str, ...]) -> float | None:
        """The median over the runs; None where no node has such a name any more."""
        found = [sum(one.microseconds for one in run.layers if one.name.startswith(names)) /
                 sum(one.microseconds for one in run.layers) for run in runs] if names else []
        return statistics.median(found) if any(found) else None

    return Folded(batch=batch, preprocess=share(steps.preprocess), postprocess=share(steps.postprocess))
