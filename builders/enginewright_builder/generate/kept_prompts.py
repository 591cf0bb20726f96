"""What replicas of a language model are asked while they serve, where ``spec.quality`` is there: the build's prompts
with the unquantised model's choices. A build writes them beside the model, and the quality monitor reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import REFERENCE_FOLDER, canonical, load, to_plain
from enginewright_builder.generate.gate import Record, Scored

FILE = "prompts.json"
# Spread over all prompts of the build: the monitor holds them in its memory.
MOST_PROMPTS = 1000


@dataclass(frozen=True, kw_only=True)
class KeptPrompt:
    """Tokens of a prompt, and those that the unquantised model chose after it."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class KeptPrompts:
    """``floor`` is the share of these tokens that the unquantised model itself chose otherwise when it was asked again;
    what ships was proven to choose at most ``tolerance`` more of them otherwise."""

    tolerance: float
    floor: float
    prompts: tuple[KeptPrompt, ...]

    @property
    def allowed(self) -> float:
        """The largest mean share of other tokens with which a replica is as it was proven."""
        return min(0.999, self.tolerance + self.floor)


def keep_prompts(staging: Path, records: Sequence[Record], floor: Sequence[Scored], tolerance: float) -> None:
    """Into ``staging/reference``. ``floor`` is of ``records``, in their order."""
    every = list(zip(records, floor, strict=True))[::math.ceil(len(records) / MOST_PROMPTS)]
    kept = KeptPrompts(
        tolerance=tolerance, floor=sum(1 - scored.agreement for _, scored in every) / len(every),
        prompts=tuple(KeptPrompt(prompt=one.prompt, tokens=tuple(step.token for step in one.steps))
                      for one, _ in every))
    folder = staging / REFERENCE_FOLDER
    folder.mkdir(parents=True)
    (folder / FILE).write_text(canonical(to_plain(kept)), encoding="utf-8")


def read_prompts(folder: Path) -> KeptPrompts:
    """Raises :class:`OSError`, and :class:`enginewright_builder.contract.ContractError` for what makes no sense."""
    return load(KeptPrompts, (folder / FILE).read_text(encoding="utf-8"))
