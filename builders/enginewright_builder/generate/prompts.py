"""What is asked under load: prompts of a file, or made-up ones with the lengths of a distribution."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginewright_builder.accuracy.rules import check_tolerance, samples_advised, samples_needed
from enginewright_builder.contract import quoted
from enginewright_builder.errors import UserError
from enginewright_builder.foreign_json import parsed
from enginewright_builder.generate.client import Ask

DEFAULT_MAX_TOKENS = 128
# Lengths are spread by a log-normal: most are short, a few are many times as long.
_MOST_SPREAD = 3.0


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens in and out: means, and the spread of both (the standard deviation of their logarithm; 0: all alike). No
    length is above ``longest``."""

    input_tokens: int
    output_tokens: int
    spread: float = 0.0
    longest: int = 2048

    def checked(self) -> Lengths:
        """Itself. Raises :class:`UserError` ``LengthsInvalid``."""
        for name in ("input_tokens", "output_tokens"):
            if not 0 < getattr(self, name) <= self.longest:
                raise UserError("LengthsInvalid", f"{name} cannot be {getattr(self, name)}", field=name,
                                value=getattr(self, name), remedy=f"write a number from 1 to {self.longest}")
        if not 0 <= self.spread <= _MOST_SPREAD:
            raise UserError("LengthsInvalid", f"a spread cannot be {self.spread}", field="spread", value=self.spread,
                            remedy=f"write a number from 0 (all alike) to {_MOST_SPREAD:g}")
        return self

    def drawn(self, generator: random.Random) -> tuple[int, int]:
        return self._one(self.input_tokens, generator), self._one(self.output_tokens, generator)

    def _one(self, mean: int, generator: random.Random) -> int:
        if not self.spread:
            return mean
        drawn = generator.lognormvariate(math.log(mean) - self.spread ** 2 / 2, self.spread)
        return max(1, min(self.longest, round(drawn)))


def made_up(lengths: Lengths, vocabulary: int, *, seed: int = 0) -> Iterator[Ask]:
    """Endless requests of random tokens, no two alike, so that no prefix cache answers. The same seed gives the same.
    The first few hundred tokens of a vocabulary are left out: what ends or opens a text is among them."""
    generator = random.Random(seed)  # noqa: S311 - not a secret
    lengths.checked()
    first = min(512, vocabulary // 2)
    while True:
        length, output = lengths.drawn(generator)
        tokens = tuple(generator.randrange(first, vocabulary) for _ in range(length))
        yield Ask(prompt=tokens, max_tokens=output, exact=True)


def check_prompts(count: int, tolerance: float) -> None:
    """Raises :class:`UserError` ``ToleranceInvalid``, and ``EvaluationTooSmall`` where so few prompts prove nothing."""
    check_tolerance(tolerance)
    needed = samples_needed(tolerance)
    if count < needed:
        raise UserError("EvaluationTooSmall", f"{count} prompts cannot prove a loss of at most {tolerance:g}; "
                        f"{needed} can", field="spec.accuracy.evaluation.uri", value=count,
                        remedy=f"give at least {samples_advised(tolerance)} different prompts, or raise "
                               "spec.accuracy.maxLoss")


def read_prompts(path: Path) -> list[Ask]:
    """Of a file of JSON lines, each with ``prompt`` (a text) or ``messages`` (roles and contents), and ``max_tokens``
    where it is not 128. Raises :class:`UserError` ``PromptsInvalid``."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(path, f"it cannot be read: {error}") from error
    asks = [_ask(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not asks:
        raise _invalid(path, "it holds no prompt")
    return asks


def _ask(path: Path, number: int, line: str) -> Ask:
    try:
        row = parsed(line)
    except ValueError as error:
        raise _invalid(path, f"line {number} is not JSON: {error}") from error
    if not isinstance(row, dict) or ("prompt" in row) == ("messages" in row):
        raise _invalid(path, f"line {number} has not just one of prompt and messages")
    limit = row.get("max_tokens", DEFAULT_MAX_TOKENS)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise _invalid(path, f"line {number}: max_tokens is {quoted(limit)}, not a positive number")
    if "prompt" in row:
        if not isinstance(row["prompt"], str) or not row["prompt"]:
            raise _invalid(path, f"line {number}: prompt is not a text")
        return Ask(prompt=row["prompt"], max_tokens=limit)
    return Ask(prompt=_messages(path, number, row["messages"]), max_tokens=limit, chat=True)


def _messages(path: Path, number: int, found: Any) -> tuple[Mapping[str, str], ...]:
    if not isinstance(found, Sequence) or isinstance(found, str) or not found or not all(map(_is_message, found)):
        raise _invalid(path, f"line {number}: messages is not a list of objects with role and content, both texts")
    return tuple({"role": one["role"], "content": one["content"]} for one in found)


def _is_message(one: Any) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(name), str) for name in ("role", "content"))


def _invalid(path: Path, problem: str) -> UserError:
    return UserError("PromptsInvalid", f"{path.name}: {problem}", field="spec.accuracy.evaluation.uri", value=path,
                     remedy='write one JSON object on each line, such as {"prompt": "…", "max_tokens": 64} or '
                            '{"messages": [{"role": "user", "content": "…"}]}')
