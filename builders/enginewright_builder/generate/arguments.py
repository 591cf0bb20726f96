"""The settings of one configuration of vLLM, and the words of its command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from enginewright_builder.contract import DRAFT_PLACE
from enginewright_builder.errors import UserError

DType = Literal["auto", "bfloat16", "float16", "float32"]
_POSITIVE = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "speculative_tokens")


@dataclass(frozen=True, kw_only=True)
class ServerArguments:
    """What competes. None leaves a setting to vLLM. ``speculative_tokens`` above 0 has as many proposed: by the user's
    model of the name ``draft``, or where that is empty by matching n-grams of the prompt. ``memory_share`` is of a
    GPU's memory (0 to 1). On a CPU ``cache_gib`` is the size of the cache, and ``threads`` how many compute: with more
    than there are free cores each step waits for the last."""

    dtype: DType = "auto"
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    memory_share: float | None = None
    cache_gib: int | None = None
    threads: int | None = None
    speculative_tokens: int | None = None
    draft: str = ""
    enforce_eager: bool = False

    def checked(self) -> ServerArguments:
        """Itself. Raises :class:`UserError` ``ServerArgumentInvalid`` for what no server could be started with."""
        for name in (*_POSITIVE, "cache_gib", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _invalid(name, value, "write a positive number, or leave it out")
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise _invalid("memory_share", self.memory_share, "write a share of the GPU's memory, such as 0.9")
        batched, longest = self.max_num_batched_tokens, self.max_model_len
        if self.chunked_prefill is False and batched is not None and longest is not None and batched < longest:
            raise _invalid("max_num_batched_tokens", batched,
                           f"without chunked prefill a prompt is one batch: write at least {longest}, which is "
                           "max_model_len")
        return self

    def words(self) -> list[str]:
        """Of vLLM's command line, in one order: equal settings, equal words. A draft's folder is ``DRAFT_PLACE``."""
        return list(self._words())

    def _words(self) -> Iterator[str]:
        for name in ("dtype", "quantization", "kv_cache_dtype", "tensor_parallel_size", "max_model_len", "max_num_seqs",
                     "max_num_batched_tokens"):
            if (value := getattr(self, name)) is not None:
                yield f"--{name.replace('_', '-')}={value}"
        for name in ("prefix_caching", "chunked_prefill"):
            if (wanted := getattr(self, name)) is not None:
                yield f"--{'' if wanted else 'no-'}enable-{name.replace('_', '-')}"
        if self.memory_share is not None:
            yield f"--gpu-memory-utilization={self.memory_share}"
        if self.speculative_tokens is not None:
            how = {"method": "draft_model", "model": DRAFT_PLACE} if self.draft else {"method": "ngram"}
            yield "--speculative-config=" + json.dumps({**how, "num_speculative_tokens": self.speculative_tokens},
                                                       separators=(",", ":"))
        if self.enforce_eager:
            yield "--enforce-eager"

    def environment(self) -> dict[str, str]:
        """What vLLM takes from its environment alone. Where it runs eagerly nothing is compiled at all: without a C++
        compiler one request for log-probabilities of the prompt would end the engine. Threads that are bound to cores
        would share them with whatever else is bound there. As they are not bound, and their number is set for all, a
        CPU's engine computes in its own process: in a worker of its own vLLM is imported once more, and both wait for
        each other at each token."""
        given = {"VLLM_CPU_KVCACHE_SPACE": self.cache_gib, "OMP_NUM_THREADS": self.threads,
                 "TORCH_COMPILE_DISABLE": 1 if self.enforce_eager else None,
                 "VLLM_CPU_OMP_THREADS_BIND": "nobind" if self.threads else None,
                 "VLLM_ENABLE_V1_MULTIPROCESSING": 0 if self.threads else None}
        return {name: str(value) for name, value in given.items() if value is not None}

    def differences(self, other: ServerArguments) -> dict[str, tuple[object, object]]:
        """By name, the settings in which both differ: this one's and the other's."""
        names = [field.name for field in dataclasses.fields(self)]
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _invalid(name: str, value: object, remedy: str) -> UserError:
    return UserError("ServerArgumentInvalid", f"{name} cannot be {value}", field=name, value=value, remedy=remedy)
