"""What the build of a language model has published, as the operator reads it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime
from typing import Any

from enginewright_builder.contract import CandidateSummary, GenerateSummary, Outcome, TokenFigures
from support.cluster import START

TOKENS = TokenFigures(concurrency=8, ttft_p50_ms=61.5, ttft_p99_ms=98.25, tpot_p50_ms=11.0, tpot_p99_ms=14.5,
                      output_rate=640.0, goodput=9.75)


def language_model(**changes: Any) -> GenerateSummary:
    return replace(
        GenerateSummary(
            name="bf16, n-grams", precision="bf16", server="vllm", server_version="0.32.0",
            words=("--generation-config=vllm", "--dtype=bfloat16", "--max-num-seqs=64"),
            environment={"TORCH_COMPILE_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
            gain=1.5, tokens=TOKENS, objective_met=True, accuracy=0.998, accuracy_low=0.9955, divergence_high=0.004,
            prompts=120, device="CPU", device_class="cpu", device_count=1, load_seconds=80.0, size_bytes=300 << 20,
            memory_bytes=2 << 30),
        **changes)


def built_language_model(fingerprint: str = "", built_at: datetime = START, **changes: Any) -> Outcome:
    """``support.cluster.built`` is the same of an engine."""
    candidates = (
        CandidateSummary(backend="vllm", precision="bf16", batch=0, verdict="Passed", name="bf16", tokens=TOKENS),
        CandidateSummary(backend="vllm", precision="bf16", batch=0, verdict="Shipped", name="bf16, n-grams",
                         accuracy=0.998, accuracy_low=0.9955, tokens=TOKENS),
        CandidateSummary(backend="vllm", precision="int4", batch=0, verdict="Skipped", name="int4", reason="no kernel"))
    return Outcome(
        kind="build", ok=True, fingerprint=fingerprint,
        manifest_digest=f"sha256:{hashlib.sha256(built_at.isoformat().encode()).hexdigest()}", build_seconds=412.0,
        built=built_at.isoformat(), candidates=candidates, generate=language_model(**changes))
