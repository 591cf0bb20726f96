"""The report in words and rounded numbers. Pure."""

from __future__ import annotations

from enginewright_builder.contract import CandidateSummary
from enginewright_builder.report.model import BuildReport

BACKENDS = {"onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT", "torch": "PyTorch"}
METRICS = {"cosine": "cosine similarity", "top1": "top-1 agreement", "relative-error": "1 − relative error",
           "spearman": "Spearman correlation"}
# Verdict: what a reader sees, and the class that colours it. The text says it too: colour alone never does.
VERDICTS = {"Shipped": ("✓ shipped", "good"), "Passed": ("passed", "plain"), "Slower": ("slower", "plain"),
            "AccuracyRefused": ("✕ accuracy", "bad"), "Failed": ("✕ failed", "bad"), "Skipped": ("– skipped", "muted"),
            "Offered": ("! offered", "warn")}


def engine_name(backend: str, precision: str) -> str:
    return f"{BACKENDS.get(backend, backend)} {precision.upper()}"


def headline(report: BuildReport) -> str:
    """One sentence: what ships and why."""
    engine, accuracy = report.engine, report.accuracy
    name = engine_name(engine.backend, engine.precision)
    metric = METRICS.get(accuracy.metric, accuracy.metric)
    bound = f"{metric} at least {accuracy.low:.4f} where {1 - accuracy.tolerance:.4f} is asked"
    if is_offered(report):
        return (f"Nothing passed the accuracy gate; {name} is offered, not served: {metric} "
                f"{accuracy.value:.4f}, lower bound {accuracy.low:.4f}, asked {1 - accuracy.tolerance:.4f}.")
    speed = f"{ratio(engine.speedup)} the throughput of the source ({report.reference.name})"
    rivals = [candidate for candidate in report.candidates if candidate.verdict in ("Passed", "Slower")]
    why = "the fastest candidate that keeps its accuracy" if rivals else "the candidate that keeps its accuracy"
    return f"{name} ships: {why}, with {speed} and {bound}."


def objective_sentence(report: BuildReport) -> str:
    objective, engine = report.objective, report.engine
    if objective.latency_ms <= 0:
        return "No latency objective was given; the operating point is the knee of the latency–throughput curve."
    p = f"p{objective.latency_percentile:g}"
    verdict = "is met" if engine.objective_met else "is missed"
    measured = f" ({milliseconds(report.sweep.best.objective_ms)} measured)" if report.sweep else ""
    return f"The objective of {p} ≤ {objective.latency_ms:g} ms {verdict}{measured}."


def layer_advice(report: BuildReport) -> str:
    """What the largest of the four latency layers suggests. Empty without a sweep."""
    if report.sweep is None:
        return ""
    advice = {
        "Model compute": "the model is the limit: lower precision, a smaller model, or a faster device would help.",
        "Queue": "requests wait for an instance: more replicas, or a lower load on each, would help.",
        "Input and output": "moving tensors is the limit: fewer or smaller outputs would help.",
        "Transport": "the wire and its serialisation are the limit: larger requests or a closer client would help.",
    }
    name, value = max(layer_values(report), key=lambda pair: pair[1])
    total = sum(value for _, value in layer_values(report))
    return f"{name} takes {value / total:.0%} of a request: {advice[name]}" if total else ""


def layer_values(report: BuildReport) -> list[tuple[str, float]]:
    if report.sweep is None:
        return []
    layers = report.sweep.best.layers
    return [("Queue", layers.queue_ms), ("Model compute", layers.compute_ms),
            ("Input and output", layers.input_output_ms), ("Transport", layers.transport_ms)]


def is_offered(report: BuildReport) -> bool:
    return any(candidate.verdict == "Offered" for candidate in report.candidates)


def verdict(candidate: CandidateSummary) -> tuple[str, str]:
    return VERDICTS[candidate.verdict]


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{significant(value)} ms"


def significant(value: float) -> str:
    """Three digits, thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def per_second(value: float | None) -> str:
    return "–" if value is None else f"{significant(value)}/s"


def size(value: int | None) -> str:
    if value is None:
        return "–"
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= scale:
            return f"{significant(value / scale)} {unit}"
    return f"{value} B"


def ratio(value: float) -> str:
    return f"{significant(value)}×"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def seconds(value: float) -> str:
    return f"{value / 60:.1f} min" if value >= 120 else f"{significant(value)} s"
