"""How each figure of the page was measured, in a sentence or two; the page links to them by their anchors. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright_builder.data.sets import SYNTHETIC
from enginewright_builder.measure.layers import Layers
from enginewright_builder.report.model import BuildReport
from enginewright_builder.report.words import METRICS, milliseconds, per_second, seconds

METERS = {"rapl": "The kernel's RAPL counters of the CPU package", "nvml": "The GPU's own energy counter, by NVML",
          "triton": "The GPU's energy as Triton's metrics tell it"}


def methods(report: BuildReport) -> list[tuple[str, str, str]]:
    """``(anchor, what, how)``; only of what this report has."""
    return [*_engine(report), *_accuracy(report), *_load(report), *_performance(report), *_memory(report),
            *_profiles(report)]


def _engine(report: BuildReport) -> Iterator[tuple[str, str, str]]:
    yield ("speedup", "Speed of candidates", (
        "All candidates and the source model ran the same batches in one process on this device, in rounds, each in "
        "random order. Times are medians of whole batches. The speed-up is a median of the ratios within rounds, at "
        f"batch {report.reference.batch}. A candidate left the race once its interval lay above the leader's."))
    where = "held on the GPU" if report.hardware.gpus else "had resident"
    yield ("size", "Size and memory", (
        f"The size is that of the engine's files. Memory is what tritonserver {where} with the model loaded."))


def _memory(report: BuildReport) -> Iterator[tuple[str, str, str]]:
    memory = report.engine.memory
    if memory is None or report.performance is None:
        return
    who = ("by this build, several times a second, and by each process's own high-water mark for what passed in between"
           if memory.seen == "processes" else
           "by the server's container, every second. That server had had other settings before, and some of what they "
           "took may count")
    yield ("memory", "Memory", (
        "The finished repository was loaded in a tritonserver, asked, and put under the load of the shipped point "
        "until its memory no longer grew. What the kernel cannot take back is anonymous and shared memory, without "
        "pages of files: it kills a container whose limit is lower. Proportional set sizes of the server's processes "
        f"were read {who}."))


def _profiles(report: BuildReport) -> Iterator[tuple[str, str, str]]:
    if any(not one.problem for one in report.profiles):
        yield ("profile", "Slowest layers", (
            "Each engine that serves ran the same batch again and again in a process of its own, under the profiler of "
            "its library, after everything that this build timed before. The first runs were left out. A share, a time "
            "of a call and a number of calls are medians over the other runs; a layer is what the profiler gives one "
            "name."))


def _accuracy(report: BuildReport) -> Iterator[tuple[str, str, str]]:
    accuracy = report.accuracy
    source = "made up by the builder" if accuracy.evaluation == SYNTHETIC else "of spec.accuracy.evaluation"
    on_labels = " The metric on labels is bounded in the same way." if accuracy.task else ""
    yield ("accuracy", "Accuracy", (
        f"{METRICS.get(accuracy.metric, accuracy.metric).capitalize()} between the engine's answers and the source "
        f"model's own, for each of {accuracy.samples} samples {source}; the mean over them, and its one-sided 95 % "
        f"lower bound. A candidate passes where the bound reaches {1 - accuracy.tolerance:.4f}.{on_labels}"))


def _load(report: BuildReport) -> Iterator[tuple[str, str, str]]:
    if report.sweep is None:
        return
    best, version = report.sweep.best, report.sweep.server_version
    server = f"tritonserver {version}" if version else "tritonserver"
    yield ("latency", "Latency", (
        f"A client sent {best.requests:,} requests of {_samples(best.batch)} by gRPC to {server} with the shipped "
        f"config.pbtxt, {best.concurrency} in flight at a time, for {seconds(best.seconds)} after a warm-up. A latency "
        "counts from when the request was due to its whole answer; a percentile is one of these latencies. The first "
        "request after a start is measured apart."))
    yield ("throughput", "Throughput", (
        f"Inferences that were answered in the same window, over its seconds. Its 95 % interval is "
        f"{per_second(best.throughput_low)} to {per_second(best.throughput_high)}. "
        f"{len(report.sweep.points)} settings were measured in this way."))
    yield ("layers", "Where the time goes", (
        "Queue, compute, and input and output are Triton's own statistics of the same requests. Transport is what the "
        f"client's {milliseconds(best.mean_ms)} have besides.{_around(best.layers)}"))
    yield ("proof", "Proof", (
        "The finished repository was loaded in a tritonserver, and its answers were compared with those of the engine "
        "by itself, before anything was published. Replicas serve these files, each checked by its digest."))


def _around(layers: Layers) -> str:
    """Of what is done before the model and after it."""
    if layers.preprocess_ms is None and layers.postprocess_ms is None:
        return ""
    return (" Preprocessing and postprocessing are taken out of compute: the tokenizer's time as the replica itself "
            "counts it, and of steps in the graph their share of a run in ONNX Runtime's profile of this engine.")


def _samples(batch: int) -> str:
    return "one sample each" if batch == 1 else f"{batch} samples each"


def _performance(report: BuildReport) -> Iterator[tuple[str, str, str]]:
    performance = report.performance
    if performance is None:
        return
    if performance.arithmetic:
        yield ("roofline", "Roofline", (
            "The ceilings are the best of several large matrix products and copies on this device, minutes before or "
            "after. The arithmetic is counted from the shapes of the graph's products. The floor of a time is the sum "
            "over all products of the longer of arithmetic and memory traffic."))
    else:
        yield ("roofline", "Roofline", "It was not measured in this build.")
    yield ("cost", "Cost", (
        "The seconds of one replica's device for a million inferences, at the largest throughput that kept the latency "
        "objective." if report.objective.latency_ms else
        "The seconds of one replica's device for a million inferences, at the throughput of the shipped setting."))
    meter = performance.use.meter if performance.use else ""
    yield ("energy", "Energy", (
        f"{METERS.get(meter, 'A counter of the device')}, at both ends of a window under the shipped load."
        if meter else "This device has no energy counter that the build may read."))
