"""Opening TorchScript without letting it reach the machine.

``torch.jit.load`` runs what the file says (a module's ``__setstate__``), in an interpreter of its own. That knows
tensors, and two operators that read and write any file; libraries beside PyTorch add more. So the code, which is text,
is looked through first: only operators on tensors are let through, and no way to them by a name that is worked out.
"""

from __future__ import annotations

import re
from pathlib import Path

from enginewright_builder.errors import UserError
from enginewright_builder.sources.torch_archive import TorchArchive, opened

TORCHSCRIPT = "torchscript"
# Types as TorchScript writes them.
NUMBERS = ("int", "float", "bool", "number", "Scalar")
TENSOR, TENSORS = "Tensor", ("Tensor", "Optional[Tensor]")
LIST, DICT = "List[Tensor]", "Dict[str, Tensor]"
# The first class that a pickle names is that of the whole model.
_ROOT = re.compile(rb"c(__torch__[\w.]*)\n(\w+)\n", re.ASCII)
_ARGUMENT = re.compile(r"^ +(\w+): ([^=\n]+?)(?:=.*)?,?$", re.ASCII | re.MULTILINE)

# Whole words, wherever they stand: TorchScript's parser takes white space and comments within a name.
_REFUSED = re.compile(r"\b(?:from_file|save)\b", re.ASCII)
# How PyTorch writes modules that are called by a number; a name in another form could be any.
_NUMBERED = re.compile(r"\bgetattr\([\w.() ]*, \"\w+\"\)", re.ASCII)
_NAMED, _MOST_NESTED = re.compile(r"\bgetattr\b", re.ASCII), 16
_OPS = re.compile(r"\bops\b(?!\.(?:aten|prim|prims|quantized|torchvision)\.)", re.ASCII)
# Objects of C++, in code and in pickles, where the name may be on two lines: weights of quantised layers.
_CLASSES = re.compile(rb"torch(?:#[^\n]*\n|[^\w#])*classes\b(?![.\n](?:quantized|rnn)\b)")
# A format of before 2019, whose code lies elsewhere.
_OLD = "model.json"


def check_torchscript(path: Path) -> None:
    """Raises :class:`UserError` ``PickleRefused`` for code that reaches further than tensors, ``SourceCorrupt`` for a
    damaged archive."""
    with opened(path) as archive:
        check_script(archive)


def needs_interface(path: Path) -> UserError:
    """``InterfaceNeeded``, with the names of the inputs as far as the code tells them."""
    example = ", ".join(f"{{name: {name}, dtype: float32, shape: [batch, 16]}}" for name in _input_names(path))
    return UserError("InterfaceNeeded", "TorchScript does not say the types and shapes of its inputs",
                     field="spec.interface", value="", remedy=f"write for example interface: {{inputs: [{example}]}}")


def _input_names(path: Path) -> list[str]:
    """As inputs may be called, with one or two tensors for each list, tuple or dict of them; ``input`` where the code
    is not written as PyTorch writes it."""
    with opened(path) as archive:
        root = _ROOT.search(archive.read("data.pkl"))
        name = b".".join(root.groups()).decode() if root else ""
        forward = re.compile(rf"def forward\(self: {re.escape(name)}(?=[,)])(.*?)\) -> ", re.DOTALL)
        found = next(filter(None, (forward.search(archive.text(member)) for member in archive.names
                                   if member.startswith("code/") and member.endswith(".py"))), None)
    arguments = _ARGUMENT.findall(found[1]) if found else ()
    return [one for name, kind in arguments for one in input_examples(name, kind)] or ["input"]


def input_examples(argument: str, kind: str) -> list[str]:
    """What the tensors of an argument of type ``kind`` may be called as inputs."""
    if kind == DICT:
        return [f"{argument}.key", f"{argument}.other"]
    return [argument] if kind in (*NUMBERS, *TENSORS) else [
        f"{argument}.{place}" for place in range(kind.count(TENSOR) if kind.startswith("Tuple") else 2)]


def check_script(archive: TorchArchive) -> None:
    """The same of an archive that is open. Raises as :func:`check_torchscript`."""
    archive.check_names()
    if _OLD in map(str.lower, archive.names):
        raise archive.refuse("it is of a format that PyTorch 1.1 wrote")
    for name in archive.names:
        kind = name.lower()  # PyTorch finds members without regard to case
        if kind.startswith("code/") and not kind.endswith(".debug_pkl"):
            text = archive.text(name)
            if found := _REFUSED.search(text) or _OPS.search(text) or _NAMED.search(_unnumbered(text)):
                raise archive.refuse(f"{name[:100]} calls {found[0]!r}")
        if kind.endswith((".py", ".pkl")) and _CLASSES.search(archive.read(name)):
            raise archive.refuse(f"{name[:100]} has an object that is no tensor")


def _unnumbered(text: str) -> str:
    """Without the names of numbered modules, in others of them, too."""
    for _ in range(_MOST_NESTED):
        text, count = _NUMBERED.subn("module", text)
        if not count:
            break
    return text
