"""Which configurations of a language model compete on a device, and why others do not. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from enginewright_builder.errors import UserError
from enginewright_builder.generate.ability import Ability
from enginewright_builder.generate.arguments import DType, ServerArguments
from enginewright_builder.sources.causal import Causal

PRECISIONS: dict[DType, str] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
# How many tokens speculation proposes at once, before a measurement says better.
PROPOSED = 4
# Of a CPU's free memory the cache takes this share at most, once the weights have theirs; a GPU keeps the rest for
# activations.
_CPU_CACHE_SHARE, _GPU_SHARE = 0.5, 0.9
# vLLM takes 0.92 of a GPU's memory, and ends where another process has some of that. Then it gets what is free, but for
# what a process of CUDA takes before its first tensor.
_FREE_SHARE, _CUDA_SHARE = 0.93, 0.02
# So many texts of the longest kind are to fit into a CPU's cache.
_IN_CACHE = 32
_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """``unavailable`` says why this device cannot do it; empty if it can. ``checkpoint`` names whose files are served;
    empty for the source's."""

    name: str
    precision: str
    arguments: ServerArguments
    unavailable: str = ""
    checkpoint: str = ""

    @property
    def other_weights(self) -> bool:
        """Whether it serves other weights than the source's. No two such go together."""
        return bool(self.checkpoint or self.arguments.quantization)

    @property
    def listed(self) -> bool:
        """Whether the user named it: a checkpoint or a draft."""
        return bool(self.checkpoint or self.arguments.draft)

    @property
    def speculates(self) -> bool:
        return self.arguments.speculative_tokens is not None


def ground(model: Causal, ability: Ability, *, longest: int, context: int, weights: int) -> ServerArguments:
    """What all configurations share: the reference's own, on as few GPUs as hold it. ``longest`` is the longest prompt
    and answer of the data, ``context`` what the user asked for (0: the model's), both in tokens; ``weights`` are bytes
    of files. Raises :class:`UserError` ``ContextTooLong``."""
    if context and model.context and context > model.context:
        raise _too_long(context, f"the model was made for {model.context}", model.context)
    dtype = reference_dtype(model, ability)
    wide = 2 if dtype == "float32" and model.dtype != "float32" else 1
    of_token = model.cached * (4 if dtype == "float32" else 2)
    most = context or model.context or longest
    sizes = [size for size in _sizes(ability) if model.heads % size == 0]
    rooms = {size: _room(ability, weights * wide, size) for size in sizes}
    size = next((size for size in sizes if not ability.memory_bytes or most * of_token <= rooms[size]), sizes[-1])
    room = rooms[size]
    if of_token and ability.memory_bytes and most * of_token > room:
        raise _too_long(most, f"its cache takes {most * of_token / _GIB:.1f} GiB, and beside the weights there is room "
                        f"for {max(0, room) / _GIB:.1f}" + (f" on {size} GPUs" if size > 1 else ""),
                        max(0, room) // of_token)
    if ability.gpu:
        return ServerArguments(dtype=dtype, max_model_len=context or None, memory_share=_share(ability),
                               tensor_parallel_size=size)
    wanted = max(most, _IN_CACHE * longest) * of_token
    return ServerArguments(dtype=dtype, max_model_len=context or None, threads=ability.cores, enforce_eager=True,
                           cache_gib=max(1, math.ceil(min(wanted, max(room, most * of_token)) / _GIB)))


def reference_dtype(model: Causal, ability: Ability) -> DType:
    """The source's own; where the device does not multiply in BF16 it is FP32, which holds all values of BF16."""
    if model.dtype == "bfloat16" or model.dtype not in PRECISIONS:
        return "bfloat16" if ability.bf16 else "float32"
    return "float32" if model.dtype == "float32" or not ability.gpu else "float16"


def candidates(model: Causal, ability: Ability, base: ServerArguments) -> list[Candidate]:
    """All but the reference, which is ``base``: those that are likely to gain most come first."""
    return [*_parallel(model, ability, base), *_quantised(ability, base), *_speculating(base), *_lower(ability, base)]


def drafted(drafts: Mapping[str, Causal], model: Causal, base: ServerArguments) -> list[Candidate]:
    """The source with each of the user's drafts, by their names. Where the cache has a size of ours it holds as many
    tokens as without the draft, which has a part of each."""
    found = []
    for name, draft in drafts.items():
        more = draft.cached / model.cached if model.cached else 0.0
        cache = None if base.cache_gib is None else math.ceil(base.cache_gib * (1 + more))
        fits = draft.heads % base.tensor_parallel_size == 0
        found.append(dataclasses.replace(
            proposing(PROPOSED, dataclasses.replace(base, draft=name, cache_gib=cache), PRECISIONS[base.dtype]),
            unavailable="" if fits else f"the draft's {draft.heads} attention heads are not divisible by "
                                        f"{base.tensor_parallel_size}, the number of GPUs"))
    return found


def proposing(tokens: int, arguments: ServerArguments, precision: str) -> Candidate:
    """One whose draft, which ``arguments`` name, proposes so many ``tokens`` at once."""
    return Candidate(name=f"draft {arguments.draft}, {tokens} tokens", precision=precision,
                     arguments=dataclasses.replace(arguments, speculative_tokens=tokens))


def listed(checkpoints: Mapping[str, Causal], base: ServerArguments) -> list[Candidate]:
    """The user's own checkpoints, by their names. Of quantised ones each says itself which type stands beside its
    weights; whether the device has kernels for them only the server knows."""
    return [Candidate(name=f"checkpoint {name}", checkpoint=name, precision=one.quantised or PRECISIONS[base.dtype],
                      arguments=dataclasses.replace(base, dtype="auto") if one.quantised else base)
            for name, one in checkpoints.items()]


def reference(base: ServerArguments) -> Candidate:
    precision = PRECISIONS[base.dtype]
    return Candidate(name=precision, precision=precision, arguments=base)


def together(parts: list[Candidate], base: ServerArguments) -> Candidate | None:
    """One that has the settings and the checkpoint of all ``parts``, which passed by themselves; None of fewer than
    two, and where two of them set the same."""
    changes: list[dict[str, Any]] = [{name: pair[0] for name, pair in one.arguments.differences(base).items()}
                                     for one in parts]
    names = [name for change in changes for name in change]
    if len(parts) < 2 or len(names) != len(set(names)):
        return None
    merged = {name: value for change in changes for name, value in change.items()}
    precision = next((one.precision for one in parts if one.precision != PRECISIONS[base.dtype]),
                     PRECISIONS[base.dtype])
    return Candidate(name=" + ".join(one.name for one in parts), precision=precision,
                     arguments=dataclasses.replace(base, **merged),
                     checkpoint=next((one.checkpoint for one in parts if one.checkpoint), ""))


def _quantised(ability: Ability, base: ServerArguments) -> Iterator[Candidate]:
    own = PRECISIONS[base.dtype]
    # What is not quantised stays in a type of 16 bits: vLLM takes no other beside FP8.
    beside: DType = "bfloat16" if base.dtype == "float32" else base.dtype
    yield Candidate(name="fp8", precision="fp8",
                    arguments=dataclasses.replace(base, dtype=beside, quantization="fp8"),
                    unavailable=_no_fp8(ability) if ability.gpu else
                    "vLLM quantises weights to FP8 while it loads them on GPUs alone")
    yield Candidate(name=f"{own}, cache in fp8", precision=own,
                    arguments=dataclasses.replace(base, kv_cache_dtype="fp8"),
                    unavailable=_no_fp8(ability) if ability.gpu else "")
    for name in ("int8", "int4"):
        yield Candidate(name=name, precision=name, arguments=base, unavailable=(
            f"vLLM makes no {name.upper()} weights of a dense model while it loads it: it takes a checkpoint that is "
            "quantised already"))


def _no_fp8(ability: Ability) -> str:
    """Of a GPU."""
    if ability.capability is None:
        return "the GPU's compute capability is unknown"
    major, minor = ability.capability
    return "" if ability.capability >= (8, 9) else f"FP8 takes compute capability 8.9, and the GPU has {major}.{minor}"


def _speculating(base: ServerArguments) -> Iterator[Candidate]:
    own = PRECISIONS[base.dtype]
    yield Candidate(name=f"{own}, n-grams", precision=own,
                    arguments=dataclasses.replace(base, speculative_tokens=PROPOSED))


def _lower(ability: Ability, base: ServerArguments) -> Iterator[Candidate]:
    """Types of 16 bits other than the reference's."""
    if base.dtype != "bfloat16":
        yield Candidate(name="bf16", precision="bf16", arguments=dataclasses.replace(base, dtype="bfloat16"),
                        unavailable="" if ability.bf16 else _no_bf16(ability))
    if base.dtype != "float16":
        yield Candidate(name="fp16", precision="fp16", arguments=dataclasses.replace(base, dtype="float16"))


def _no_bf16(ability: Ability) -> str:
    return ("the GPU does not multiply in BF16" if ability.gpu else
            "this CPU does not multiply in BF16 (it has neither avx512_bf16 nor amx_bf16)")


def _parallel(model: Causal, ability: Ability, base: ServerArguments) -> Iterator[Candidate]:
    own = PRECISIONS[base.dtype]
    for size in _sizes(ability):
        if size <= base.tensor_parallel_size:
            continue
        fits = model.heads % size == 0
        yield Candidate(name=f"{own}, {size} GPUs", precision=own,
                        arguments=dataclasses.replace(base, tensor_parallel_size=size),
                        unavailable="" if fits else f"{model.heads} attention heads are not divisible by {size}")


def _sizes(ability: Ability) -> list[int]:
    """Numbers of GPUs that a model can be divided among so that none is left over, the least first."""
    return [size for size in range(1, max(1, ability.gpus) + 1) if max(1, ability.gpus) % size == 0]


def _share(ability: Ability) -> float | None:
    """None: vLLM's own."""
    return None if ability.free_share >= _FREE_SHARE else round(max(0.01, ability.free_share - _CUDA_SHARE), 2)


def _room(ability: Ability, weights: int, gpus: int) -> int:
    """Bytes for the cache, of ``gpus`` GPUs together."""
    if ability.gpu:
        return int(gpus * ability.memory_bytes * min(_GPU_SHARE, _share(ability) or _GPU_SHARE)) - weights
    return int((ability.memory_bytes - weights) * _CPU_CACHE_SHARE)


def _too_long(context: int, problem: str, most: int) -> UserError:
    return UserError("ContextTooLong", f"a context of {context} tokens is too long: {problem}",
                     field="spec.engine.contextTokens", value=context,
                     remedy=f"write {most} at most (by hand --context)" if most else "use a device with more memory")
