"""Words of others for a terminal, which acts on some characters: it moves, hides, or writes to the clipboard."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` with a space for other white space than newlines, and � for each other character that has no picture."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else " " if one.isspace() else "\N{REPLACEMENT CHARACTER}"
                   for one in text)
