"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Container, Iterable


def row(cells: Iterable[object]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell != '' else ' ' for cell in cells)}|"


def head(*columns: str, right: Container[int] = ()) -> tuple[str, str]:
    """The two lines above the rows. Columns whose numbers, from 0 on, are in ``right`` are aligned there."""
    return row(columns), f"|{'|'.join('--:' if number in right else '---' for number in range(len(columns)))}|"
