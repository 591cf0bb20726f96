"""One trial: an engine, the gate's verdict on few samples, and the truth from many others.

*Truth* is the same metric over a population of its own, ``POPULATION`` samples that the gate never sees. A sabotaged
engine counts when the truth is below the bar by two standard errors of that population, or a guard's figure is beyond
its limit: a change without effect is no sabotage, and of one nearer to the bar the truth is not known. A sound engine
counts when the truth is above the bar by what the number of samples can resolve, ``3/n`` (the bound of a perfect
engine) and four standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort

from enginewright_builder.accuracy.gate import Accuracy, compare
from enginewright_builder.accuracy.guards import MAX_DROWNED, magnitude_asked
from enginewright_builder.accuracy.rules import METRICS, samples_advised
from enginewright_builder.tensors import Tensors
from gate_study.networks import Array, Network, random_network
from gate_study.quantised import Scales, calibrated, product_inputs
from gate_study.sabotage import SABOTAGES
from gate_study.sound import SOUND

POPULATION = 3000
TOLERANCES = (0.01, 0.02, 0.05, 0.1)
_CALIBRATION, _BATCH, _POPULATION_BATCH = 256, 16, 300
_STANDARD_ERRORS, _TRUTH_ERRORS = 4, 2
# Guards' figures this close to their limits are on neither side.
_GUARD_MARGIN = 0.02

Change = Callable[[Network, Scales, np.random.Generator], onnx.ModelProto]


@dataclass(frozen=True, kw_only=True)
class Trial:
    kind: str
    network: str
    single: bool
    metric: str
    tolerance: float
    samples: int
    counts: bool
    passed: bool
    truth: float
    low: float
    why: str


def trial(changes: Sequence[Change], index: int) -> Trial:
    """``index`` decides everything: network, change, metric, tolerance, samples."""
    rng = np.random.default_rng([11, index])
    network, change = random_network(index), changes[(index // 3) % len(changes)]
    metric, tolerance = METRICS[rng.integers(len(METRICS))], float(rng.choice(TOLERANCES))
    count = int(samples_advised(tolerance) * rng.choice([1, 2]))
    original = _session(network.model(), optimise=False)
    candidate = _session(change(network, _scales(network), rng))
    gate = _compare(metric, original, candidate, network.samples(count, seed=1), _BATCH)
    truth = _compare(metric, original, candidate, network.samples(POPULATION, seed=2), _POPULATION_BATCH)
    counts = is_wrong(truth, tolerance) if changes is SABOTAGES else _right(truth, tolerance, count)
    return Trial(kind=change.__name__, network=network.kind, single=network.single, metric=metric, tolerance=tolerance,
                 samples=count, counts=counts, passed=gate.passes(tolerance), truth=truth.value, low=gate.low,
                 why=gate.refusal(tolerance))


def sabotaged(index: int) -> Trial:
    return trial(SABOTAGES, index)


def sound(index: int) -> Trial:
    return trial(SOUND, 5_000_000 + index)


def is_wrong(truth: Accuracy, tolerance: float) -> bool:
    error = _TRUTH_ERRORS * _spread(truth) / math.sqrt(POPULATION)
    if truth.mismatch or not truth.finite or truth.value < 1 - tolerance - error:
        return True
    return truth.magnitude_low < magnitude_asked(tolerance) - _GUARD_MARGIN or (
        truth.drowned > MAX_DROWNED + _GUARD_MARGIN)


def _right(truth: Accuracy, tolerance: float, count: int) -> bool:
    resolved = 3 / count + _STANDARD_ERRORS * _spread(truth) / math.sqrt(count)
    return (truth.finite and truth.value - resolved >= 1 - tolerance and truth.drowned < MAX_DROWNED - _GUARD_MARGIN
            and truth.magnitude_low - 3 / count - _GUARD_MARGIN >= magnitude_asked(tolerance))


def _spread(accuracy: Accuracy) -> float:
    """Of a sample's score; of a coefficient over all samples what stands for it, as of normal numbers."""
    return float(np.std(accuracy.scores)) if accuracy.scores else 1.0 - accuracy.value ** 2


def _session(model: onnx.ModelProto, optimise: bool = True) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _compare(metric: str, original: ort.InferenceSession, candidate: ort.InferenceSession, samples: Array,
             batch: int) -> Accuracy:
    batches = [samples[start:start + batch] for start in range(0, len(samples), batch)]
    return compare(metric, [_answers(original, part) for part in batches],
                   (_answers(candidate, part) for part in batches))


def _answers(session: ort.InferenceSession, batch: Array) -> Tensors:
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, {"x": batch}), strict=True))


def _scales(network: Network) -> Scales:
    """From samples of their own, apart from what the gate and the truth see."""
    model = network.model()
    names = product_inputs(model)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name != "x")
    session, samples = _session(model, optimise=False), network.samples(_CALIBRATION, seed=3)
    seen = dict(zip(names, session.run(names, {"x": samples}), strict=True))
    return calibrated({name: (float(value.min()), float(value.max())) for name, value in seen.items()})
