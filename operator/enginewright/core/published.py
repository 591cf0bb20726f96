"""What a build has published, whichever server runs it: an engine, or a language model (docs/adr/0039).

Both summaries say on which device they were measured, how many of it and what memory a replica takes, how large the
files are and how long they load, the precision, the accuracy, and whether the objective is met. What only one of them
says is read from it where it is needed.
"""

from __future__ import annotations

from enginewright.core.servers import Server
from enginewright.core.servers.triton import TRITON
from enginewright.core.servers.vllm import VLLM
from enginewright_builder.contract import EngineSummary, GenerateSummary, Outcome

Published = EngineSummary | GenerateSummary


def published(outcome: Outcome) -> Published | None:
    """None of a build that failed, and of other steps."""
    return outcome.engine or outcome.generate


def backend_of(summary: Published) -> str:
    """What runs it: ``tensorrt``, ``onnxruntime``, ``torch``, or for language models ``vllm``."""
    return summary.backend if isinstance(summary, EngineSummary) else summary.server


def gain_of(summary: Published) -> float:
    """What serves against the source model as it is: throughput at equal batch. Of a language model, requests a second
    that keep the objective, or tokens a second where none was asked for."""
    return summary.speedup if isinstance(summary, EngineSummary) else summary.gain


def server_of(outcome: Outcome) -> Server:
    """What replicas of it run."""
    return VLLM if outcome.generate else TRITON


def in_tokens(summary: GenerateSummary) -> str:
    """The latencies that the build measured, in words."""
    found = summary.tokens
    return (f"p99 {found.ttft_p99_ms:.1f} ms until the first token and {found.tpot_p99_ms:.1f} ms for each after it, "
            f"with {found.output_rate:.0f} tokens a second")
