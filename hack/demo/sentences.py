"""The demo's text: short English sentences made from parts, so that calibration and evaluation never share one.

Nothing is drawn at random: the same sentences come out on every machine, hence the same digests and fingerprints.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

SHOWCASE = (
    ("The cat sleeps on the warm windowsill.", "A kitten is napping in the sun by the window."),
    ("The bank raised its interest rates again.", "Borrowing money became more expensive this month."),
    ("How do I reset my password?", "I forgot my login and need to get back in."),
    ("The orchestra tuned before the concert.", "The mechanic replaced the worn brake pads."),
)

_SUBJECTS = {
    "calibration": ("The nurse", "A violinist", "My neighbour", "The night train", "An old lighthouse",
                    "The city council", "A patient gardener", "The delivery van"),
    "evaluation": ("The pilot", "A young baker", "Our landlord", "The harbour ferry", "An empty warehouse",
                   "The school board", "A tired referee", "The fire engine", "The museum guide", "A retired judge",
                   "The night porter", "A famous chess player", "Our neighbour's dog", "The ski instructor",
                   "An honest mechanic", "The village choir", "A visiting professor", "The ice cream van",
                   "The new librarian", "A lost tourist"),
}
_ACTIONS = {
    "calibration": ("waited for the rain to stop", "forgot to answer the letter", "was praised in the newspaper",
                    "needs a new coat of paint"),
    "evaluation": ("arrived earlier than expected", "lost the only spare key", "was mentioned at the meeting",
                   "has not changed in thirty years", "caused a long discussion"),
}
_CONTEXTS = {
    "calibration": ("", " because of the strike", ", which surprised everyone in the village",
                    " while the shops on the corner were closing for the winter holidays"),
    "evaluation": ("", " after the storm", ", although no one had asked for it",
                   " when the price of heating oil rose for the third time that year",
                   " and the neighbours kept talking about it for weeks over coffee and cake"),
}


def sentences(kind: str) -> list[str]:
    """All sentences of ``calibration`` (128) or ``evaluation`` (500), in one fixed, well-mixed order."""
    parts = itertools.product(_SUBJECTS[kind], _ACTIONS[kind], _CONTEXTS[kind])
    made = [f"{subject} {action}{context}." for subject, action, context in parts]
    # A stride that shares no factor with either length (2^7, 2^2·5^3) visits every sentence once.
    return [made[index * 37 % len(made)] for index in range(len(made))]


def write(directory: Path) -> None:
    """Writes ``calibration.jsonl`` and ``evaluation.jsonl``, one ``{"text": …}`` a line."""
    directory.mkdir(parents=True, exist_ok=True)
    for kind in ("calibration", "evaluation"):
        lines = (json.dumps({"text": text}) for text in sentences(kind))
        (directory / f"{kind}.jsonl").write_text("\n".join(lines) + "\n")
