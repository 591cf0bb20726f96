"""The report in words and rounded numbers. Pure."""

from __future__ import annotations

from enginewright_builder.accuracy.task_rules import RELATIVE
from enginewright_builder.contract import CandidateSummary, MemoryFigures, ObjectiveRequest, requests_needed
from enginewright_builder.load.result import TAIL
from enginewright_builder.measure.roofline import PrecisionGain
from enginewright_builder.report.model import BuildReport
from enginewright_builder.report.performance import Arithmetic, Joining, Performance

BACKENDS = {"onnxruntime": "ONNX Runtime", "tensorrt": "TensorRT", "torch": "PyTorch"}
METRICS = {"cosine": "cosine similarity", "top1": "top-1 agreement", "relative-error": "1 − relative error",
           "spearman": "Spearman correlation"}
TASKS = {"accuracy": "accuracy", "top5": "top-5 accuracy", "f1-macro": "macro F1", "f1-micro": "micro F1",
         "map": "mAP", "map50": "mAP at IoU 0.5", "ndcg": "NDCG@10", "wer": "word error rate",
         "mae": "mean absolute error", "rmse": "root mean squared error"}
BOUNDS = {"compute": "compute-bound, arithmetic is the limit", "bandwidth": "bandwidth-bound, memory is the limit",
          "overhead": "overhead-bound, its matrix products explain little of its time"}
# Verdict: what a reader sees, and the class that colours it. The text says it too: colour alone never does.
VERDICTS = {"Shipped": ("✓ shipped", "good"), "Passed": ("passed", "plain"), "Slower": ("slower", "plain"),
            "AccuracyRefused": ("✕ accuracy", "bad"), "Failed": ("✕ failed", "bad"), "Skipped": ("– skipped", "muted"),
            "Offered": ("! offered", "warn"), "Fallback": ("! the source itself", "warn")}


def microseconds(value: float) -> str:
    """A whole number, and tenths of what is below ten."""
    return f"{value:,.0f} µs" if value >= 10 else f"{value:.1f} µs"


def engine_name(backend: str, precision: str) -> str:
    return f"{BACKENDS.get(backend, backend)} {precision.upper()}"


def headline(report: BuildReport) -> str:
    """One sentence: what ships and why."""
    engine, accuracy = report.engine, report.accuracy
    team = list(dict.fromkeys(full_name(one.name) for one in report.candidates if one.serves))
    name = " and ".join(team) if len(team) > 1 else engine_name(engine.backend, engine.precision)
    metric = METRICS.get(accuracy.metric, accuracy.metric)
    bound = f"{metric} at least {accuracy.low:.4f} where {1 - accuracy.tolerance:.4f} is asked"
    if is_offered(report):
        return (f"Nothing passed the accuracy gate; {name} is offered, not served: {metric} "
                f"{accuracy.value:.4f}, lower bound {accuracy.low:.4f}, asked {1 - accuracy.tolerance:.4f}.")
    speed = f"{ratio(engine.speedup)} the throughput of the source ({report.reference.name})"
    rivals = [candidate for candidate in report.candidates if candidate.verdict in ("Passed", "Slower")]
    if engine.fallback:
        return (f"No candidate may be served ({engine.fallback}); the source model itself ships, as {name}, with "
                f"{speed} and {bound}.")
    if len(team) > 1:
        return f"{name} ship together, each for the batches that it is the fastest at, with {speed} and {bound}."
    why = "the fastest candidate that keeps its accuracy" if rivals else "the candidate that keeps its accuracy"
    return f"{name} ships: {why}, with {speed} and {bound}."


def labels_sentence(report: BuildReport) -> str:
    """What ships against the source, on the labels. Empty without any."""
    task = report.accuracy.task
    if task is None:
        return ""
    lost = f"{100 * task.loss:.2f} %" if task.metric in RELATIVE else f"{100 * task.loss:.2f} points"
    high = f"{100 * task.loss_high:.2f}"
    return (f"On the labels {TASKS.get(task.metric, task.metric)} is {task.value:.4f}, and the source model's is "
            f"{task.source:.4f}: it loses {lost}, and at most {high} with 95 % confidence, where "
            f"{100 * task.max_loss:g} are allowed.")


def groups_sentence(report: BuildReport) -> str:
    """Empty where no groups were asked for."""
    found = report.accuracy.summary
    if found is None:
        return ""
    small = "" if not found.too_small_count else (
        f" {found.too_small_count} had too few samples to be judged in full: {', '.join(found.too_small)}"
        f"{' …' if found.too_small_count > len(found.too_small) else ''}.")
    return (f"The gate held in each of {found.judged} groups by {found.by}; it lost most in {found.worst}.{small}"
            if found.judged else f"No group by {found.by} could be judged in full.{small}")


def objective_sentence(report: BuildReport) -> str:
    objective, engine = report.objective, report.engine
    if objective.latency_ms <= 0:
        return "No latency objective was given; the operating point is the knee of the latency–throughput curve."
    p = f"p{objective.latency_percentile:g}"
    if engine.too_few_requests:
        return (f"Whether the objective of {p} ≤ {objective.latency_ms:g} ms is met is not known: {engine.requests:,} "
                f"requests kept it, and it takes {engine.requests_to_show:,} to say so.")
    verdict = "is met" if engine.objective_met else "is missed"
    measured = f" ({milliseconds(report.sweep.best.objective_ms)} measured)" if report.sweep else ""
    return f"The objective of {p} ≤ {objective.latency_ms:g} ms {verdict}{measured}."


def tail_sentence(report: BuildReport) -> str:
    """The 99.9th percentile of what ships, or why it is not known. Empty without a sweep."""
    if report.sweep is None:
        return ""
    best = report.sweep.best
    if best.p999_ms is None:
        return (f"p99.9 is not known: it takes {requests_needed(TAIL):,} requests, and {best.requests:,} were measured "
                "at the shipped point.")
    return f"p99.9 of the shipped point is {milliseconds(best.p999_ms)}, of {best.requests:,} requests."


def layers_sentence(report: BuildReport) -> str:
    """Before and after in one sentence. Empty without a sweep."""
    if report.sweep is None:
        return ""
    best = report.sweep.best
    now = f"A request takes {milliseconds(best.mean_ms)} on average at {best.concurrency} in flight"
    before = report.performance.before if report.performance else None
    if before is None:
        return f"{now}."
    return (f"{now}; {full_name(before.name)} on Triton as it comes (one instance, no dynamic batching) takes "
            f"{milliseconds(before.point.mean_ms)} under the same load.")


def clocks_sentence(report: BuildReport) -> str:
    """Empty where server and client agree."""
    off = report.sweep.best.layers.disagreement_ms if report.sweep else 0.0
    return (f"The server measured {milliseconds(off)} more than the client, since its statistics hold the requests at "
            "the window's edges too: its layers were shortened alike to fit, and transport is too small to be seen."
            ) if off else ""


def joining_sentence(joining: Joining) -> str:
    padding = "" if joining.padding is None else f" {joining.padding:.1%} of what was run was padding."
    filled = ("where the replica fills all texts that it runs at once up to the longest of them" if joining.texts else
              f"where clients fill every request up to {joining.longest}")
    most = ("" if joining.padding_to_longest is None else
            f", and {joining.padding_to_longest:.1%} of what is run is padding")
    return (f"Requests of {joining.shortest} to {joining.longest} positions (median {joining.median:.0f}) run "
            f"together: {per_second(joining.throughput)} with {joining.concurrency} in flight.{padding} "
            f"Without that it is {per_second(joining.throughput_apart)}; {filled} it is "
            f"{per_second(joining.throughput_to_longest)}{most}.")


def roofline_sentence(performance: Performance) -> str:
    """What bounds the engine that ships. Empty where that was not measured."""
    attained = performance.attained
    if not performance.bound or attained is None:
        return ""
    if attained > 1:
        why = ("main memory alone would allow, since its data stay in caches" if performance.bound == "bandwidth" else
               "the largest product that was measured here, when the machine was busier")
        return f"It runs faster than {why}: {BOUNDS[performance.bound]}."
    return f"It reaches {attained:.0%} of what this device's roofline allows: {BOUNDS[performance.bound]}."


def work_sentence(work: Arithmetic) -> str:
    """Of one inference, and the ceilings it is held against."""
    rates = sorted(work.ceilings.flops_per_second.items())
    peaks = ", ".join(f"{kind.upper()} {operations(rate)}/s" for kind, rate in rates)
    return (f"One inference is {operations(work.flops)} on {size(round(work.bytes_fp32))} of weights and activations "
            f"in FP32. This device, measured: {peaks}; memory {size(round(work.ceilings.bytes_per_second))}/s.")


def precision_sentence(gain: PrecisionGain) -> str:
    name, batch = full_name(gain.name), f"at batch {gain.batch}"
    smaller = f"{gain.size_share:.0%} of the size"
    if gain.buys == "latency":
        return f"{name} buys latency: {ratio(gain.speedup)} as fast as {full_name(gain.against)} {batch}, {smaller}."
    pace = f"{ratio(gain.speedup)} the speed of {full_name(gain.against)}"
    if gain.buys == "memory":
        return f"{name} buys only memory: {smaller}, {pace} {batch}."
    return f"{name} buys nothing: {pace} and {smaller} {batch}."


def full_name(name: str) -> str:
    """``ONNX Runtime INT8-DYNAMIC`` of ``onnxruntime int8-dynamic``; what follows a precision stays."""
    backend, precision, *rest = [*name.split(" ", 2), ""][:3]
    return " ".join(filter(None, (engine_name(backend, precision), *rest)))


def cost_sentence(performance: Performance, objective: ObjectiveRequest) -> str:
    spent = performance.device_seconds_per_million
    if spent is None:
        return "No configuration kept the latency objective, so a million inferences within it have no price."
    hours = f"{spent / 3600:.2f} hours" if spent >= 360 else f"{spent:.0f} seconds"
    rate = per_second(performance.throughput_at_objective)
    where = "within the objective" if objective.latency_ms else "at the shipped load"
    return f"A million inferences take {hours} of one replica's device, at the {rate} that it sustains {where}."


def energy_sentence(performance: Performance) -> str:
    use, rate = performance.use, performance.inferences_per_joule
    if use is None or use.watts is None or rate is None:
        return "Not measured: this device's energy counter cannot be read here."
    where = "above idle" if use.idle_watts is not None else "idle power included"
    idle = f", {use.idle_watts:.0f} W idle" if use.idle_watts is not None else ""
    scope = " by the whole CPU package" if use.meter == "rapl" else ""
    return f"{significant(rate)} inferences a joule {where}; {use.watts:.0f} W drawn under load{scope}{idle}."


def memory_sentence(memory: MemoryFigures) -> str:
    """Of the server's host memory. Empty where nothing was seen of it."""
    if not memory.peak_bytes:
        return ""
    load = f"{memory.concurrency} {'request' if memory.concurrency == 1 else 'requests'} in flight"
    return (f"{size(memory.empty_bytes)} without a model, {size(memory.loaded_bytes)} with it loaded and warm, "
            f"{size(memory.peak_bytes)} at the most with {load}; of that the kernel could not take back "
            f"{size(memory.held_bytes)}.")


def device_memory_sentence(memory: MemoryFigures) -> str:
    """Of its GPUs and of the pool of pinned memory. Empty without a GPU."""
    figures = [(memory.device_empty_bytes, "without a model"), (memory.device_loaded_bytes, "with it loaded and warm"),
               (memory.device_peak_bytes, "at the most under load")]
    parts = [f"{size(value)} {what}" for value, what in figures if value is not None]
    if memory.pinned_bytes is not None:
        pool = f" of {size(memory.pinned_pool_bytes)}" if memory.pinned_pool_bytes else ""
        parts.append(f"{size(memory.pinned_bytes)}{pool} of the pool of pinned host memory")
    return f"{', '.join(parts)}." if parts else ""


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


def operations(value: float) -> str:
    """Floating-point operations with a decimal prefix."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{significant(value / scale)} {unit}FLOP"
    return f"{value:.0f} FLOP"


def seconds(value: float) -> str:
    return f"{value / 60:.1f} min" if value >= 120 else f"{significant(value)} s"
