"""The figures of all policies for a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from enginewright_simulation.answer import Answer, TraceFigures
from enginewright_simulation.results import Figures

HEADERS = ("requests", "late", "late %", "replica-s", "× oracle", "p50 ms", "p99 ms", "reversals")


def show(answer: Answer) -> None:
    """To standard output."""
    # A pipe is no narrow terminal.
    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 120)
    console.print(headline(answer["trace"]), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for header in HEADERS:
        table.add_column(header, justify="right", no_wrap=True)
    for name, row in answer["policies"].items():
        table.add_row(name, *cells(row, answer["policies"].get("oracle")))
    console.print(table)
    if "grid" in answer:
        _show_grid(console, answer)
    for note in answer["notes"]:
        console.print(note, soft_wrap=True)


def headline(trace: TraceFigures) -> str:
    return (f"{trace['name']}: {trace['requests']} requests in {trace['seconds']:.0f} s, {trace['mean_rps']:g} a "
            f"second, {trace['peak_rps']} in the busiest")


def cells(row: Figures, oracle: Figures | None) -> tuple[str, ...]:
    against = "" if oracle is None else f"{row['replica_seconds'] / max(oracle['replica_seconds'], 1e-9):.2f}"
    return (
        str(row["requests"]), str(row["slo_violations"]), f"{100 * row['violation_rate']:.2f}",
        f"{row['replica_seconds']:.0f}", against, f"{row['p50_ms']:.1f}", f"{row['p99_ms']:.1f}",
        str(row["reversals"]),
    )


def _show_grid(console: Console, answer: Answer) -> None:
    table = Table(box=None, pad_edge=False, title="peers with other settings", title_justify="left")
    for header in ("policy", "target", "window s", "late", "replica-s"):
        table.add_column(header, justify="left" if header == "policy" else "right")
    for row in answer["grid"]:
        settings = row["settings"]
        table.add_row(row["policy"], f"{settings['target']:g}", f"{settings['window']:g}",
                      str(row["slo_violations"]), f"{row['replica_seconds']:.0f}")
    console.print(table)
