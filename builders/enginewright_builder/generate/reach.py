"""What the gate did not reach, in plain lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.comparing import AT_ONCE, TOKENS, Yardstick
from enginewright_builder.generate.gate import Judgement, Part, in_words

_MORE = "A larger buildBudgetSeconds gives the gate more time, up to a minute for each configuration."


def unreached(judgement: Judgement, found: Yardstick, arguments: ServerArguments) -> list[str]:
    """Of what ships, which has ``arguments`` and was judged so; empty where all was compared and proven."""
    return [*_answers(judgement, found), *_at_once(judgement, arguments), *_unproven(judgement, found.tolerance)]


def _answers(judgement: Judgement, found: Yardstick) -> Iterator[str]:
    further = [part for part in judgement.parts if part.where.first > TOKENS]
    prompts, last = max((part.prompts for part in further), default=0), max(
        (part.where.last for part in further), default=TOKENS)
    if prompts < found.going_on or found.cut:
        yield (f"{found.going_on:,} answers go on after their first {TOKENS} tokens. The gate compared {prompts:,} of "
               f"them further, up to token {last:,}; prompts ask for up to {found.longest:,}. What comes after was not "
               f"compared. {_MORE}")


def _at_once(judgement: Judgement, arguments: ServerArguments) -> Iterator[str]:
    widest = max((part.where.at_once for part in judgement.parts), default=AT_ONCE)
    if arguments.max_num_seqs is None:
        yield (f"The gate compared answers with up to {widest:,} requests at once. How many the server may run is left "
               "to vLLM: with more at once they were not compared.")
    elif widest < arguments.max_num_seqs:
        yield (f"The gate compared answers with up to {widest:,} requests at once, and the server may run "
               f"{arguments.max_num_seqs:,}: with more at once they were not compared. {_MORE}")


def _unproven(judgement: Judgement, tolerance: float) -> Iterator[str]:
    for part in judgement.parts:
        if part.where.proves and not part.proven:
            yield (f"In {in_words(part.where)} a loss of at most {tolerance:g} is not proven: so few answers were "
                   f"compared there ({part.prompts:,}). {_seen(part)}.")


def _seen(part: Part) -> str:
    return (f"Of their tokens {part.disagreement.value:.2%} are others, with 95 % confidence up to "
            f"{part.disagreement.high:.2%} beyond the noise floor of {part.disagreement.floor:.2%}")
