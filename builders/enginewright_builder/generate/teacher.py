"""Has servers decode for the gate: the reference freely, another configuration after the reference's own tokens.

A candidate is asked to continue the prompt. As far as it chooses what the reference chose, it has decoded the
reference's text, with the cache and the kernels that serving uses. At its first other choice it is asked again, with
the reference's tokens up to and including that place as the prompt. So one request judges many tokens, and a sound
candidate takes few requests more than there are prompts. Of what follows its first other choice, all that it was asked
for was decoded in vain: so the next request is for as many tokens as it went well for twice, and for some at least.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from enginewright_builder.errors import UserError
from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.client import Client
from enginewright_builder.generate.gate import Record

# A candidate whose last choices are others so often, half of them, is judged by the places so far.
MOST_WRONG = 24
# Tokens of a request that follows another choice, at least.
LEAST_TOKENS = 32

# Conversations which show that a chat template is another one, whatever prompts the user gave.
_HELLO, _ANSWER, _MORE = ({"role": role, "content": content} for role, content in (
    ("user", "Hello."), ("assistant", "Hello to you."), ("user", "How are you?")))
TALKS = ((_HELLO,), (_HELLO, _ANSWER, _MORE), ({"role": "system", "content": "Be brief."}, _HELLO))

# The tokens so far, and the number of tokens to add. It gives at least one step.
Decode = Callable[[Sequence[int], int], Awaitable[list[Step]]]
# A text, or messages for the chat template.
Prompt = str | tuple[Mapping[str, str], ...]
In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True, kw_only=True)
class Words:
    """How a configuration reads prompts, and writes answers."""

    prompts: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]


async def record(client: Client, prompts: Sequence[Prompt], max_tokens: int | Sequence[int], *,
                 concurrency: int = 1, salt: str = "") -> list[Record]:
    """What the unquantised model reads and chooses, in the order of ``prompts``; ``max_tokens`` are one number for all,
    or one for each. Raises as :meth:`Client.decode` does."""
    limits = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else max_tokens

    async def one(asked: tuple[Prompt, int]) -> Record:
        tokens = await client.tokens(asked[0])
        return Record(prompt=tokens, steps=tuple(await client.decode(tokens, asked[1], salt=salt)))

    return [found for found in await _at_once(one, list(zip(prompts, limits, strict=True)), concurrency) if found]


async def hold(client: Client, records: Sequence[Record], *, concurrency: int, salts: Sequence[str] = (),
               seconds: float = math.inf) -> list[list[Step]]:
    """What a configuration chooses at the places of each record. After ``seconds`` no other record is begun: those have
    no choices. ``salts`` are one for each record: those of different ones share nothing of the prefix cache. Raises as
    :meth:`Client.decode` does."""
    async def one(asked: tuple[Record, str]) -> list[Step]:
        async def decode(prompt: Sequence[int], max_tokens: int) -> list[Step]:
            return await client.decode(prompt, max_tokens, past_end=True, salt=asked[1])

        return await follow(decode, asked[0])

    items = list(zip(records, salts or [""] * len(records), strict=True))
    return [found or [] for found in await _at_once(one, items, concurrency, time.monotonic() + seconds)]


async def follow(decode: Decode, reference: Record) -> list[Step]:
    """The choices of ``decode`` at the places of ``reference``, each after the reference's tokens."""
    chosen = [step.token for step in reference.steps]
    held, limit = list[Step](), len(chosen)
    while (at := len(held)) < len(chosen) and _wrong(held, chosen) < MOST_WRONG:
        found = await decode((*reference.prompt, *chosen[:at]), min(limit, len(chosen) - at))
        for step, expected in zip(found, chosen[at:], strict=False):
            held.append(step)
            if step.token != expected:
                break  # what follows was decoded from another text
        limit = max(LEAST_TOKENS, 2 * (len(held) - at))
    return held


def _wrong(held: Sequence[Step], chosen: Sequence[int]) -> int:
    """How many of the last choices are others."""
    first = max(0, len(held) - 2 * MOST_WRONG)
    return sum(step.token != token for step, token in zip(held[first:], chosen[first:], strict=False))


async def talks(client: Client) -> list[Prompt]:
    """Those of :data:`TALKS` that the model's chat template takes; none where it has no template."""
    found: list[Prompt] = []
    for one in TALKS:
        try:
            await client.tokens(one)
        except UserError:
            continue
        found.append(one)
    return found


async def words(client: Client, prompts: Sequence[Prompt], records: Sequence[Record]) -> Words:
    """Raises as :meth:`Client.tokens` does."""
    read = [await client.tokens(prompt) for prompt in prompts]
    written = [await client.text([step.token for step in one.steps]) for one in records]
    return Words(prompts=tuple(read), texts=tuple(written))


async def _at_once(work: Callable[[In], Awaitable[Out]], items: Sequence[In], concurrency: int,
                   until: float = math.inf) -> list[Out | None]:
    """Results in the order of ``items``, of which at most ``concurrency`` are worked on; None of those that had not
    begun by ``until``, on the monotonic clock."""
    room = asyncio.Semaphore(concurrency)

    async def one(item: In) -> Out | None:
        async with room:
            return await work(item) if time.monotonic() < until else None

    return await asyncio.gather(*map(one, items))
