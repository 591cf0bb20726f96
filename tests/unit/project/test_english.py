"""The worst habits of the project's English, which CONTRIBUTING.md names, stay out of what people read.

A short list of words and shapes, not a style engine: each was counted in the repository and read as a riddle.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
READ = ("operator/", "builders/", "charts/", "crds/", "docs/", "examples/", "hack/", "studies/", "README.md",
        "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")
ENDINGS = (".py", ".md", ".yaml", ".tpl", ".txt", ".sh", ".lua", ".go", "Makefile")
# Examples of what not to write.
EXAMPLES = "CONTRIBUTING.md"

HABITS = {
    r"[Aa]new": "write again, or the verb with re-: rebuilt, recreated",
    r"[Nn]obody|[Ss]omebody|[Ww]hoever": "name the actor: no model, another controller, a user",
    r"(?:is|are|was|were|be|been|being) told": "name who reports, and use report, show or know",
    r"another than": "write differs from",
    r"(?:is|are) wanted": "name who needs it: the operator, the model, a request",
    r"that which|those which": "write what, or name the thing",
    r"[Ff]or want of": "write for lack of",
    r"[Ff]or ever": "write forever",
    r"(?:[Hh]ow|as) (?:it|they) stands?": "write current, or leave it out",
    r"(?:has|have|had) not (?:a|an|the|what)": "write does not have",
    r"nought": "write zero",
    r"(?<=[.;:|] )Who (?:is|may|can|has|wants|reads|writes|uses|asks|runs)(?= [^?|\n]*[.;|\n])":
        "begin with the actor: a user who, a client that",
}
WORST = {re.compile(rf"\b(?:{shape})\b"): instead for shape, instead in HABITS.items()}


def habits(text: str) -> list[str]:
    """What of the list stands in ``text``, also over the end of a line, with what to write instead."""
    running = re.sub(r"\s+(?:# |\* )?", " ", text)
    return [f"{match[0]!r}: {instead}" for shape, instead in WORST.items() for match in shape.finditer(running)]


def texts() -> list[Path]:
    """What people read of this checkout, without what is built in it."""
    found = [path for read in READ for path in ((ROOT / read).rglob("*") if read.endswith("/") else [ROOT / read])]
    return sorted(path for path in found if path.name.endswith(ENDINGS) and path.is_file()
                  and (name := path.relative_to(ROOT).as_posix()) != EXAMPLES
                  and not {"__pycache__", "build", "node_modules"} & set(name.split("/")))


def test_texts_are_plain_english() -> None:
    found = [f"{path.relative_to(ROOT)}: {habit}" for path in texts() for habit in habits(path.read_text())]
    assert not found, "\n".join(found)


def test_the_list_of_texts_is_not_empty() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in texts()}
    assert {"README.md", "charts/enginewright/values.yaml", "crds/enginewright.io_optimisedmodels.yaml",
            "operator/enginewright/core/spec/parse.py"} <= names


@pytest.mark.parametrize("text", [
    "It is built anew.", "Nobody refers to it.", "until somebody changes it", "for whoever asks",
    "The user is\ntold why.", "  # which cannot be\n  # told", "is another than the source's", "No replica is wanted.",
    "of that which is noise", "for want of memory", "waits for ever", "How it stands.", "has not the form", "as nought",
    "It ends. Who is refused reads it.",
])
def test_each_habit_is_found(text: str) -> None:
    assert len(habits(text)) == 1


@pytest.mark.parametrize("text", [
    "The operator rebuilds it.", "NOBODY = 'none'", "def told(self)", "Requests wait. Who is asked?",
    "It has not begun.",
])
def test_plain_text_passes(text: str) -> None:
    assert habits(text) == []
