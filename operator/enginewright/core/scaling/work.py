"""What a language model's requests are in work: the time that their tokens take of a replica.

A request of i input and o output tokens is a · i + b · o seconds of a replica, with a and b as the build measured them
(docs/adr/0039-language-models.md). The rule counts requests. So of a language model it counts requests of the size that
was measured: one with twice the work is two. Prompt tokens that the prefix cache answers are no work.
"""

from __future__ import annotations

from enginewright.core.scaling.capacity import Capacity
from enginewright_builder.contract import TokenWork


def seconds_of(work: TokenWork, input_tokens: float, output_tokens: float) -> float:
    """Of one replica."""
    return work.input_seconds * input_tokens + work.output_seconds * output_tokens


def requests_of(work: TokenWork, input_tokens: float, output_tokens: float) -> float:
    """How many requests of the measured size these tokens are."""
    return seconds_of(work, input_tokens, output_tokens) / seconds_of(work, work.input_tokens, work.output_tokens)


def work_of(input_tokens: float, output_tokens: float, input_seconds: float, output_rate: float) -> TokenWork:
    """By the mean tokens of requests, what one input token takes, and the output tokens a second of a busy replica. It
    reads for nine tenths of its time at most."""
    read = input_tokens * output_rate / output_tokens
    share = min(0.9, input_seconds * read)
    return TokenWork(input_tokens=input_tokens, output_tokens=output_tokens, input_seconds=share / read,
                     output_seconds=(1 - share) / output_rate)


def rate_text(rate: float, capacity: Capacity) -> str:
    """``rate`` is requests a second; of a language model the text counts output tokens."""
    return f"{ahead_text(rate, capacity)} {'tokens/s' if capacity.work else 'requests/s'}"


def ahead_text(rate: float, capacity: Capacity) -> str:
    """Without its unit."""
    return f"{rate * capacity.work.output_tokens:.0f}" if capacity.work else f"{rate:.1f}"


def size_text(capacity: Capacity) -> str:
    """Which requests these tokens are of; empty where all requests are alike."""
    work = capacity.work
    if work is None:
        return ""
    read = f"{work.input_tokens:.0f} tokens in and " if work.input_tokens else ""
    return f" (in requests of {read}{work.output_tokens:.0f} out)"
