"""The worst habits of the project's English, which CONTRIBUTING.md names, stay out of what people read.

A short list of words and shapes, not a style engine: each was counted in the repository and read as a riddle.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
READ = ("operator/", "builders/", "charts/", "crds/", "docs/", "examples/", "hack/", "studies/", "README.md",
        "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "GOVERNANCE.md", "SECURITY.md", "Makefile", ".github/")
ENDINGS = (".py", ".md", ".yaml", ".tpl", ".txt", ".sh", ".lua", ".go", "Makefile")
# Examples of what not to write.
EXAMPLES = "CONTRIBUTING.md"
# Where names are checked, and which of them are another's there: a search is asked and told; Python's files tell.
NAMED = {"operator/enginewright/core": set[str](), "builders/enginewright_builder": {"tell", "tell_again"}}
LATER = ROOT / "builders/enginewright_builder/generate"

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
# Words of names that say nothing of what the name holds.
RIDDLES = {
    **dict.fromkeys(("told", "said", "say", "tell"), "name what it holds: message, memory, finding, figures"),
    **dict.fromkeys(("nobody", "somebody", "whoever"), "name the actor"),
    "clumps": "dispersion", "falls": "readiness_losses", "ailing": "unready", "heir": "remaining",
    "astray": "out_of_step, or that a path escapes its folder",
}
# Words of names in core, where they have a better one.
OF_CORE = {
    "world": "ctx: a pass has one PassContext",
    **dict.fromkeys(("shelf", "shelves"), "references: which object uses which engine"),
}
WORST = {re.compile(rf"\b(?:{shape})\b"): instead for shape, instead in HABITS.items()}


def habits(text: str) -> list[str]:
    """What of the list stands in ``text``, also over the end of a line, with what to write instead."""
    running = re.sub(r"\s+(?:# |\* )?", " ", text)
    return [f"{match[0]!r}: {instead}" for shape, instead in WORST.items() for match in shape.finditer(running)]


def names(source: str) -> Iterator[str]:
    """What ``source`` defines: functions, classes, arguments, variables and fields."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def riddles(source: str, listed: Mapping[str, str] = RIDDLES | OF_CORE) -> set[str]:
    """Names of ``source`` with a word of the list, and what to write instead."""
    return {f"{name}: {listed[word]}" for name in names(source)
            for word in map(str.lower, re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)) if word in listed}


@pytest.mark.parametrize("root", NAMED)
def test_names_say_what_they_hold(root: str) -> None:
    listed = RIDDLES | OF_CORE if root.endswith("/core") else RIDDLES
    found = {f"{path.relative_to(ROOT)}: {riddle}" for path in (ROOT / root).rglob("*.py") if LATER not in path.parents
             for riddle in riddles(path.read_text(), listed) if riddle.partition(":")[0] not in NAMED[root]}
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize("source", [
    "told = 1", "def say(): pass", "class Shelves: pass", "def f(world): pass", "class A:\n    falls: int = 0",
    "NOBODY = 1", "for said in (): pass", "server_said = 1",
])
def test_each_riddle_is_found(source: str) -> None:
    assert len(riddles(source)) == 1


@pytest.mark.parametrize("source", ["x = told", "retold = 1", "def essay(): pass", "message = obj.said"])
def test_plain_names_pass(source: str) -> None:
    assert riddles(source) == set()


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
