"""What the replicas of a language model are tried with before any traffic, published beside it: a few prompts with the
unquantised model's first tokens, and how many of them the configuration chose, too, when it was proven.

Greedy choices of one configuration differ from run to run where two tokens are as likely, and each text goes on from
its own tokens. So what counts is how many tokens from the start of each answer are the unquantised model's, in all
prompts together, and half of what was measured is enough: a server with other weights, or with a kernel that computes
nonsense, chooses next to none of them. The program in the pod is :mod:`enginewright_builder.pod.smoke`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from enginewright_builder.contract import canonical
from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.gate import Record
from enginewright_builder.pod.smoke import leading

VERSION = 1
# Of so many of the shortest prompts so many tokens: a second or two of a CPU.
PROMPTS, TOKENS = 8, 8
ENOUGH = 0.5


def asked(records: Sequence[Record]) -> list[int]:
    """Which prompts are sent: places of the shortest ones in ``records``."""
    return sorted(sorted(range(len(records)), key=lambda place: len(records[place].prompt))[:PROMPTS])


def kept(records: Sequence[Record], held: Sequence[Sequence[Step]]) -> int:
    """How many tokens of these prompts a configuration chose as the reference did: ``held`` are its choices."""
    return sum(leading(_tokens(held[place]), _tokens(records[place].steps)) for place in asked(records))


def smoke_file(records: Sequence[Record], measured: int) -> str:
    """The file's text. ``measured`` is what :func:`kept` was of what ships."""
    return canonical({
        "version": VERSION, "measured": measured, "limit": max(1, math.ceil(ENOUGH * measured)),
        "prompts": [{"prompt": list(records[place].prompt), "tokens": _tokens(records[place].steps)}
                    for place in asked(records)]})


def _tokens(steps: Sequence[Step]) -> list[int]:
    return [step.token for step in steps[:TOKENS]]
