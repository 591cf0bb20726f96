"""What the replicas of a language model are tried with before any traffic, published beside it: a few prompts with the
unquantised model's first tokens, and how many of them the configuration chose, too, when it was proven.

Greedy choices of one configuration differ from run to run where two tokens are as likely, and each text goes on from
its own tokens. So what counts is how many tokens from the start of each answer are the unquantised model's, in all
prompts together, and half of what was measured is enough: a server with other weights, or with a kernel that computes
nonsense, chooses next to none of them. So the prompts are of those of which the configuration began the answer as the
unquantised model did: of others there would be nothing to count. The program in the pod is
:mod:`enginewright_builder.pod.smoke`.
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


def asked(records: Sequence[Record], held: Sequence[Sequence[Step]]) -> list[int]:
    """Which prompts are sent: places in ``records`` of the shortest whose first token is the same in ``held``, which
    are the configuration's choices. The gate passes none without such prompts."""
    begun = [place for place, one in enumerate(records) if leading(_tokens(held[place][:1]), _tokens(one.steps))]
    return sorted(sorted(begun, key=lambda place: len(records[place].prompt))[:PROMPTS])


def kept(records: Sequence[Record], held: Sequence[Sequence[Step]], places: Sequence[int]) -> int:
    """How many tokens at ``places`` a configuration chose as the reference did."""
    return sum(leading(_tokens(held[place]), _tokens(records[place].steps)) for place in places)


def smoke_file(records: Sequence[Record], places: Sequence[int], measured: int) -> str:
    """The file's text. ``measured`` is what :func:`kept` was of what ships. Raises ``ValueError`` where it is 0: a test
    that no server passes, or every one does."""
    if measured < 1:
        raise ValueError("a start-up test of which the configuration itself chose no token as the unquantised model")
    return canonical({
        "version": VERSION, "measured": measured, "limit": max(1, math.ceil(ENOUGH * measured)),
        "prompts": [{"prompt": list(records[place].prompt), "tokens": _tokens(records[place].steps)}
                    for place in places]})


def _tokens(steps: Sequence[Step]) -> list[int]:
    return [step.token for step in steps[:TOKENS]]
