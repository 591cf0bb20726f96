"""A measured point and a build report, shaped like real ones: MiniLM on two cores."""

from __future__ import annotations

import dataclasses

from enginewright_builder.contract import (
    CandidateSummary,
    EngineSummary,
    Interface,
    ObjectiveRequest,
    ServingChoice,
    TensorSpec,
)
from enginewright_builder.measure.roofline import Ceilings, Measured, Product, Work
from enginewright_builder.report import AccuracyEvidence, BuildReport, Hardware, Reference
from enginewright_builder.report.performance import Served, assess
from enginewright_builder.sweep import Layers, Point, ServicePoint, SweepResult

# MiniLM with 64 tokens, as one product.
WORK = Work(
    products=(
        Product(
            operator="MatMul",
            flops=1.4e9,
            weights=10.6e6,
            activations=2.5e6,
            flops_per_sample=1.4e9,
            activations_per_sample=2.5e6,
        ),
    )
)


def figure(precision: str, batch: int, milliseconds: float, size: int) -> Measured:
    name = f"onnxruntime {precision}"
    return Measured(name=name, backend="onnxruntime", precision=precision, batch=batch, ms=milliseconds,
                    best_ms=milliseconds, size_bytes=size)


FIGURES = (
    figure("fp32", 1, 12.4, 91_000_000),
    figure("fp32", 8, 66.7, 91_000_000),
    figure("int8", 1, 6.1, 23_200_000),
    figure("int8", 8, 29.8, 23_200_000),
)


def make_point(
    *,
    instances: int = 1,
    delay: int = 0,
    concurrency: int = 4,
    throughput: float = 100.0,
    latency: float = 10.0,
    noise: float = 0.02,
) -> Point:
    return Point(
        serving=ServingChoice(max_batch_size=32, max_queue_delay_us=delay, instance_count=instances),
        threads=1,
        concurrency=concurrency,
        batch=1,
        requests=500,
        errors=0,
        seconds=2.0,
        throughput=throughput,
        mean_ms=latency * 0.8,
        p50_ms=latency * 0.75,
        p90_ms=latency * 0.9,
        p95_ms=latency * 0.95,
        p99_ms=latency,
        objective_ms=latency,
        throughput_low=throughput * (1 - noise),
        throughput_high=throughput * (1 + noise),
        mean_batch=1.8,
        layers=Layers(queue_ms=1.5, compute_ms=latency * 0.8 - 2.4, input_output_ms=0.2, transport_ms=0.7),
    )


def build_report() -> BuildReport:
    best = make_point(instances=2, concurrency=4, throughput=142.4, latency=18.2)
    points = (
        make_point(concurrency=1, throughput=61, latency=17),
        make_point(concurrency=4, throughput=118, latency=36),
        make_point(concurrency=16, throughput=131, latency=131),
        best,
        make_point(instances=2, delay=500, concurrency=4, throughput=129, latency=34),
        make_point(instances=2, concurrency=8, throughput=151, latency=58),
    )
    sweep = SweepResult(
        serving=best.serving,
        threads=1,
        objective_met=True,
        best=best,
        points=points,
        cold_start_seconds=1.94,
        reason="2 instances, queue delay 0 µs, batches of up to 32: 142 inferences/s with p99 18.2 ms at 4 requests in "
        "flight, within the objective of 20 ms. 2 instances: 142 against 118 inferences/s at 4 in flight, "
        "clearly better. 6 measurements.",
        service_curve=(
            ServicePoint(batch=1, p50_ms=7.1, throughput=141),
            ServicePoint(batch=8, p50_ms=33.8, throughput=236),
        ),
        first_inference_ms=41.0,
        memory_bytes=312 << 20,
        server_version="2.51.0",
        seconds=41.5,
    )
    candidates = (
        CandidateSummary(
            backend="onnxruntime",
            precision="int8",
            name="onnxruntime int8",
            batch=8,
            verdict="Shipped",
            p50_ms=29.8,
            p95_ms=31.0,
            p99_ms=33.4,
            throughput=268,
            accuracy=0.9942,
            accuracy_low=0.9931,
            size_bytes=23_200_000,
            reason="fastest that keeps its accuracy",
        ),
        CandidateSummary(
            backend="onnxruntime",
            precision="fp32",
            name="onnxruntime fp32",
            batch=8,
            verdict="Slower",
            p50_ms=66.7,
            p95_ms=70.1,
            p99_ms=75.0,
            throughput=120,
            accuracy=1.0,
            accuracy_low=1.0,
            size_bytes=91_000_000,
            reason="passes, at 45 % of the winner's throughput",
        ),
        CandidateSummary(
            backend="onnxruntime",
            precision="int8-static",
            batch=8,
            verdict="AccuracyRefused",
            p50_ms=28.1,
            p95_ms=30.0,
            p99_ms=31.2,
            throughput=284,
            accuracy=0.962,
            accuracy_low=0.957,
            size_bytes=23_300_000,
            reason="cosine at least 0.9570, 0.9900 is asked",
        ),
        CandidateSummary(
            backend="tensorrt",
            precision="fp16",
            batch=8,
            verdict="Skipped",
            reason="needs an NVIDIA GPU, the accelerator is cpu",
        ),
    )
    engine = EngineSummary(
        backend="onnxruntime",
        precision="int8",
        triton_backend="python",
        size_bytes=23_200_000,
        speedup=2.35,
        p50_ms=best.p50_ms,
        p95_ms=best.p95_ms,
        p99_ms=best.p99_ms,
        throughput=best.throughput,
        accuracy=0.9942,
        accuracy_low=0.9931,
        device="Intel Xeon",
        runtime_version="onnxruntime 1.31.1",
        load_seconds=2.4,
        memory_bytes=312 << 20,
    )
    performance = assess(
        sweep,
        FIGURES,
        {"onnxruntime int8"},
        "python",
        counted=(WORK, Ceilings(bytes_per_second=1.2e10, flops_per_second={"fp32": 1.4e11, "int8": 9e11})),
        before=Served(name="onnxruntime fp32", point=make_point(throughput=70, latency=40.0)),
    )
    return BuildReport(
        model_name="minilm",
        fingerprint="3f" * 32,
        created="2026-11-21T11:30:00Z",
        command="enginewright-build --model pvc://models/all-minilm-l6-v2 --output build/minilm --latency-p99 20",
        source_uri="pvc://models/all-minilm-l6-v2",
        source_digest="sha256:" + "a7" * 32,
        source_format="huggingface",
        interface=Interface(
            inputs=(TensorSpec(name="input_ids", dtype="int64", shape=("batch", "1..512")),),
            outputs=(TensorSpec(name="sentence_embedding", dtype="float32", shape=("batch", 384)),),
        ),
        reference=Reference(name="PyTorch model", batch=8, p50_ms=70.2, p95_ms=74.0, p99_ms=80.0, throughput=114),
        candidates=candidates,
        engine=engine,
        sweep=sweep,
        performance=performance,
        objective=ObjectiveRequest(latency_ms=20, throughput=500),
        accuracy=AccuracyEvidence(
            metric="cosine", value=0.9942, low=0.9931, tolerance=0.01, samples=128, evaluation="held-out"
        ),
        serving=dataclasses.replace(best.serving),
        config_pbtxt='name: "minilm"\nmax_batch_size: 32\n',
        hardware=Hardware(device="Intel Xeon Platinum 8481C", cores=2, memory_bytes=24 << 30, architecture="amd64"),
        versions={"onnxruntime": "1.31.1", "torch": "2.15.0", "tritonserver": "2.51.0"},
        steps={"fetch": 1.2, "export": 21.0, "candidates": 48.0, "sweep": 41.5, "prove": 6.0},
    )
